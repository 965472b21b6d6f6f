//! Small messages between co-located ranks: one single-producer, single-consumer ring per ordered pair, in the
//! receiver's arena, and the flag that says whether the receiver must be woken.
//!
//! Budget of a post: five relaxed stores and one release store into lines that the consumer reads once; a wake-up
//! (an eventfd write, ~1 µs) only when the receiver sleeps.

#[cfg(not(all(test, loom)))]
use crate::memory::Mapping;
#[cfg(all(test, loom))]
use loom::sync::atomic::fence;
#[cfg(all(test, loom))]
use loom_tests::Mapping;
use std::sync::Arc;
use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::fence;

/// Posts that a ring holds; a sender that finds it full keeps the rest and tries again.
const SLOTS: usize = if cfg!(all(test, loom)) { 2 } else { 4096 };
const WORDS: usize = 5;
const SLOT_BYTES: usize = WORDS * 8;
const SLEEPING_AT: usize = 0;
const FIRST_RING_AT: usize = 4096;
const HEAD_AT: usize = 0;
const TAIL_AT: usize = 64;
const SLOTS_AT: usize = 128;
const RING_BYTES: usize = (SLOTS_AT + SLOTS * SLOT_BYTES).next_multiple_of(4096);

/// Bytes that the mailboxes of `local_world` co-located ranks take at the start of an arena.
pub const fn reserved_bytes(local_world: usize) -> usize {
    FIRST_RING_AT + local_world * RING_BYTES
}

/// What one rank tells another about a message between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// The bytes of the addressee's receive `op` lie at `offset_bytes` of the sender's arena.
    Ready {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's receive instruction.
        op: u32,
        /// In the sender's arena.
        offset_bytes: u64,
        /// Of the message.
        len_bytes: u64,
    },
    /// The bytes of the sender's collective in place lie at `offset_bytes` of its arena.
    Brought {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's instruction.
        op: u32,
        /// In the sender's arena.
        offset_bytes: u64,
        /// Of the sender's bucket.
        len_bytes: u64,
        /// Where the members' claims lie in the sender's arena, if it is the first member.
        claims: u64,
    },
    /// The sender has a message of no program; its bytes lie at `place` of the sender's arena.
    Offer {
        /// Its number of the send.
        send: u32,
        /// What the receive must have, too.
        tag: u64,
        /// In the sender's arena.
        place: u64,
        /// Of the message.
        bytes: u64,
    },
    /// The bytes of that message have been taken.
    Given {
        /// The addressee's number of the send.
        send: u32,
    },
    /// The bytes of the addressee's send `op` have been taken: they may be written again.
    Taken {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's send instruction.
        op: u32,
    },
}

impl Post {
    fn encode(self) -> [u64; WORDS] {
        let join = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        match self {
            Self::Ready { program, instance, op, offset_bytes, len_bytes } => {
                [join(1, program), join(instance, op), offset_bytes, len_bytes, 0]
            }
            Self::Taken { program, instance, op } => [join(2, program), join(instance, op), 0, 0, 0],
            Self::Offer { send, tag, place, bytes } => [join(3, send), tag, place, bytes, 0],
            Self::Given { send } => [join(4, send), 0, 0, 0, 0],
            Self::Brought { program, instance, op, offset_bytes, len_bytes, claims } => {
                [join(5, program), join(instance, op), offset_bytes, len_bytes, claims]
            }
        }
    }

    fn decode(words: [u64; WORDS]) -> Option<Self> {
        let (program, instance, op) = (words[0] as u32, (words[1] >> 32) as u32, words[1] as u32);
        match words[0] >> 32 {
            1 => Some(Self::Ready { program, instance, op, offset_bytes: words[2], len_bytes: words[3] }),
            2 => Some(Self::Taken { program, instance, op }),
            3 => Some(Self::Offer { send: program, tag: words[1], place: words[2], bytes: words[3] }),
            4 => Some(Self::Given { send: program }),
            5 => Some(Self::Brought {
                program,
                instance,
                op,
                offset_bytes: words[2],
                len_bytes: words[3],
                claims: words[4],
            }),
            _ => None,
        }
    }
}

/// The flag of an arena whose owner sleeps.
#[derive(Clone, Debug)]
pub struct Sleeping(Arc<Mapping>);

impl Sleeping {
    /// Of the arena behind `mapping`.
    pub fn new(mapping: &Arc<Mapping>) -> Self {
        Self(Arc::clone(mapping))
    }

    /// The owner is about to sleep; it must look at all its queues once more after this.
    pub fn set(&self) {
        self.0.atomic_u64(SLEEPING_AT).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The owner is awake.
    pub fn clear(&self) {
        self.0.atomic_u64(SLEEPING_AT).store(0, Ordering::Relaxed);
    }

    /// After putting something into a queue of the owner: whether the caller must wake it.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let flag = self.0.atomic_u64(SLEEPING_AT);
        // Writes only to take the flag: a swap that came too late would write as well, and loom, which does not know that
        // such a 0 is older than the next 1, would report a lost wake-up.
        flag.load(Ordering::Relaxed) == 1
            && flag.compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The sending end, in a peer's arena. One per ordered pair.
#[derive(Debug)]
pub struct Outbox {
    peer: Arc<Mapping>,
    ring_at: usize,
    tail: u64,
}

impl Outbox {
    /// Into the arena behind `peer`, where we are the `sender`-th rank of the host.
    pub fn new(peer: &Arc<Mapping>, sender: usize) -> Self {
        Self { peer: Arc::clone(peer), ring_at: FIRST_RING_AT + sender * RING_BYTES, tail: 0 }
    }

    /// Puts a post; `false` when the ring is full.
    pub fn put(&mut self, post: Post) -> bool {
        let head = self.peer.atomic_u64(self.ring_at + HEAD_AT).load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) >= SLOTS as u64 {
            return false;
        }
        let slot = self.ring_at + SLOTS_AT + (self.tail as usize % SLOTS) * SLOT_BYTES;
        for (at, value) in post.encode().into_iter().enumerate() {
            self.peer.atomic_u64(slot + at * 8).store(value, Ordering::Relaxed);
        }
        self.tail += 1;
        self.peer.atomic_u64(self.ring_at + TAIL_AT).store(self.tail, Ordering::Release);
        true
    }
}

/// The receiving end, in our own arena.
#[derive(Debug)]
pub struct Inbox {
    own: Arc<Mapping>,
    ring_at: usize,
    head: u64,
}

/// A peer wrote something into its ring that is no post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAPost;

impl Inbox {
    /// For posts of the `sender`-th rank of the host.
    pub fn new(own: &Arc<Mapping>, sender: usize) -> Self {
        Self { own: Arc::clone(own), ring_at: FIRST_RING_AT + sender * RING_BYTES, head: 0 }
    }

    /// Whether a post waits.
    pub fn is_empty(&self) -> bool {
        self.own.atomic_u64(self.ring_at + TAIL_AT).load(Ordering::Acquire) == self.head
    }

    /// The next post, if one waits.
    pub fn take(&mut self) -> Result<Option<Post>, NotAPost> {
        if self.is_empty() {
            return Ok(None);
        }
        let slot = self.ring_at + SLOTS_AT + (self.head as usize % SLOTS) * SLOT_BYTES;
        let words = std::array::from_fn(|at| self.own.atomic_u64(slot + at * 8).load(Ordering::Relaxed));
        self.head += 1;
        self.own.atomic_u64(self.ring_at + HEAD_AT).store(self.head, Ordering::Release);
        Post::decode(words).map(Some).ok_or(NotAPost)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::Arena;

    /// A lost or reordered post would stall or corrupt an all-reduce within a host.
    #[test]
    fn posts_arrive_in_order_and_a_full_ring_says_so() {
        let arena = Arena::new(reserved_bytes(2)).unwrap();
        let mut outbox = Outbox::new(arena.mapping(), 1);
        let mut inbox = Inbox::new(arena.mapping(), 1);
        let post = |op: usize| Post::Taken { program: 1, instance: 2, op: op as u32 };
        for round in 0..3 {
            let sent = (0..=SLOTS).take_while(|&op| outbox.put(post(round * SLOTS + op))).count();
            assert_eq!(sent, SLOTS);
            for op in 0..SLOTS {
                assert_eq!(inbox.take(), Ok(Some(post(round * SLOTS + op))));
            }
            assert_eq!(inbox.take(), Ok(None));
        }
    }

    /// Offsets above 4 GiB must not be cut.
    #[test]
    fn places_survive_the_ring() {
        let post =
            Post::Ready { program: 1, instance: 2, op: 3, offset_bytes: 1 << 39, len_bytes: 5_000_000_000 };
        assert_eq!(Post::decode(post.encode()), Some(post));
        let (offset_bytes, len_bytes, claims) = (1 << 39, 5_000_000_000, 1 << 40);
        let post = Post::Brought { program: 1, instance: 2, op: 3, offset_bytes, len_bytes, claims };
        assert_eq!(Post::decode(post.encode()), Some(post));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Notify;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;
    use std::collections::BTreeMap;

    const SENDERS: usize = 2;

    /// Stands in for shared memory, which loom cannot follow: the words that mailboxes use, by offset.
    #[derive(Debug)]
    pub struct Mapping(BTreeMap<usize, AtomicU64>);

    impl Mapping {
        fn new() -> Arc<Self> {
            let ring = |sender: usize| {
                let words = (0..SLOTS * SLOT_BYTES / 8).map(|word| SLOTS_AT + word * 8);
                words.chain([HEAD_AT, TAIL_AT]).map(move |at| FIRST_RING_AT + sender * RING_BYTES + at)
            };
            let offsets = (0..SENDERS).flat_map(ring).chain([SLEEPING_AT]);
            Arc::new(Self(offsets.map(|at| (at, AtomicU64::new(0))).collect()))
        }

        pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
            &self.0[&offset]
        }
    }

    fn post(at: u32) -> Post {
        Post::Ready { program: at, instance: at, op: at, offset_bytes: at.into(), len_bytes: at.into() }
    }

    /// A post taken before all its words are there, or overwritten before it is taken, would name the wrong memory.
    #[test]
    fn posts_are_whole_also_when_slots_are_used_again() {
        loom::model(|| {
            let arena = Mapping::new();
            let mut inbox = Inbox::new(&arena, 0);
            let mut outbox = Outbox::new(&arena, 0);
            let sender = thread::spawn(move || {
                for at in 1..=3 {
                    while !outbox.put(post(at)) {
                        thread::yield_now();
                    }
                }
            });
            for at in 1..=3 {
                let taken = loop {
                    match inbox.take().unwrap() {
                        Some(post) => break post,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(taken, post(at));
            }
            sender.join().unwrap();
        });
    }

    /// The I/O thread must not sleep past a post: an all-reduce would stall. Loom reports a sleep that nobody ends.
    #[test]
    fn no_wake_up_is_lost_between_two_senders_and_the_owner() {
        // All orders with at most three forced switches take 2 s, with five 25 s (they pass too), without a bound minutes.
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let arena = Mapping::new();
            let waker = Arc::new(Notify::new());
            let senders = [0, 1].map(|sender| {
                let mut outbox = Outbox::new(&arena, sender);
                let sleeping = Sleeping::new(&arena);
                let waker = Arc::clone(&waker);
                thread::spawn(move || {
                    assert!(outbox.put(post(1)));
                    if sleeping.must_wake() {
                        waker.notify();
                    }
                })
            });
            let sleeping = Sleeping::new(&arena);
            let mut inboxes = [0, 1].map(|sender| Inbox::new(&arena, sender));
            let mut taken = 0;
            loop {
                for inbox in &mut inboxes {
                    taken += usize::from(inbox.take().unwrap().is_some());
                }
                if taken == SENDERS {
                    break;
                }
                sleeping.set();
                if inboxes.iter().all(Inbox::is_empty) {
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
