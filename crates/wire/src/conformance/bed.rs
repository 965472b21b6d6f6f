//! Two ends of a link in one thread, with as much of an executor as a message needs.

use crate::bell::{Bell, reserved_bytes};
use crate::clock::now_ns;
use crate::link::{
    Arrivals, Cards, Land, Landing, Link, LinkError, Message, Port, Post, Receive as LinkReceive, Sent, Sink,
};
use crate::memory::{Allocation, Arena, Region};
use crate::poll::{Poller, Waker};
use crate::take::take;
use hocket_ids::Rank;
use hocket_kernels::{DType, cast};
use hocket_protocol::extents::Extents;
use hocket_protocol::frame::Data;
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The deadline of every wait.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a rank may be silent while another waits for it.
pub const SILENCE_MAX: Duration = Duration::from_secs(4);
/// The epoch of members for which links are opened.
pub const FIRST: u64 = 1;
/// The receivers' contents before anything lands.
const BEFORE: f32 = 3.0;

pub type Halves = (Arc<dyn Link>, Box<dyn Port>);

/// Two ranks' memory and bells, and the link between them.
pub struct Pair {
    memory: [Arc<Arena>; 2],
    bells: [Arc<Bell>; 2],
    halves: [Halves; 2],
}

impl Pair {
    pub fn new(link: impl FnOnce(&[Arc<Arena>; 2], &[Arc<Bell>; 2]) -> [Halves; 2]) -> Self {
        let arenas = [0, 1].map(|_| Arena::new(reserved_bytes(2)).unwrap());
        let bells = [0, 1].map(|own| Arc::new(Bell::new(arenas[own].mapping(), Waker::new().unwrap())));
        let halves = link(&arenas, &bells);
        Self { memory: arenas, bells, halves }
    }
}

struct Send {
    memory: Allocation,
    elements: usize,
    wire: DType,
    priority: u64,
}

struct Receive {
    memory: Allocation,
    elements: usize,
    land: Land,
    wire: DType,
    claimed: Extents,
    received: usize,
    complete: bool,
}

impl Receive {
    fn region(&self) -> Region {
        self.memory.region().sub(0, self.elements * 4)
    }
}

/// The events at an end, and its side of the messages.
pub struct Taker {
    link: Arc<dyn Link>,
    sends: HashMap<u32, Send>,
    receives: HashMap<u32, Receive>,
    /// Ops of posts that belong to no message here.
    pub posts: Vec<u32>,
    /// Messages whose receive was posted, or whose bytes were.
    pub handed_over: usize,
    /// Ops of pieces as they landed.
    pub order: Vec<u32>,
    /// Bytes that landed.
    pub landed: usize,
    pub sent: Vec<u32>,
    pub aborted: Option<(Rank, Why, String)>,
    pub heard: Vec<Word>,
    pub left: usize,
    pub awaited: bool,
    pub refuses: bool,
    pub ended: Vec<(Why, String)>,
}

impl Taker {
    pub fn is_complete(&self, op: u32) -> bool {
        self.receives.get(&op).is_some_and(|receive| receive.complete)
    }
}

impl Arrivals for Taker {
    fn landing(&mut self, data: &Data) -> Result<Landing, String> {
        let receive = self.receives.get_mut(&data.op).filter(|_| !self.refuses).ok_or("refused")?;
        let (start, bytes) = (data.offset_bytes as usize, data.payload_bytes as usize);
        let claimed = receive.claimed.claim(start as u64, (start + bytes) as u64);
        claimed.map_err(|why| format!("bytes that {why}"))?;
        let (at, len) = (start / receive.wire.bytes(), bytes / receive.wire.bytes());
        Ok(Landing { region: receive.region().sub(at * 4, len * 4), land: receive.land })
    }

    fn landed(&mut self, data: &Data) {
        self.landed += data.payload_bytes as usize;
        self.order.push(data.op);
        let receive = self.receives.get_mut(&data.op).unwrap();
        receive.received += data.payload_bytes as usize;
        receive.complete = receive.received == receive.elements * receive.wire.bytes();
    }

    fn posted(&mut self, post: Post) -> Result<(), String> {
        match post {
            Post::Posted { program, instance, op, .. } => {
                let Some(send) = self.sends.get(&op) else {
                    self.posts.push(op);
                    return Ok(());
                };
                self.handed_over += 1;
                let region = send.memory.region().sub(0, send.elements * 4);
                let (priority, dtype, wire) = (send.priority, DType::F32, send.wire);
                let cards = Cards::ALL;
                let message =
                    Message { priority, program, instance, op, peer_op: op, region, dtype, wire, cards };
                self.link.send(message).map_err(|error| error.to_string())
            }
            Post::Ready { program, instance, op, offset_bytes, len_bytes } => {
                let receive = self.receives.get_mut(&op).filter(|_| !self.refuses).ok_or("refused")?;
                let source = Region::new(self.link.memory().unwrap(), offset_bytes, len_bytes);
                let landing = Landing { region: receive.region(), land: receive.land };
                take(&landing, DType::F32, &source.ok_or("outside")?, 0);
                receive.complete = true;
                self.order.push(op);
                let taken = Post::Taken { program, instance, op };
                self.link.post(taken).map_err(|error| error.to_string())
            }
            Post::Taken { op, .. } if self.sends.contains_key(&op) => {
                self.sent.push(op);
                Ok(())
            }
            Post::Taken { op, .. } => {
                self.posts.push(op);
                Ok(())
            }
            _ => Err("an unexpected post".into()),
        }
    }

    fn aborted(&mut self, rank: Rank, why: Why, text: &str) -> Result<(), String> {
        self.aborted = Some((rank, why, text.into()));
        Ok(())
    }

    fn heard(&mut self, word: Word) -> Result<(), String> {
        assert_eq!(self.left, 0, "a word after the goodbye");
        self.heard.push(word);
        Ok(())
    }
}

impl Sink for Taker {
    fn sent(&mut self, sent: Sent) {
        self.sent.push(sent.op);
    }

    fn left(&mut self) {
        self.left += 1;
    }

    fn is_awaited(&mut self) -> bool {
        self.awaited
    }

    fn ended(&mut self, _: Option<&str>, error: &LinkError) {
        self.ended.push((error.why(), error.to_string()));
    }
}

/// One end.
pub struct End {
    pub link: Arc<dyn Link>,
    pub port: Box<dyn Port>,
    pub taker: Taker,
    pub bell: Arc<Bell>,
    arena: Arc<Arena>,
    poller: Poller,
}

impl End {
    fn new(arena: Arc<Arena>, bell: Arc<Bell>, (link, port): Halves) -> Self {
        let poller = Poller::new(bell.waker()).unwrap();
        port.watch(&poller, 5).unwrap();
        let taker = Taker {
            link: Arc::clone(&link),
            sends: HashMap::new(),
            receives: HashMap::new(),
            posts: Vec::new(),
            handed_over: 0,
            order: Vec::new(),
            landed: 0,
            sent: Vec::new(),
            aborted: None,
            heard: Vec::new(),
            left: 0,
            awaited: false,
            refuses: false,
            ended: Vec::new(),
        };
        Self { link, port, taker, bell, arena, poller }
    }

    /// Registered memory for this many elements.
    pub fn memory(&self, bytes: usize) -> Allocation {
        self.arena.allocate(bytes).unwrap()
    }

    fn poll(&mut self, now: Duration) -> bool {
        let Self { port, taker, poller, bell, .. } = self;
        let timeout = Duration::ZERO;
        let watched = poller.wait(timeout, bell.waker(), |ready| {
            assert_eq!(ready.link, 5);
            port.handle_ready(ready);
        });
        watched.unwrap();
        port.poll(taker, now).busy
    }

    fn close(&mut self) -> bool {
        let Self { port, taker, poller, bell, .. } = self;
        poller.wait(Duration::ZERO, bell.waker(), |ready| port.handle_ready(ready)).unwrap();
        port.close(taker)
    }

    /// Polls this end alone until a condition holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        let start = Duration::from_nanos(now_ns());
        while !holds(self) {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            self.poll(start);
        }
    }
}

/// Both ends, and a clock that the test moves.
pub struct Bed {
    pub ends: [End; 2],
    pub clock: Duration,
    /// By op: the end that sends.
    from: HashMap<u32, usize>,
}

impl Bed {
    pub fn new(pair: Pair) -> Self {
        let Pair { memory, bells, halves } = pair;
        let ends = memory.into_iter().zip(bells).zip(halves);
        let mut ends = ends.map(|((arena, bell), halves)| End::new(arena, bell, halves));
        let ends = [ends.next().unwrap(), ends.next().unwrap()];
        Self { ends, clock: Duration::from_nanos(now_ns()), from: HashMap::new() }
    }

    /// Starts a message: the end that starts it posts.
    pub fn message(&mut self, from: usize, op: u32, elements: usize, wire: DType, land: Land, priority: u64) {
        let (source, sink) = (self.ends[from].memory(elements * 4), self.ends[1 - from].memory(elements * 4));
        for (at, bytes) in source.region().as_bytes_mut()[..elements * 4].chunks_exact_mut(4).enumerate() {
            bytes.copy_from_slice(&value(op, at).to_ne_bytes());
        }
        for bytes in sink.region().as_bytes_mut()[..elements * 4].chunks_exact_mut(4) {
            bytes.copy_from_slice(&BEFORE.to_ne_bytes());
        }
        let len_bytes = (elements * 4) as u64;
        let offset_bytes = source.region().arena_offset();
        self.from.insert(op, from);
        self.ends[from].taker.sends.insert(op, Send { memory: source, elements, wire, priority });
        let claimed = Extents::default();
        let receive = Receive { memory: sink, elements, land, wire, claimed, received: 0, complete: false };
        self.ends[1 - from].taker.receives.insert(op, receive);
        let (program, instance) = (1, 2);
        if self.ends[from].link.memory().is_some() {
            self.ends[from].taker.handed_over += 1;
            let post = Post::Ready { program, instance, op, offset_bytes, len_bytes };
            self.ends[from].link.post(post).unwrap();
        } else {
            let bytes = (elements * wire.bytes()) as u64;
            let receive = LinkReceive { program, instance, op, peer_op: op, bytes };
            self.ends[1 - from].link.invite(receive).unwrap();
        }
    }

    /// One turn of an end; whether it was busy.
    pub fn poll_end(&mut self, end: usize) -> bool {
        let now = self.clock;
        self.ends[end].poll(now)
    }

    /// Whether end 0 has queued this many messages, once the posts of end 1 are in flight. The turn does not move the
    /// messages that it queues.
    pub fn hands_over(&mut self, messages: usize) -> bool {
        self.poll_end(1);
        self.ends[0].taker.handed_over == messages
    }

    /// Turns of both ends until a condition holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            self.poll_end(0);
            self.poll_end(1);
        }
    }

    /// Turns of both ends until nothing moves for a moment.
    pub fn rest(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            let busy = self.poll_end(0) | self.poll_end(1);
            quiet = if busy { 0 } else { quiet + 1 };
            if !busy {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    pub fn is_complete(&self, mut ops: Range<u32>) -> bool {
        ops.all(|op| self.ends[1 - self.from[&op]].taker.is_complete(op))
    }

    /// A message's destination, as it is now.
    pub fn bytes_of(&self, op: u32) -> Vec<u8> {
        self.ends[1 - self.from[&op]].taker.receives[&op].region().as_bytes().to_vec()
    }

    /// Asserts that all elements of a message are right.
    pub fn check(&self, op: u32) {
        let receive = &self.ends[1 - self.from[&op]].taker.receives[&op];
        let sent: Vec<u8> = (0..receive.elements).flat_map(|at| value(op, at).to_ne_bytes()).collect();
        let mut wire = vec![0; receive.elements * receive.wire.bytes()];
        cast(receive.wire, &mut wire, DType::F32, &sent);
        let mut crossed = vec![0; sent.len()];
        cast(DType::F32, &mut crossed, receive.wire, &wire);
        let before = if matches!(receive.land, Land::Reduce { .. }) { BEFORE } else { 0.0 };
        let elements = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
        };
        let wanted: Vec<f32> = elements(&crossed).into_iter().map(|element| before + element).collect();
        assert!(elements(receive.region().as_bytes()) == wanted, "message {op} arrived otherwise");
    }

    /// End `at` dies: its memory stays, its process does nothing more. Returns the other end.
    pub fn kill(self, victim: usize) -> End {
        let [one, other] = self.ends;
        let (dead, survivor) = if victim == 0 { (one, other) } else { (other, one) };
        drop(dead);
        survivor
    }

    /// End `at` leaves until its goodbye has reached the other end.
    pub fn say_goodbye(&mut self, at: usize) {
        let deadline = Instant::now() + DEADLINE;
        while self.ends[1 - at].taker.left == 0 {
            assert!(Instant::now() < deadline, "waited in vain for the goodbye");
            self.ends[at].close();
            self.poll_end(1 - at);
        }
    }

    /// Both ends leave; each is gone when it is done. Returns their events.
    pub fn part(self) -> [Taker; 2] {
        let deadline = Instant::now() + DEADLINE;
        let mut ends = self.ends.map(Some);
        let mut takers = [None, None];
        while takers.iter().any(Option::is_none) {
            assert!(Instant::now() < deadline, "waited in vain for the other end");
            for (end, taker) in ends.iter_mut().zip(&mut takers) {
                if let Some(End { taker: heard, .. }) = end.take_if(End::close) {
                    *taker = Some(heard);
                }
            }
        }
        takers.map(Option::unwrap)
    }
}

/// Element `at` of a message: small integers, which every type holds exactly.
fn value(op: u32, at: usize) -> f32 {
    ((at * 7 + op as usize) % 251) as f32
}
