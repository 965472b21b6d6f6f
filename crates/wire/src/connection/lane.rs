//! One connection of a link, as the I/O thread handles it: frames in both directions, liveness, and a watch on its
//! path.
//!
//! Budget: a poll receives and sends a bounded amount, so a large message of low priority delays an urgent one, and one
//! peer delays the others, by at most one turn.

use super::{Framed, Info, Outcome, Receiver, Stream, Transmitter};
use crate::clock::now_ns;
use crate::link::{Link, LinkError, Sent, Sink};
use crate::poll::Readiness;
use crate::shaper::Pace;
use hocket_protocol::backlog::Backlog;
use hocket_protocol::congestion::{Bearing, LOOK_EVERY, Look, Losses, is_long};
use hocket_protocol::frame::Frame;
use hocket_protocol::liveness::{Action, Liveness, Patience};
use hocket_protocol::path::{self, Path};
use rustix::fd::{AsFd, BorrowedFd};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes moved in each direction per turn: a few frames.
const TURN_BYTES: usize = 1 << 20;

/// Drains what the peer posted elsewhere before it ended the connection.
pub type Last<'a> = dyn FnMut(&mut dyn Sink) -> Result<(), String> + 'a;

/// What both ends of a connection agree about.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Every frame must carry a checksum.
    pub checksums: bool,
    /// How long the peer may be silent while this rank waits for it.
    pub patience: Patience,
    /// The epoch of members for which the connection was opened.
    pub epoch: u64,
}

/// What a connection still carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Frames in both directions.
    Open,
    /// The peer broke the protocol: no frame is accepted from it any more, but it can still be sent the reason.
    Refused,
    /// Nothing.
    Closed,
}

/// Progress of an orderly shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// The goodbye is queued.
    Said,
    /// Our direction is shut.
    Shut,
}

/// One connection.
pub struct Lane {
    number: usize,
    /// Both ends' addresses, for error messages.
    ends: Option<String>,
    stream: Stream,
    receiver: Receiver,
    transmitter: Transmitter,
    readable: bool,
    writable: bool,
    /// When the emulated network is free again.
    held_until_ns: Option<u64>,
    phase: Phase,
    /// The peer's goodbye has arrived.
    left: bool,
    leaving: Leaving,
    liveness: Liveness,
    /// Watched if a peer whose host acknowledges nothing is given up early.
    path: Option<Path>,
    losses: Losses,
    bearing: Bearing,
    backlog: Backlog,
    looked_at: Duration,
    /// Requests for statistics that have been served.
    looks: usize,
    /// Bytes received at the last check for life.
    heard_bytes: u64,
}

impl Lane {
    /// Lane `number` of the link; `pace` if the network is emulated.
    pub fn new(number: usize, stream: Stream, terms: Terms, pace: Option<Pace>) -> Self {
        let now = Duration::from_nanos(now_ns());
        let Terms { checksums, patience, epoch } = terms;
        let long = stream.info().is_some_and(|info| is_long(info.shortest()));
        let mut lane = Self {
            number,
            ends: stream.ends(),
            stream,
            receiver: Receiver::new(checksums, epoch),
            transmitter: Transmitter::new(number, pace),
            readable: true,
            writable: true,
            held_until_ns: None,
            phase: Phase::Open,
            left: false,
            leaving: Leaving::No,
            liveness: Liveness::new(patience, now),
            path: patience.by_path.then(Path::default),
            losses: Losses::default(),
            bearing: Bearing::Plain,
            backlog: Backlog::default(),
            looked_at: now,
            looks: 0,
            heard_bytes: 0,
        };
        if long {
            lane.bear_losses();
        }
        lane
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Stores the descriptor's readiness.
    pub fn handle_ready(&mut self, ready: Readiness) {
        self.readable |= ready.readable;
        self.writable |= ready.writable;
    }

    /// The epoch in force ends, in both directions.
    pub fn stop(&mut self) {
        self.receiver.stop();
        self.transmitter.stop();
    }

    /// A later epoch begins, in both directions.
    pub fn enter(&mut self, framed: &Framed, epoch: u64) {
        self.receiver.enter(epoch);
        self.transmitter.stop();
        framed.control_on(self.number, Frame::Epoch { epoch });
    }

    /// Half of the silence after which a peer gets a probe.
    pub fn pause_max(&self) -> Duration {
        self.liveness.ask_after() / 2
    }

    /// Time until the emulated network lets something leave.
    pub fn held(&self) -> Option<Duration> {
        self.held_until_ns.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(now_ns())))
    }

    /// Receives, checks for life and sends; whether anything moved. `heard`: the peer gave another sign of life.
    pub fn poll(
        &mut self,
        framed: &Framed,
        sink: &mut dyn Sink,
        now: Duration,
        heard: bool,
        last: &mut Last<'_>,
    ) -> bool {
        let received = self.receive(framed, sink, last);
        self.listen(framed, sink, now, heard);
        self.watch(now);
        self.transmit(framed, sink, last) | received
    }

    fn receive(&mut self, framed: &Framed, sink: &mut dyn Sink, last: &mut Last<'_>) -> bool {
        if !(self.readable || self.receiver.has_kept()) || self.has_ended() {
            return false;
        }
        let received = self.receiver.receive(&mut self.stream, sink, TURN_BYTES);
        if self.receiver.take_asked() {
            framed.answer(self.number);
        }
        if self.receiver.has_left() && !std::mem::replace(&mut self.left, true) && framed.leave_lane() {
            sink.left();
            framed.drop_messages();
        }
        match received {
            Ok(more) => self.readable = more,
            Err(error) => {
                // Posts that the peer left elsewhere before it ended must still be processed.
                if let Err(what) = last(sink) {
                    self.end(sink, &LinkError::Violation(what));
                }
                self.end(sink, &error);
            }
        }
        true
    }

    fn transmit(&mut self, framed: &Framed, sink: &mut dyn Sink, last: &mut Last<'_>) -> bool {
        if !self.writable || self.phase == Phase::Closed {
            return false;
        }
        self.held_until_ns = None;
        let on_sent = |sent: Sent| {
            framed.note_sent(sent);
            sink.sent(sent);
        };
        match self.transmitter.transmit(&mut self.stream, framed.outgoing(), TURN_BYTES, on_sent) {
            Ok(Outcome::Idle) => false,
            Ok(Outcome::More) => true,
            Ok(Outcome::Full) => {
                self.writable = false;
                true
            }
            Ok(Outcome::NotBefore(leaves_ns)) => {
                self.held_until_ns = Some(leaves_ns);
                false
            }
            Err(error) => {
                // The peer may have sent the reason before it closed: receive that first.
                self.readable = true;
                while self.readable && !self.has_ended() {
                    self.receive(framed, sink, last);
                }
                self.end(sink, &error.into());
                self.phase = Phase::Closed;
                true
            }
        }
    }

    /// Stops receiving, because of `error`.
    pub fn end(&mut self, sink: &mut dyn Sink, error: &LinkError) {
        if self.has_ended() {
            return;
        }
        self.phase = match error {
            // A record that cannot be decrypted; our own direction is intact.
            LinkError::Io(cause) if cause.kind() == io::ErrorKind::InvalidData => Phase::Refused,
            LinkError::Closed | LinkError::Io(_) => Phase::Closed,
            // Of a fabric: words still reach the peer.
            LinkError::Fabric { .. }
            | LinkError::Frame(_)
            | LinkError::Damaged { .. }
            | LinkError::Violation(_)
            | LinkError::Silent { .. }
            | LinkError::Unreachable { .. } => Phase::Refused,
        };
        if !self.left {
            sink.ended(self.ends.as_deref(), error);
        }
    }

    /// Sends a probe to a silent peer that this rank waits for; gives it up when it does not reply.
    fn listen(&mut self, framed: &Framed, sink: &mut dyn Sink, now: Duration, heard: bool) {
        let received_bytes = self.receiver.received_bytes();
        if heard || received_bytes != self.heard_bytes {
            self.heard_bytes = received_bytes;
            self.liveness.handle_arrival(now);
            if let Some(path) = &mut self.path {
                path.rest();
            }
        }
        let looks = framed.looks.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.looks, looks) != looks {
            self.look(framed);
        }
        let open = !self.has_ended() && !self.left;
        match self.liveness.poll(now, || open && sink.is_awaited()) {
            Action::Ask => {
                framed.control_on(self.number, Frame::Ask);
                if let Some(path) = &mut self.path {
                    path.expect(now);
                }
            }
            // The connection stays open: the peer may yet be told why the job failed.
            Action::GiveUp { silence } => sink.ended(self.ends.as_deref(), &LinkError::Silent { silence }),
            Action::Wait => self.look_at_path(sink, now),
        }
    }

    /// Gives up a silent peer whose host acknowledges nothing any more.
    fn look_at_path(&mut self, sink: &mut dyn Sink, now: Duration) {
        let Some(path) = &mut self.path else { return };
        if !path.is_due(now) {
            return;
        }
        let Some(info) = self.stream.info() else { return };
        let lost = path.handle_look(&info.path_at(now), path::TIMEOUTS);
        if let Some(silence) = lost
            && !self.has_ended()
            && !self.left
            && sink.is_awaited()
        {
            sink.ended(self.ends.as_deref(), &LinkError::Unreachable { silence });
        }
    }

    /// Refreshes the statistics, and sends a probe, whose round trip updates them again.
    fn look(&self, framed: &Framed) {
        framed.note_seen(self.number, self.info());
        if !self.has_ended() && !framed.has_left() {
            framed.control_on(self.number, Frame::Ask);
        }
    }

    /// Tolerates losses that no queue of ours explains, and keeps our own queues short.
    fn watch(&mut self, now: Duration) {
        if now.saturating_sub(self.looked_at) < LOOK_EVERY || self.has_ended() {
            return;
        }
        self.looked_at = now;
        let Some(info) = self.stream.info() else { return };
        let look = Look {
            at: now,
            sent: u64::from(info.sent),
            again: u64::from(info.sent_again),
            round_trip: Duration::from_micros(u64::from(info.round_trip_us)),
            shortest: Duration::from_micros(u64::from(info.round_trip_us_min)),
            acknowledged_bytes: info.acknowledged_bytes,
            received_bytes: info.received_bytes,
            busy: Duration::from_micros(info.busy_us),
        };
        if self.losses.handle_look(&look) {
            self.bear_losses();
        }
        if let Some(buffer) = self.backlog.handle_look(&look) {
            let _: io::Result<()> = self.stream.set_buffer(buffer);
        }
    }

    /// The connection's statistics, and how it stands to losses.
    pub fn info(&self) -> Option<Info> {
        Some(Info { bearing: self.bearing, ..self.stream.info()? })
    }

    /// Changes to a congestion control that tolerates losses and builds no queue beyond one round trip's data. Where the
    /// kernel has none, or does not allow it, the connection stays as slow as it was.
    fn bear_losses(&mut self) {
        self.bearing = if self.stream.bear_losses() { Bearing::Bears } else { Bearing::Refused };
        if self.bearing == Bearing::Bears {
            self.losses.decide();
        }
        if let Some(buffer) = self.backlog.give_up() {
            let _: io::Result<()> = self.stream.set_buffer(buffer);
        }
    }

    /// Whether there is nothing to do until an event.
    pub fn is_idle(&self, framed: &Framed) -> bool {
        if self.receiver.has_kept() && !self.has_ended() {
            return false;
        }
        let cannot_send = self.phase == Phase::Closed || !self.writable || self.held_until_ns.is_some();
        cannot_send || framed.is_empty(self.number)
    }

    /// Whether no more frames are received.
    pub fn has_ended(&self) -> bool {
        self.phase != Phase::Open
    }

    /// One step of an orderly shutdown; whether nothing more comes and nothing is left to send.
    pub fn close(&mut self, framed: &Framed, sink: &mut dyn Sink, last: &mut Last<'_>) -> bool {
        // Queued frames go before the goodbye.
        while self.transmit(framed, sink, last) && self.writable {}
        if self.leaving == Leaving::No && framed.is_empty(self.number) {
            self.leaving = Leaving::Said;
            if !self.has_ended() {
                framed.control_on(self.number, Frame::Bye);
            }
        }
        while self.transmit(framed, sink, last) && self.writable {}
        while self.receive(framed, sink, last) && self.readable && !self.has_ended() {}
        if framed.is_empty(self.number) && self.writable && self.leaving == Leaving::Said && !self.has_ended()
        {
            self.leaving = Leaving::Shut;
            if self.stream.shutdown_write().is_err() {
                self.phase = Phase::Closed;
            }
        }
        self.has_ended() && (self.phase == Phase::Closed || framed.is_empty(self.number))
    }
}
