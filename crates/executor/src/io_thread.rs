//! The thread that owns the connections and mailboxes of a rank, and computes when no worker threads do.
//!
//! Budget: each turn receives and sends a bounded amount per peer and runs a bounded amount of work, so that a large
//! low-priority bucket delays an urgent one by one turn. It sleeps in one epoll call, woken by sockets, by threads of
//! this rank and by neighbours alike.

use crate::arrival::{Arrival, Incoming};
use crate::core::Core;
use crate::failure::{Failure, Location};
use crate::lock::lock;
use crate::messages::NO_PROGRAM;
use crate::peer::Peer;
use hocket_ids::Rank;
use hocket_protocol::backlog::Backlog;
use hocket_protocol::checksum::Damage;
use hocket_protocol::congestion::{LOOK_EVERY, Look, Losses};
use hocket_protocol::frame::{Data, Frame};
use hocket_protocol::liveness::{Action, Liveness};
use hocket_protocol::why::Why;
use hocket_wire::clock::now_ns;
use hocket_wire::mesh::Listener;
use hocket_wire::poll::Poller;
use hocket_wire::shm::mailbox::Inbox;
use hocket_wire::tcp::{LinkError, Outcome, Pace, Receiver, Sent, Stream, Transmitter};
use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes moved per peer and direction in a turn: a few frames.
const TURN_BYTES: usize = 1 << 20;
/// Instructions run in a turn when there are no workers.
const TURN_TASKS: usize = 4;
/// How long a sleep may last; also bounds how late a failed wake-up is made good.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// How long the thread offers its core before it sleeps while a collective in place is under way: an all-reduce of 25 MB on
/// 4 ranks and 2 cores takes 4 ms, and each sleep of a rank in it is a wake-up that the others wait for.
const OFFER: Duration = Duration::from_micros(200);
/// Pause before a full mailbox is tried again.
const FULL_MAILBOX_PAUSE: Duration = Duration::from_millis(1);
/// After the last byte is sent, how long to wait for peers to close too, so that nothing in flight is cut off.
const LINGER: Duration = Duration::from_millis(500);

/// What still goes over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Frames both ways.
    Open,
    /// The peer broke the protocol: nothing more is taken from it, but it can be told so.
    Refused,
    /// Nothing.
    Closed,
}

/// One connection, as the I/O thread sees it.
pub struct Connection {
    rank: Rank,
    /// Which of those to the same rank.
    lane: usize,
    /// Both ends, for messages, in the direction of what we receive.
    link: String,
    stream: Stream,
    receiver: Receiver,
    transmitter: Transmitter,
    incoming: Incoming,
    inbox: Option<Inbox>,
    readable: bool,
    writable: bool,
    /// The emulated network is busy until then.
    held_until_ns: Option<u64>,
    phase: Phase,
    liveness: Liveness,
    losses: Losses,
    backlog: Backlog,
    looked_at: Duration,
    /// Of the peer's, those that we have answered.
    looks: usize,
    /// Received when we last looked.
    heard_bytes: u64,
}

impl Connection {
    /// To a rank, from the rank named `own`; `checksums`: every frame must carry one; `silence_max`: how long it may be
    /// silent while it is waited for.
    pub fn new(
        peer: &Peer,
        lane: usize,
        own: &str,
        stream: Stream,
        checksums: bool,
        silence_max: Duration,
    ) -> Self {
        let way = stream.ends().map_or_else(String::new, |ends| format!(", {ends}"));
        Self {
            rank: peer.who.rank,
            lane,
            link: format!("{} → {own}{way}", peer.who),
            stream,
            receiver: Receiver::new(checksums),
            transmitter: Transmitter::new(lane, None),
            incoming: Incoming::new(lane),
            inbox: None,
            readable: true,
            writable: true,
            held_until_ns: None,
            phase: Phase::Open,
            liveness: Liveness::new(silence_max, now()),
            losses: Losses::default(),
            backlog: Backlog::default(),
            looked_at: now(),
            looks: 0,
            heard_bytes: 0,
        }
    }

    /// A neighbour's posts come there.
    pub fn with_inbox(mut self, inbox: Option<Inbox>) -> Self {
        self.inbox = inbox;
        self
    }

    /// Over an emulated network.
    pub fn with_pace(mut self, pace: Option<Pace>) -> Self {
        self.transmitter = Transmitter::new(self.lane, pace);
        self
    }

    fn receive(&mut self, core: &Core) -> bool {
        if !self.readable || self.has_ended() {
            return false;
        }
        let peer = core.peer(self.rank);
        let mut arrival = Arrival::new(core, peer, &mut self.incoming);
        match self.receiver.receive(&mut self.stream, &mut arrival, TURN_BYTES) {
            Ok(more) => self.readable = more,
            Err(error) => {
                // What neighbours posted before they ended is theirs to finish.
                self.take_posts(core);
                self.end(core, &error);
            }
        }
        true
    }

    fn transmit(&mut self, core: &Core) -> bool {
        let peer = core.peer(self.rank);
        if !self.writable || self.phase == Phase::Closed {
            return false;
        }
        self.held_until_ns = None;
        let on_sent = |sent: Sent| {
            peer.sent_bytes.fetch_add(sent.bytes as u64, Ordering::Relaxed);
            if sent.program == NO_PROGRAM {
                core.message_sent(sent.op);
            } else if let Some(loaded) = core.programs.get(sent.program)
                && core.failure().is_none()
            {
                core.complete(&loaded, sent.op);
            }
        };
        match self.transmitter.transmit(&mut self.stream, &peer.outgoing, TURN_BYTES, on_sent) {
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
                // The peer may have said why before it closed: hear that first.
                self.readable = true;
                while self.readable && !self.has_ended() {
                    self.receive(core);
                }
                self.end(core, &error.into());
                self.phase = Phase::Closed;
                true
            }
        }
    }

    fn take_posts(&mut self, core: &Core) -> bool {
        let Some(inbox) = &mut self.inbox else { return false };
        let peer = core.peer(self.rank);
        let mut busy = false;
        loop {
            let result = match inbox.take() {
                Ok(None) => return busy,
                Ok(Some(post)) => Arrival::new(core, peer, &mut self.incoming).post(post),
                Err(_) => Err("wrote something into its mailbox that is no post".into()),
            };
            busy = true;
            if let Err(what) = result {
                self.end(core, &LinkError::Violation(what));
                return busy;
            }
        }
    }

    fn end(&mut self, core: &Core, error: &LinkError) {
        if self.has_ended() {
            return;
        }
        self.phase = match error {
            // What cannot be decrypted; our own direction is whole.
            LinkError::Io(cause) if cause.kind() == io::ErrorKind::InvalidData => Phase::Refused,
            LinkError::Closed | LinkError::Io(_) => Phase::Closed,
            LinkError::Frame(_) | LinkError::Damaged { .. } | LinkError::Violation(_) => Phase::Refused,
        };
        let peer = core.peer(self.rank);
        // Once we leave ourselves, a peer that leaves without a word to us owes none.
        if !self.incoming.has_left() && !core.closing.load(Ordering::Acquire) {
            core.fail(match error {
                LinkError::Damaged { frame, damage } => self.damaged(core, frame, *damage),
                // Of a record that cannot be decrypted.
                LinkError::Io(cause) if cause.kind() == io::ErrorKind::InvalidData => {
                    peer.failed(Why::Damaged, None, error)
                }
                LinkError::Closed | LinkError::Io(_) => peer.failed(Why::Lost, None, error),
                LinkError::Frame(_) | LinkError::Violation(_) => peer.failed(Why::Violation, None, error),
            });
        }
    }
}

impl Connection {
    /// Asks a silent peer that is waited for whether it is there; gives it up when it does not answer.
    fn listen(&mut self, core: &Core, now: Duration, heard: bool) {
        let peer = core.peer(self.rank);
        let received_bytes = self.receiver.received_bytes();
        if heard || received_bytes != self.heard_bytes {
            self.heard_bytes = received_bytes;
            self.liveness.handle_arrival(now);
        }
        let looks = peer.looks.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.looks, looks) != looks {
            self.look(peer);
        }
        let open = !self.has_ended() && !self.incoming.has_left() && core.failure().is_none();
        let mut awaited = None;
        let action = self.liveness.poll(now, || {
            awaited = open.then(|| awaited_of(core, peer.who.rank)).flatten();
            awaited.is_some()
        });
        match (action, awaited) {
            (Action::Ask, _) => lock(&peer.outgoing).control_on(self.lane, Frame::Ask, &[]),
            (Action::GiveUp { silence }, Some((location, what))) => {
                let what = format_args!(
                    "has been silent for {:.1} s while {what}: its process is stopped, its host hangs or the network to it \
                     is down (HOCKET_HEARTBEAT_TIMEOUT_S says how long to bear that)",
                    silence.as_secs_f64(),
                );
                core.fail(peer.failed(Why::Silent, location, what));
            }
            (Action::Wait | Action::GiveUp { .. }, _) => {}
        }
    }

    /// Takes note of the connection, and asks for a sign of life, whose way there and back is the next round trip to be seen.
    fn look(&self, peer: &Peer) {
        lock(&peer.seen)[self.lane] = self.stream.info();
        if !self.has_ended() && !peer.has_left() {
            lock(&peer.outgoing).control_on(self.lane, Frame::Ask, &[]);
        }
    }

    /// Bears losses that no queue of ours explains, and keeps our own queues short.
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
        // Where the kernel has no other control, or does not let us, all stays as slow as it was.
        if self.losses.handle_look(&look) {
            self.stream.bear_losses();
        }
        if let Some(buffer) = self.backlog.handle_look(&look) {
            let _: io::Result<()> = self.stream.set_buffer(buffer);
        }
    }

    /// What a user needs to find the faulty part: both ends, and which bytes of what.
    fn damaged(&self, core: &Core, frame: &Frame, damage: Damage) -> Failure {
        let location = match *frame {
            Frame::Data(Data { program, instance, op, .. })
            | Frame::ClearToSend { program, instance, op } => {
                Some(Location { program, launch: instance, op: Some(op) })
            }
            _ => None,
        };
        let what = match *frame {
            Frame::Data(Data { program: NO_PROGRAM, instance, offset_bytes, payload_bytes, .. }) => {
                let end = offset_bytes + u64::from(payload_bytes);
                format!("bytes {offset_bytes}..{end} of message {instance}")
            }
            Frame::Data(Data { program, instance, op, offset_bytes, payload_bytes }) => {
                let label =
                    core.programs.get(program).map_or_else(String::new, |loaded| loaded.label.clone());
                let end = offset_bytes + u64::from(payload_bytes);
                format!(
                    "bytes {offset_bytes}..{end} of `{label}` op {op} (program {program}, launch {instance})"
                )
            }
            Frame::ClearToSend { program, instance, op } => {
                format!("the announcement for op {op} of program {program}, launch {instance},")
            }
            Frame::Offer { send, .. } | Frame::Accept { send, .. } => format!("the offer of message {send}"),
            Frame::Abort { .. } | Frame::Bye => "the peer's last words".into(),
            Frame::Ask | Frame::Alive => "a sign of life".into(),
        };
        let Damage { wanted, found } = damage;
        let what = format!(
            "{}: {what} arrived damaged: CRC32C {found:08x}, sent as {wanted:08x}; \
             check memory, network cards and cables of both hosts",
            self.link
        );
        Failure { who: core.peer(self.rank).who.clone(), why: Why::Damaged, location, what }
    }
}

/// The life of the I/O thread.
pub fn run(core: &Core, poller: &Poller, mut connections: Vec<Connection>, listener: Listener) {
    if let Err(error) = turns(core, poller, &mut connections) {
        core.fail_here(None, format_args!("the I/O thread cannot go on: {error}"));
    }
    drop(listener);
    leave(core, poller, &mut connections);
}

fn turns(core: &Core, poller: &Poller, connections: &mut [Connection]) -> io::Result<()> {
    // Twice in the time after which a silent peer is asked.
    let sleep_max = connections.iter().map(|c| c.liveness.ask_after() / 2).fold(SLEEP_MAX, Duration::min);
    let mut idle_since = now();
    while !core.closing.load(Ordering::Acquire) {
        let mut busy = launch(core);
        let mut mailbox_full = false;
        let now = now();
        for connection in connections.iter_mut() {
            let posts = connection.take_posts(core);
            busy |= posts;
            busy |= connection.receive(core);
            connection.listen(core, now, posts);
            connection.watch(now);
            busy |= connection.transmit(core);
            if let Some(shared) = &core.peer(connection.rank).shared {
                mailbox_full |= shared.flush()?;
            }
        }
        if core.workers == 0 {
            for _ in 0..TURN_TASKS {
                if core.failure().is_some() || !core.work_once() {
                    break;
                }
                busy = true;
            }
        }
        if busy {
            idle_since = now;
        } else if core.meetings.load(Ordering::Relaxed) > 0 && now.saturating_sub(idle_since) < OFFER {
            // Whoever runs meanwhile need not wake us.
            thread::yield_now();
            continue;
        }
        let timeout = match (busy, mailbox_full) {
            (true, _) => Duration::ZERO,
            (false, true) => FULL_MAILBOX_PAUSE,
            (false, false) => held(connections).unwrap_or(sleep_max),
        };
        sleep(core, poller, connections, timeout)?;
    }
    Ok(())
}

/// Starts the programs that were launched.
fn launch(core: &Core) -> bool {
    let mut busy = false;
    loop {
        let next = lock(&core.launches).pop_front();
        let Some(program) = next else { return busy };
        busy = true;
        if let Some(loaded) = core.programs.get(program) {
            core.start(&loaded);
        }
    }
}

/// What is waited for from `rank`: where, if by a program, and in words.
fn awaited_of(core: &Core, rank: Rank) -> Option<(Option<Location>, String)> {
    let of_program = core.programs.find_map(|loaded| {
        let (op, receiving) = loaded.awaited_of(rank)?;
        let what = if receiving { "waits for data from it" } else { "has data for it" };
        let location = loaded.location(Some(op));
        let Location { program, launch, .. } = location;
        let what = format!("`{}` op {op} (program {program}, launch {launch}) {what}", loaded.label);
        Some((Some(location), what))
    });
    of_program.or_else(|| lock(&core.messages).needs(rank).then(|| (None, "a message waits for it".into())))
}

/// The data plane's clock, for timers.
fn now() -> Duration {
    Duration::from_nanos(now_ns())
}

/// How long until the emulated network lets something leave.
fn held(connections: &[Connection]) -> Option<Duration> {
    let until_ns = connections.iter().filter_map(|connection| connection.held_until_ns).min()?;
    Some(Duration::from_nanos(until_ns.saturating_sub(now_ns())).min(SLEEP_MAX))
}

fn sleep(core: &Core, poller: &Poller, connections: &mut [Connection], timeout: Duration) -> io::Result<()> {
    let mut timeout = timeout;
    if !timeout.is_zero() {
        // Whoever adds something after this sees the flag and wakes us; what was added before, we see now.
        core.sleeping.set();
        let idle = lock(&core.launches).is_empty()
            && (core.workers > 0 || !core.has_work() || core.failure().is_some())
            && !core.closing.load(Ordering::Acquire)
            && connections.iter().all(|c| c.is_idle(core));
        if !idle {
            timeout = Duration::ZERO;
        }
    }
    poller.wait(timeout, &core.waker, |ready| {
        let connection = &mut connections[ready.token as usize];
        connection.readable |= ready.readable;
        connection.writable |= ready.writable;
    })?;
    core.sleeping.clear();
    Ok(())
}

impl Connection {
    /// Nothing to do until something happens.
    fn is_idle(&self, core: &Core) -> bool {
        let nothing_to_take = self.has_ended() || self.inbox.as_ref().is_none_or(Inbox::is_empty);
        let cannot_send = self.phase == Phase::Closed || !self.writable || self.held_until_ns.is_some();
        nothing_to_take && (cannot_send || self.has_sent(core))
    }

    /// Nothing waits to be sent.
    fn has_sent(&self, core: &Core) -> bool {
        lock(&core.peer(self.rank).outgoing).is_empty(self.lane)
    }

    /// Nothing comes any more, and nothing is left to say.
    fn is_done(&self, core: &Core) -> bool {
        self.has_ended() && (self.phase == Phase::Closed || self.has_sent(core))
    }

    /// No more frames are taken.
    fn has_ended(&self) -> bool {
        self.phase != Phase::Open
    }
}

/// Says goodbye, flushes, and waits a moment for the others to end their side.
fn leave(core: &Core, poller: &Poller, connections: &mut [Connection]) {
    for connection in connections.iter_mut().filter(|c| !c.has_ended()) {
        lock(&core.peer(connection.rank).outgoing).control_on(connection.lane, Frame::Bye, &[]);
    }
    let deadline = Instant::now() + LINGER;
    let mut shut = vec![false; connections.len()];
    while Instant::now() < deadline && !connections.iter().all(|c| c.is_done(core)) {
        for (connection, shut) in connections.iter_mut().zip(&mut shut) {
            while connection.transmit(core) && connection.writable {}
            while connection.receive(core) && connection.readable && !connection.has_ended() {}
            if connection.has_sent(core) && !*shut && connection.writable && !connection.has_ended() {
                *shut = true;
                if connection.stream.shutdown_write().is_err() {
                    connection.phase = Phase::Closed;
                }
            }
        }
        let waited = poller.wait(Duration::from_millis(10), &core.waker, |ready| {
            let connection = &mut connections[ready.token as usize];
            connection.readable |= ready.readable;
            connection.writable |= ready.writable;
        });
        if waited.is_err() {
            return;
        }
    }
}
