//! The reference link: two ends in one process, deterministic from a seed. It defines what a pushing
//! link promises in as little code as possible; pieces of messages arrive in any order.

use crate::bell::Bell;
use crate::connection::Stream;
use crate::drained::Drained;
use crate::endpoint::{Endpoint, Exchange, Join, Own, Transport};
use crate::identity::Address;
use crate::link::{Link, LinkError, Message, Port, Post, Sent, Sink, Turn};
use crate::poll::{Poller, Readiness};
use hocket_ids::Rank;
use hocket_kernels::cast;
use hocket_protocol::frame::Data;
use hocket_protocol::liveness::{Action, Liveness};
use hocket_protocol::why::Why;
use hocket_protocol::word;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Size of a piece of a message.
const PIECE_BYTES: usize = 4096;
/// Pieces in flight; further ones wait at the sender.
const DIRECTION_PIECES: usize = 64;

/// Everything but pieces, delivered in order.
enum Word {
    Post(Post),
    Abort(Rank, Why, String),
    Ask,
    Alive,
    Bye,
    Epoch(u64),
    Said(word::Word),
}

/// One direction.
#[derive(Default)]
struct Direction {
    /// Queued and not in flight yet, the most urgent first.
    messages: VecDeque<(Message, usize)>,
    words: VecDeque<Word>,
    /// Each with its epoch: pieces keep no order, not even with words.
    pieces: VecDeque<(u64, Data, Vec<u8>)>,
    epoch: u64,
    sent_bytes: u64,
    /// The sender has said goodbye; nothing follows.
    left: bool,
    /// The receiver has received it.
    heard_left: bool,
    /// The sender is gone.
    closed: bool,
}

impl Direction {
    /// Puts pieces of the most urgent messages in flight while there is room; returns whether it did, and which
    /// messages have left.
    fn carry(&mut self) -> (bool, Vec<Sent>) {
        let (mut busy, mut sent) = (false, Vec::new());
        while self.pieces.len() < DIRECTION_PIECES
            && let Some((message, taken)) = self.messages.front_mut()
        {
            let (wire, own) = (message.wire.bytes(), message.dtype.bytes());
            let bytes = PIECE_BYTES.min(message.wire_bytes() - *taken);
            let source = message.region.sub(*taken / wire * own, bytes / wire * own);
            let mut payload = vec![0; bytes];
            cast(message.wire, &mut payload, message.dtype, source.as_bytes());
            let data = Data {
                program: message.program,
                instance: message.instance,
                op: message.peer_op,
                offset_bytes: *taken as u64,
                payload_bytes: bytes as u32,
            };
            self.pieces.push_back((self.epoch, data, payload));
            *taken += bytes;
            busy = true;
            if *taken == message.wire_bytes() {
                let Message { program, instance, op, .. } = *message;
                self.sent_bytes += *taken as u64;
                sent.push(Sent { program, instance, op, bytes: *taken });
                self.messages.pop_front();
            }
        }
        (busy, sent)
    }
}

#[derive(Default)]
struct Pair {
    /// Direction from end 0, and from end 1.
    directions: [Direction; 2],
    random: u64,
    /// Of both ends' threads.
    bells: Vec<Arc<Bell>>,
}

impl Pair {
    /// Marsaglia's xorshift64.
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }
}

/// One end, shared by all threads.
pub struct ReferenceLink {
    own: usize,
    pair: Arc<Mutex<Pair>>,
}

const NAME: &str = "reference";

/// Between two threads of a process; its word is the seed.
pub const TRANSPORT: Transport = Transport {
    name: NAME,
    open: |options, _| {
        let Some(word) = options.word_for(NAME) else { return Ok(None) };
        let seed = word.parse().map_err(io::Error::other)?;
        Ok(Some(Box::new(Reference(seed))))
    },
    needs: None,
};

struct Reference(u64);

/// By number: what one end has made and the other has not joined yet.
static MADE: Mutex<Vec<Option<Arc<Mutex<Pair>>>>> = Mutex::new(Vec::new());

impl Endpoint for Reference {
    fn reaches(&self, _: &Address, _: &Address) -> bool {
        true
    }

    /// The caller makes the pair, and tells its number.
    fn meet(&self, stream: &mut Stream, _: Own<'_>, exchange: Exchange) -> io::Result<Join> {
        let made = || MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut number = [0; 8];
        let (own, pair) = match exchange {
            Exchange::SendFirst => {
                let pair = Arc::new(Mutex::new(Pair { random: self.0 | 1, ..Pair::default() }));
                let mut made = made();
                made.push(Some(Arc::clone(&pair)));
                stream.write_all(&(made.len() - 1).to_le_bytes())?;
                (0, pair)
            }
            Exchange::ReceiveFirst => {
                stream.read_exact(&mut number)?;
                let pair = made().get_mut(usize::from_le_bytes(number)).and_then(Option::take);
                (1, pair.ok_or_else(|| io::Error::other("no such pair"))?)
            }
        };
        Ok(Box::new(move |_, ends| {
            let link = Arc::new(ReferenceLink { own, pair });
            let epoch = ends.terms.epoch;
            link.pair().directions[own].epoch = epoch;
            link.pair().bells.push(Arc::clone(ends.bell));
            let port = ReferencePort {
                link: Arc::clone(&link),
                liveness: Liveness::new(ends.terms.patience, Duration::ZERO),
                drained: Drained::new(epoch),
                current: Some(epoch),
                ended: false,
                heard_left: false,
            };
            Ok((link, Box::new(port), None))
        }))
    }
}

impl ReferenceLink {
    fn pair(&self) -> MutexGuard<'_, Pair> {
        self.pair.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) -> io::Result<()> {
        self.pair().bells.iter().try_for_each(|bell| bell.ring())
    }

    fn put(&self, word: Word) {
        self.pair().directions[self.own].words.push_back(word);
    }
}

impl Link for ReferenceLink {
    fn post(&self, post: Post) -> io::Result<()> {
        match post {
            Post::Posted { .. } | Post::Accept { .. } | Post::Offer { place: None, .. } => {
                self.put(Word::Post(post));
                self.ring()
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn send(&self, message: Message) -> io::Result<()> {
        let mut pair = self.pair();
        let messages = &mut pair.directions[self.own].messages;
        let begun = usize::from(messages.front().is_some_and(|(_, taken)| *taken > 0));
        let mut waiting = messages.iter().skip(begun);
        let at = waiting.position(|(other, _)| other.priority > message.priority);
        let at = at.map_or(messages.len(), |at| at + begun);
        messages.insert(at, (message, 0));
        drop(pair);
        self.ring()
    }

    fn abort(&self, rank: Rank, why: Why, text: &str) {
        self.pair().directions[self.own].messages.retain(|(_, taken)| *taken > 0);
        self.put(Word::Abort(rank, why, text.to_owned()));
    }

    fn say(&self, word: word::Word) -> io::Result<()> {
        self.put(Word::Said(word));
        self.ring()
    }

    fn has_left(&self) -> bool {
        self.pair().directions[1 - self.own].heard_left
    }

    fn sent_bytes(&self) -> u64 {
        self.pair().directions[self.own].sent_bytes
    }
}

/// One end, polled by its owner.
pub struct ReferencePort {
    link: Arc<ReferenceLink>,
    liveness: Liveness,
    drained: Drained,
    /// The epoch whose pieces land.
    current: Option<u64>,
    /// No more is received.
    ended: bool,
    heard_left: bool,
}

impl ReferencePort {
    fn end(&mut self, sink: &mut dyn Sink, error: &LinkError) {
        if !std::mem::replace(&mut self.ended, true) && !self.heard_left {
            sink.ended(None, error);
        }
    }

    fn carry(&mut self, sink: &mut dyn Sink) -> bool {
        let (busy, sent) = self.link.pair().directions[self.link.own].carry();
        for sent in sent {
            sink.sent(sent);
        }
        busy
    }

    /// Receives the next word, or any piece if there is no word; whether there was one.
    fn take(&mut self, sink: &mut dyn Sink) -> Result<bool, LinkError> {
        let from = 1 - self.link.own;
        let mut pair = self.link.pair();
        if let Some(word) = pair.directions[from].words.pop_front() {
            drop(pair);
            match word {
                Word::Post(post) => self.drained.handle_post(post, sink).map_err(LinkError::Violation)?,
                Word::Epoch(epoch) => {
                    self.drained.handle_marker(epoch, sink).map_err(LinkError::Violation)?;
                }
                Word::Abort(rank, why, text) => {
                    sink.aborted(rank, why, &text).map_err(LinkError::Violation)?;
                }
                Word::Said(word) => sink.heard(word).map_err(LinkError::Violation)?,
                Word::Ask => self.link.put(Word::Alive),
                Word::Alive => {}
                Word::Bye => {
                    self.heard_left = true;
                    self.link.pair().directions[from].heard_left = true;
                    sink.left();
                }
            }
            return Ok(true);
        }
        let waiting = pair.directions[from].pieces.len();
        if waiting > 0 {
            let any = pair.below(waiting);
            let piece = pair.directions[from].pieces.swap_remove_back(any);
            drop(pair);
            let Some((epoch, data, bytes)) = piece else { return Ok(false) };
            if self.current != Some(epoch) {
                return Ok(true);
            }
            let landing = sink.landing(&data).map_err(LinkError::Violation)?;
            landing.land.apply(&landing.region, &bytes);
            sink.landed(&data);
            return Ok(true);
        }
        if pair.directions[from].closed { Err(LinkError::Closed) } else { Ok(false) }
    }
}

impl Port for ReferencePort {
    fn watch(&self, _: &Poller, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn handle_ready(&mut self, _: Readiness) {}

    fn poll(&mut self, sink: &mut dyn Sink, now: Duration) -> Turn {
        let mut busy = self.drained.has_kept();
        if let Err(what) = self.drained.deliver(sink) {
            self.end(sink, &LinkError::Violation(what));
        }
        for _ in 0..DIRECTION_PIECES {
            if self.ended {
                break;
            }
            match self.take(sink) {
                Ok(true) => busy = true,
                Ok(false) => break,
                Err(error) => self.end(sink, &error),
            }
        }
        if busy {
            self.liveness.handle_arrival(now);
        }
        let open = !self.ended && !self.heard_left;
        match self.liveness.poll(now, || open && sink.is_awaited()) {
            Action::Ask => self.link.put(Word::Ask),
            Action::GiveUp { silence } => sink.ended(None, &LinkError::Silent { silence }),
            Action::Wait => {}
        }
        Turn { busy: busy | self.carry(sink), again: None }
    }

    fn is_idle(&self) -> bool {
        let pair = self.link.pair();
        let [ours, theirs] = [&pair.directions[self.link.own], &pair.directions[1 - self.link.own]];
        let nothing_comes =
            self.ended || (theirs.words.is_empty() && theirs.pieces.is_empty() && !theirs.closed);
        nothing_comes
            && !self.drained.has_kept()
            && (ours.messages.is_empty() || ours.pieces.len() >= DIRECTION_PIECES)
    }

    fn pause_max(&self) -> Duration {
        self.liveness.ask_after() / 2
    }

    fn stop(&mut self) {
        self.link.pair().directions[self.link.own].messages.clear();
        self.drained.stop();
        self.current = None;
    }

    fn enter(&mut self, epoch: u64) -> io::Result<()> {
        self.stop();
        self.drained.enter(epoch);
        self.current = Some(epoch);
        self.link.pair().directions[self.link.own].epoch = epoch;
        self.link.put(Word::Epoch(epoch));
        self.link.ring()
    }

    fn close(&mut self, sink: &mut dyn Sink) -> bool {
        let own = self.link.own;
        self.carry(sink);
        let mut pair = self.link.pair();
        // A goodbye overtakes no piece.
        if pair.directions[own].messages.is_empty()
            && pair.directions[own].pieces.is_empty()
            && !pair.directions[own].left
        {
            pair.directions[own].left = true;
            pair.directions[own].words.push_back(Word::Bye);
        }
        drop(pair);
        while !self.ended {
            match self.take(sink) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.end(sink, &error),
            }
        }
        self.link.pair().directions[own].left && (self.heard_left || self.ended)
    }
}

impl Drop for ReferencePort {
    fn drop(&mut self) {
        self.link.pair().directions[self.link.own].closed = true;
    }
}
