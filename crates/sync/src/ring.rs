//! Small messages from one rank to another: one single-producer, single-consumer ring per ordered pair, in memory that
//! both share, and the sleep flag, which tells a sender whether it must wake the receiver.
//!
//! Budget of a message: five relaxed stores and one release store into lines that the consumer reads once. A wake-up
//! (an eventfd write, ~1 µs) is needed only when the receiver sleeps.

use crate::atomic::{AtomicU64, Ordering, fence};
use std::sync::Arc;

/// Capacity of a ring in messages; a sender that finds it full keeps the rest and tries again.
pub const SLOTS: usize = if cfg!(all(test, loom)) { 2 } else { 4096 };
pub const SLOT_WORDS: usize = 5;
const SLOT_BYTES: usize = SLOT_WORDS * 8;
const SLEEPING_AT: usize = 0;
const FIRST_RING_AT: usize = 4096;
const HEAD_AT: usize = 0;
const TAIL_AT: usize = 64;
const SLOTS_AT: usize = 128;
const RING_BYTES: usize = (SLOTS_AT + SLOTS * SLOT_BYTES).next_multiple_of(4096);

/// Bytes of the flag and the rings of `senders` senders at the start of the receiver's memory.
pub const fn reserved_bytes(senders: usize) -> usize {
    FIRST_RING_AT + senders * RING_BYTES
}

/// Memory shared by the ranks of a host.
pub trait Words {
    /// The word at `offset_bytes`, a multiple of eight below [`reserved_bytes`]. All ranks access it only as an atomic.
    fn word(&self, offset_bytes: usize) -> &AtomicU64;
}

/// The sleep flag in its owner's memory.
#[derive(Debug)]
pub struct Sleeping<W>(Arc<W>);

impl<W> Clone for Sleeping<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Words> Sleeping<W> {
    /// The flag of the owner of `words`.
    pub fn new(words: &Arc<W>) -> Self {
        Self(Arc::clone(words))
    }

    /// Marks the owner as about to sleep; it must check all its queues once more after this.
    pub fn set(&self) {
        self.0.word(SLEEPING_AT).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Marks the owner as awake.
    pub fn clear(&self) {
        self.0.word(SLEEPING_AT).store(0, Ordering::Relaxed);
    }

    /// Call after adding to one of the owner's queues: whether the caller must wake it.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let flag = self.0.word(SLEEPING_AT);
        // Writes only to take the flag: a swap that came too late would write as well, and loom, which does not know
        // that such a 0 is older than the next 1, would report a lost wake-up.
        flag.load(Ordering::Relaxed) == 1
            && flag.compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The sending end, in the receiver's memory. One per ordered pair.
#[derive(Debug)]
pub struct Producer<W> {
    words: Arc<W>,
    ring_at: usize,
    tail: u64,
}

impl<W: Words> Producer<W> {
    /// In the memory `words` of a receiver, as its sender number `sender`.
    pub fn new(words: &Arc<W>, sender: usize) -> Self {
        Self { words: Arc::clone(words), ring_at: FIRST_RING_AT + sender * RING_BYTES, tail: 0 }
    }

    /// Adds a message; `false` when the ring is full.
    pub fn put(&mut self, message: [u64; SLOT_WORDS]) -> bool {
        let head = self.words.word(self.ring_at + HEAD_AT).load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) >= SLOTS as u64 {
            return false;
        }
        let slot = self.ring_at + SLOTS_AT + (self.tail as usize % SLOTS) * SLOT_BYTES;
        for (at, value) in message.into_iter().enumerate() {
            self.words.word(slot + at * 8).store(value, Ordering::Relaxed);
        }
        self.tail += 1;
        self.words.word(self.ring_at + TAIL_AT).store(self.tail, Ordering::Release);
        true
    }
}

/// The receiving end, in our own memory.
#[derive(Debug)]
pub struct Consumer<W> {
    words: Arc<W>,
    ring_at: usize,
    head: u64,
}

impl<W: Words> Consumer<W> {
    /// For messages of sender number `sender`.
    pub fn new(words: &Arc<W>, sender: usize) -> Self {
        Self { words: Arc::clone(words), ring_at: FIRST_RING_AT + sender * RING_BYTES, head: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.words.word(self.ring_at + TAIL_AT).load(Ordering::Acquire) == self.head
    }

    /// The next message, if there is one.
    pub fn take(&mut self) -> Option<[u64; SLOT_WORDS]> {
        if self.is_empty() {
            return None;
        }
        let slot = self.ring_at + SLOTS_AT + (self.head as usize % SLOTS) * SLOT_BYTES;
        let message = std::array::from_fn(|at| self.words.word(slot + at * 8).load(Ordering::Relaxed));
        self.head += 1;
        self.words.word(self.ring_at + HEAD_AT).store(self.head, Ordering::Release);
        Some(message)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Notify;
    use loom::thread;
    use std::collections::BTreeMap;

    const SENDERS: usize = 2;

    /// Stands in for shared memory, which loom cannot follow: the words of rings, by offset.
    #[derive(Debug)]
    struct Memory(BTreeMap<usize, AtomicU64>);

    impl Memory {
        fn new() -> Arc<Self> {
            let ring = |sender: usize| {
                let words = (0..SLOTS * SLOT_BYTES / 8).map(|word| SLOTS_AT + word * 8);
                words.chain([HEAD_AT, TAIL_AT]).map(move |at| FIRST_RING_AT + sender * RING_BYTES + at)
            };
            let offsets = (0..SENDERS).flat_map(ring).chain([SLEEPING_AT]);
            Arc::new(Self(offsets.map(|at| (at, AtomicU64::new(0))).collect()))
        }
    }

    impl Words for Memory {
        fn word(&self, offset_bytes: usize) -> &AtomicU64 {
            &self.0[&offset_bytes]
        }
    }

    fn message(at: u64) -> [u64; SLOT_WORDS] {
        [at; SLOT_WORDS]
    }

    /// A message received before all its words are there, or overwritten before it is received, would name the wrong
    /// memory.
    #[test]
    fn messages_are_whole_also_when_slots_are_used_again() {
        loom::model(|| {
            let arena = Memory::new();
            let mut consumer = Consumer::new(&arena, 0);
            let mut producer = Producer::new(&arena, 0);
            let sender = thread::spawn(move || {
                for at in 1..=3 {
                    while !producer.put(message(at)) {
                        thread::yield_now();
                    }
                }
            });
            for at in 1..=3 {
                let taken = loop {
                    match consumer.take() {
                        Some(message) => break message,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(taken, message(at));
            }
            sender.join().unwrap();
        });
    }

    /// The I/O thread must not sleep while a message waits: an all-reduce would stall. Loom reports a sleep that nobody
    /// ends.
    #[test]
    fn no_wake_up_is_lost_between_two_senders_and_the_owner() {
        // All interleavings with at most three forced switches take 2 s, with five 25 s (they pass too), without a
        // bound minutes.
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let arena = Memory::new();
            let waker = Arc::new(Notify::new());
            let senders = [0, 1].map(|sender| {
                let mut producer = Producer::new(&arena, sender);
                let sleeping = Sleeping::new(&arena);
                let waker = Arc::clone(&waker);
                thread::spawn(move || {
                    assert!(producer.put(message(1)));
                    if sleeping.must_wake() {
                        waker.notify();
                    }
                })
            });
            let sleeping = Sleeping::new(&arena);
            let mut consumers = [0, 1].map(|sender| Consumer::new(&arena, sender));
            let mut taken = 0;
            loop {
                for consumer in &mut consumers {
                    taken += usize::from(consumer.take().is_some());
                }
                if taken == SENDERS {
                    break;
                }
                sleeping.set();
                if consumers.iter().all(Consumer::is_empty) {
                    waker.wait();
                }
                sleeping.clear();
            }
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }
}
