//! Posts between ranks of one host, encoded in the words of a ring's slot.
//!
//! Rings, and the flag for waking the receiver, are those of `hocket_sync::ring`, here in shared memory.

use crate::link::Post;
use crate::memory::Mapping;
pub use hocket_sync::ring::SLOT_WORDS;
use hocket_sync::ring::{Consumer, Producer, Words};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The sleep flag of an arena's owner.
pub type Sleeping = hocket_sync::ring::Sleeping<Mapping>;

impl Words for Mapping {
    fn word(&self, offset_bytes: usize) -> &AtomicU64 {
        self.atomic_u64(offset_bytes)
    }
}

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letter {
    /// A post.
    Post(Post),
    /// An epoch of members begins: whatever follows is of it.
    Epoch(u64),
}

/// Encodes the beginning of an epoch.
pub fn encode_epoch(epoch: u64) -> [u64; SLOT_WORDS] {
    [6 << 32, epoch, 0, 0, 0]
}

/// Encodes a post in the words of a slot; `None` for a post that this kind of link does not have.
pub fn encode(post: Post) -> Option<[u64; SLOT_WORDS]> {
    let join = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    Some(match post {
        Post::Ready { program, instance, op, offset_bytes, len_bytes } => {
            [join(1, program), join(instance, op), offset_bytes, len_bytes, 0]
        }
        Post::Taken { program, instance, op } => [join(2, program), join(instance, op), 0, 0, 0],
        Post::Offer { send, tag, bytes, place: Some(place) } => [join(3, send), tag, place, bytes, 0],
        Post::Given { send } => [join(4, send), 0, 0, 0, 0],
        Post::Brought { program, instance, op, offset_bytes, len_bytes, claims } => {
            [join(5, program), join(instance, op), offset_bytes, len_bytes, claims]
        }
        Post::Posted { .. } | Post::Accept { .. } | Post::Offer { place: None, .. } => return None,
    })
}

fn decode(words: [u64; SLOT_WORDS]) -> Option<Letter> {
    let (program, instance, op) = (words[0] as u32, (words[1] >> 32) as u32, words[1] as u32);
    let post = match words[0] >> 32 {
        1 => Some(Post::Ready { program, instance, op, offset_bytes: words[2], len_bytes: words[3] }),
        2 => Some(Post::Taken { program, instance, op }),
        3 => Some(Post::Offer { send: program, tag: words[1], place: Some(words[2]), bytes: words[3] }),
        4 => Some(Post::Given { send: program }),
        5 => Some(Post::Brought {
            program,
            instance,
            op,
            offset_bytes: words[2],
            len_bytes: words[3],
            claims: words[4],
        }),
        6 => return Some(Letter::Epoch(words[1])),
        _ => None,
    };
    post.map(Letter::Post)
}

/// The sending end, in a peer's arena. One per ordered pair.
#[derive(Debug)]
pub struct Outbox(Producer<Mapping>);

impl Outbox {
    /// In the arena behind `peer`, as the `sender`-th rank of the host.
    pub fn new(peer: &Arc<Mapping>, sender: usize) -> Self {
        Self(Producer::new(peer, sender))
    }

    /// Adds an encoded post; `false` when the ring is full.
    pub fn put(&mut self, words: [u64; SLOT_WORDS]) -> bool {
        self.0.put(words)
    }
}

/// The receiving end, in our own arena.
#[derive(Debug)]
pub struct Inbox(Consumer<Mapping>);

/// A peer wrote something into its ring that is no post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAPost;

impl Inbox {
    /// For posts of the `sender`-th rank of the host.
    pub fn new(own: &Arc<Mapping>, sender: usize) -> Self {
        Self(Consumer::new(own, sender))
    }

    /// Whether a post is waiting.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next letter, if there is one.
    pub fn take(&mut self) -> Result<Option<Letter>, NotAPost> {
        self.0.take().map(|words| decode(words).ok_or(NotAPost)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Arena;
    use hocket_sync::ring::{SLOTS, reserved_bytes};

    /// A lost or reordered post would stall or corrupt an all-reduce within a host.
    #[test]
    fn posts_arrive_in_order_and_a_full_ring_says_so() {
        let arena = Arena::new(reserved_bytes(2)).unwrap();
        let mut outbox = Outbox::new(arena.mapping(), 1);
        let mut inbox = Inbox::new(arena.mapping(), 1);
        let post = |op: usize| Post::Taken { program: 1, instance: 2, op: op as u32 };
        for round in 0..3 {
            let sent =
                (0..=SLOTS).take_while(|&op| outbox.put(encode(post(round * SLOTS + op)).unwrap())).count();
            assert_eq!(sent, SLOTS);
            for op in 0..SLOTS {
                assert_eq!(inbox.take(), Ok(Some(Letter::Post(post(round * SLOTS + op)))));
            }
            assert_eq!(inbox.take(), Ok(None));
        }
    }

    /// Offsets above 4 GiB would be truncated.
    #[test]
    fn places_survive_the_ring() {
        let post =
            Post::Ready { program: 1, instance: 2, op: 3, offset_bytes: 1 << 39, len_bytes: 5_000_000_000 };
        assert_eq!(decode(encode(post).unwrap()), Some(Letter::Post(post)));
        let (offset_bytes, len_bytes, claims) = (1 << 39, 5_000_000_000, 1 << 40);
        let post = Post::Brought { program: 1, instance: 2, op: 3, offset_bytes, len_bytes, claims };
        assert_eq!(decode(encode(post).unwrap()), Some(Letter::Post(post)));
        assert_eq!(decode(encode_epoch(1 << 40)), Some(Letter::Epoch(1 << 40)));
    }
}
