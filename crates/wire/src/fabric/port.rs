//! The I/O thread's half of a link over a fabric: what the connection says of pieces, and when these are sent and have landed.

use super::incoming::{Incoming, failed};
use super::link::{FabricLink, Queues};
use super::outgoing::{Outgoing, Trouble};
use crate::connection::{Framed, Lane, Stream, Terms};
use crate::link::{Arrivals, Landing, Link, LinkError, Port, Post, Sent, Sink, Turn};
use crate::poll::{Poller, Readiness};
use crate::shaper::Pace;
use hocket_fabric::FabricError;
use hocket_ids::Rank;
use hocket_protocol::frame::{Data, Frame, NO_PROGRAM};
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long pieces may take that a peer sent before its goodbye.
const LAST_PIECES: Duration = Duration::from_secs(2);

/// The half that the I/O thread polls.
pub struct FabricPort {
    link: Arc<FabricLink>,
    lane: Lane,
    number: u32,
    incoming: Incoming,
    outgoing: Outgoing,
    heard: Heard,
    checksums: bool,
    /// In force here, or ended last.
    epoch: u64,
    silence_max: Duration,
    /// When the last piece left, or began to while none was under way.
    left_at: Option<Duration>,
    /// The number of pieces has been said, before our goodbye.
    said_pieces: bool,
}

/// What words said that concerns the fabric.
#[derive(Default)]
struct Heard {
    sums: Vec<(u64, u32)>,
    /// Pieces that the peer has sent in this epoch.
    pieces: u64,
    /// The epoch that it has begun last.
    epoch: u64,
    /// The peer's goodbye has come; when, once a turn has seen it; and whether the owner knows.
    left: bool,
    left_at: Option<Duration>,
    told: bool,
}

/// Passes words on, and keeps what concerns the fabric.
struct Words<'a> {
    sink: &'a mut dyn Sink,
    link: &'a FabricLink,
    heard: &'a mut Heard,
}

impl Arrivals for Words<'_> {
    fn landing(&mut self, data: &Data) -> Result<Landing, String> {
        if data.payload_bytes > 0 {
            return Err("sent data beside the fabric".into());
        }
        self.sink.landing(data)
    }

    fn landed(&mut self, data: &Data) {
        self.sink.landed(data);
    }

    fn posted(&mut self, post: Post) -> Result<(), String> {
        let key = match post {
            Post::Posted { program, instance, op, tag } => Some(((program, instance, op), tag)),
            Post::Accept { send, receive, tag } => Some(((NO_PROGRAM, receive, send), tag)),
            _ => None,
        };
        if let Some((key, tag)) = key {
            self.link.queues().tags.insert(key, tag);
        }
        let passed = self.sink.posted(post);
        if let (Err(_), Some((key, _))) = (&passed, key) {
            self.link.queues().tags.remove(&key);
        }
        passed
    }

    fn aborted(&mut self, rank: Rank, why: Why, text: &str) -> Result<(), String> {
        self.sink.aborted(rank, why, text)
    }

    fn heard(&mut self, word: Word) -> Result<(), String> {
        self.sink.heard(word)
    }

    fn began(&mut self, epoch: u64) {
        self.heard.epoch = epoch;
        self.sink.began(epoch);
    }

    fn summed(&mut self, tag: u64, crc32c: u32) -> Result<(), String> {
        self.heard.sums.push((tag, crc32c));
        Ok(())
    }

    fn pushed(&mut self, pieces: u64) -> Result<(), String> {
        self.heard.pieces = pieces;
        Ok(())
    }
}

impl Sink for Words<'_> {
    fn sent(&mut self, sent: Sent) {
        self.sink.sent(sent);
    }

    /// Told when the last piece has landed.
    fn left(&mut self) {
        self.heard.left = true;
    }

    fn is_awaited(&mut self) -> bool {
        self.sink.is_awaited()
    }

    fn ended(&mut self, ends: Option<&str>, error: &LinkError) {
        self.sink.ended(ends, error);
    }
}

/// Parts of the port for the poller.
const CONNECTION: u32 = 0;
const FABRIC: u32 = 1;

impl FabricPort {
    /// With the connection to the rank, and its address on the fabric. `in_place`: pieces land where they belong, without
    /// a copy; not where an epoch may end before the job does. `pace` if the network is emulated.
    pub fn new(
        link: Arc<FabricLink>,
        stream: Stream,
        address: &[u8],
        terms: Terms,
        in_place: bool,
        pace: Option<Pace>,
    ) -> Result<Self, FabricError> {
        let (number, to) = link.shared.attach(address)?;
        let Terms { checksums, patience, epoch } = terms;
        Ok(Self {
            lane: Lane::new(0, stream, terms, None),
            number,
            incoming: Incoming::new(number, in_place, checksums),
            outgoing: Outgoing::new(number, to, pace),
            heard: Heard::default(),
            checksums,
            epoch,
            silence_max: patience.silence_max,
            left_at: None,
            said_pieces: false,
            link,
        })
    }

    /// Takes what has ended on the fabric, and posts receives; whether anything moved.
    fn receive(&mut self, sink: &mut dyn Sink, now: Duration) -> Result<bool, LinkError> {
        let shared = Arc::clone(&self.link.shared);
        let ended = shared.poll(self.number, now).map_err(|error| failed(&shared, &error))?;
        let mut busy = !ended.is_empty();
        let mut wrong = None;
        for completion in ended {
            let (operation, outcome) = (completion.operation, completion.outcome);
            let error = match self.outgoing.end(&shared, operation, &outcome) {
                Some(Ok(sent)) => {
                    self.left_at = Some(now);
                    if let Some(sent) = sent {
                        self.link.framed.note_sent(sent);
                        sink.sent(sent);
                    }
                    None
                }
                Some(Err(error)) => Some(failed(&shared, &error)),
                None => self.incoming.end(&shared, sink, operation, outcome).err(),
            };
            wrong = wrong.or(error);
        }
        // All of them have been seen: none would end again.
        if let Some(error) = wrong {
            return Err(error);
        }
        let ended = self.lane.has_ended();
        self.incoming.cancel_dead(&shared, now, self.heard.epoch, ended);
        if ended {
            return Ok(busy);
        }
        let receives = std::mem::take(&mut self.link.queues().receives);
        for receive in receives {
            self.incoming.expect(&shared, receive);
        }
        let mut refused = None;
        busy |= self.incoming.advance(&shared, sink, |receive, tag| {
            refused = self.link.framed.post(receive.announcement(tag)).err();
        })?;
        refused.map_or(Ok(busy), |error| Err(error.into()))
    }

    /// Takes sums, and sends pieces; whether anything moved.
    fn send(&mut self, sink: &mut dyn Sink, now: Duration) -> Result<bool, LinkError> {
        let shared = Arc::clone(&self.link.shared);
        for sum in std::mem::take(&mut self.heard.sums) {
            self.incoming.handle_sum(&shared, sink, sum)?;
        }
        if std::mem::take(&mut self.link.queues().aborted) {
            self.outgoing.drop_messages();
        }
        if self.lane.has_ended() {
            return Ok(false);
        }
        let messages = std::mem::take(&mut self.link.queues().messages);
        for (message, tag) in messages {
            self.outgoing.queue(message, tag);
        }
        let idle = !self.outgoing.is_under_way();
        let framed = &self.link.framed;
        let mut say = |tag, crc32c| framed.control_on(0, Frame::Sum { tag, crc32c });
        let summed = self.checksums.then_some(&mut say as &mut dyn FnMut(u64, u32));
        let busy = self.outgoing.advance(&shared, summed).map_err(|trouble| match trouble {
            Trouble::Fabric(error) => failed(&shared, &error),
            Trouble::Memory(error) => error.into(),
        })?;
        if idle || self.outgoing.held().is_some() {
            self.left_at = Some(now);
        }
        let since = self.left_at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        if self.outgoing.is_under_way() && since > self.silence_max {
            let what = format!("nothing of a message has left for {:.1} s", since.as_secs_f64());
            return Err(LinkError::Fabric { provider: shared.provider().to_owned(), what });
        }
        Ok(busy)
    }

    /// Ends the link because of `error`; words can still be said.
    fn fail(&mut self, sink: &mut dyn Sink, error: &LinkError) {
        self.incoming.stop(&self.link.shared, self.epoch);
        self.outgoing.drop_messages();
        self.lane.end(sink, error);
    }

    fn hear(
        &mut self,
        sink: &mut dyn Sink,
        hear: impl FnOnce(&mut Lane, &Framed, &mut Words<'_>) -> bool,
    ) -> bool {
        let mut words = Words { sink, link: &self.link, heard: &mut self.heard };
        let before = self.lane.has_ended();
        let moved = hear(&mut self.lane, &self.link.framed, &mut words);
        if !before && self.lane.has_ended() && !self.heard.left {
            self.incoming.stop(&self.link.shared, self.epoch);
            self.outgoing.drop_messages();
        }
        moved
    }

    /// Tells the owner of the peer's goodbye, once all of its pieces have landed.
    fn tell_left(&mut self, sink: &mut dyn Sink, now: Duration) {
        if !self.heard.left || self.heard.told {
            return;
        }
        let since = *self.heard.left_at.get_or_insert(now);
        if self.incoming.pieces() >= self.heard.pieces || now.saturating_sub(since) > LAST_PIECES {
            self.heard.told = true;
            sink.left();
        }
    }

    /// One turn of the fabric and the words.
    fn turn(
        &mut self,
        sink: &mut dyn Sink,
        now: Duration,
        hear: impl FnOnce(&mut Lane, &Framed, &mut Words<'_>, bool) -> bool,
    ) -> bool {
        let mut busy = false;
        match self.receive(sink, now) {
            Ok(moved) => busy |= moved,
            Err(error) => self.fail(sink, &error),
        }
        let heard = busy;
        busy |= self.hear(sink, |lane, framed, words| hear(lane, framed, words, heard));
        match self.send(sink, now) {
            Ok(moved) => busy |= moved,
            Err(error) => self.fail(sink, &error),
        }
        self.tell_left(sink, now);
        busy
    }
}

impl Port for FabricPort {
    fn watch(&self, poller: &Poller, number: u32) -> io::Result<()> {
        poller.add(self.lane.fd(), number, CONNECTION)?;
        self.link.shared.watch(poller, number, FABRIC)
    }

    fn handle_ready(&mut self, ready: Readiness) {
        // Whatever the fabric has is looked for in each turn.
        if ready.part == CONNECTION {
            self.lane.handle_ready(ready);
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink, now: Duration) -> Turn {
        let busy = self.turn(sink, now, |lane, framed, words, heard| {
            lane.poll(framed, words, now, heard, &mut |_| Ok(()))
        });
        let (at_once, again) = self.link.shared.pause();
        Turn { busy: busy | at_once, again: again.into_iter().chain(self.outgoing.held()).min() }
    }

    fn is_idle(&self) -> bool {
        let queues = self.link.queues();
        let nothing_queued = queues.receives.is_empty() && queues.messages.is_empty();
        drop(queues);
        (nothing_queued || self.lane.has_ended())
            && self.lane.is_idle(&self.link.framed)
            && self.link.shared.may_sleep()
    }

    fn pause_max(&self) -> Duration {
        self.lane.pause_max()
    }

    fn stop(&mut self) {
        self.link.framed.drop_messages();
        *self.link.queues() = Queues::default();
        self.heard.sums.clear();
        self.lane.stop();
        self.incoming.stop(&self.link.shared, self.epoch);
        self.outgoing.drop_messages();
        self.heard.pieces = 0;
    }

    fn enter(&mut self, epoch: u64) -> io::Result<()> {
        self.stop();
        self.outgoing.enter();
        self.epoch = epoch;
        self.lane.enter(&self.link.framed, epoch);
        Ok(())
    }

    fn close(&mut self, sink: &mut dyn Sink) -> bool {
        let now = Duration::from_nanos(crate::clock::now_ns());
        let messages = self.link.queues().messages.is_empty() && !self.outgoing.is_under_way();
        if !messages && !self.lane.has_ended() {
            self.turn(sink, now, |lane, framed, words, heard| {
                lane.poll(framed, words, now, heard, &mut |_| Ok(()))
            });
            return false;
        }
        if !std::mem::replace(&mut self.said_pieces, true) && !self.lane.has_ended() {
            self.link.framed.control_on(0, Frame::Pushed { pieces: self.outgoing.pieces() });
        }
        let mut done = false;
        self.turn(sink, now, |lane, framed, words, _| {
            done = lane.close(framed, words, &mut |_| Ok(()));
            done
        });
        done && (self.heard.told || !self.heard.left)
    }
}

impl Drop for FabricPort {
    fn drop(&mut self) {
        let mut under_way = self.incoming.take_under_way();
        under_way.extend(self.outgoing.take_under_way());
        self.link.shared.adopt(under_way);
    }
}
