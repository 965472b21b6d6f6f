//! A member's shared area: its progress, its current call, and two slots of bytes.
//!
//! One rule orders everything. What is published with barrier *b* lies in slot *b* mod 2; its owner writes it before
//! arriving at *b*, and others read it before arriving at *b* + 1. The owner writes slot *b* again for barrier *b* + 2,
//! after it has passed *b* + 1, so it never meets a reader.

use hocket_wire::claims::{CLAIMS_BYTES, Claims};
use hocket_wire::memory::Region;
use hocket_wire::shm::reach::CARD_WORDS;
use rustix::thread::futex;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// Bytes that a member publishes with one barrier: small enough for all members' to stay in the last-level cache, and
/// large enough to need few barriers, which cost a scheduler's turn each if there are more ranks than cores.
pub const SLOT_BYTES: usize = 1024 * 1024;
/// Length of a published call, in words.
pub const CALL_WORDS: usize = 5;

/// On a cache line of its own: other members spin on it.
const ARRIVED_AT: usize = 0;
/// On a cache line of its own: sleeping members write it.
const SLEEPERS_AT: usize = 64;
const CALLS_AT: usize = 128;
const CALL_BYTES: usize = 64;
/// Words that identify the owner, written once.
const CARD_AT: usize = 256;
/// How many members have left the group: each counts itself in every area, as its last access to it.
const LEFT_AT: usize = 320;
/// In the first member's area: the members' claims on the current reduction.
const CLAIMS_AT: usize = 512;
const SLOTS_AT: usize = 4096;
const RESULTS_AT: usize = SLOTS_AT + 2 * SLOT_BYTES;
/// Bytes of an area, allocated in its owner's arena; only touched pages exist.
pub const AREA_BYTES: usize = RESULTS_AT + 2 * SLOT_BYTES;

/// The area of a member, ours or another's.
#[derive(Clone, Debug)]
pub struct Area(Region);

impl Area {
    /// The area in `region`; `None` when the region is too small.
    pub fn new(region: Region) -> Option<Self> {
        (region.len() >= AREA_BYTES).then_some(Self(region))
    }

    /// The last barrier that its owner arrived at.
    pub fn arrived(&self) -> u32 {
        self.arrived_word().load(Ordering::Acquire)
    }

    /// The calling owner has arrived at `barrier`; wakes sleepers.
    pub fn arrive(&self, barrier: u32) -> io::Result<()> {
        self.arrived_word().store(barrier, Ordering::Release);
        // Either we see the member that is about to sleep, or it sees that we have arrived.
        fence(Ordering::SeqCst);
        if self.sleepers().load(Ordering::Relaxed) > 0 {
            futex::wake(self.arrived_word(), futex::Flags::empty(), i32::MAX as u32)?;
        }
        Ok(())
    }

    /// Sleeps until the owner moves on from `seen`, at most `timeout`.
    pub fn sleep(&self, seen: u32, timeout: Duration) -> io::Result<()> {
        self.sleepers().fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let timeout =
            futex::Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let slept = if self.arrived_word().load(Ordering::Relaxed) == seen {
            futex::wait(self.arrived_word(), futex::Flags::empty(), seen, Some(&timeout))
        } else {
            Ok(())
        };
        self.sleepers().fetch_sub(1, Ordering::Relaxed);
        match slept {
            Ok(())
            | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::TIMEDOUT | rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A member leaves, and looks at this area no more. Each member calls it once.
    pub fn leave(&self) {
        self.left_word().fetch_add(1, Ordering::Release);
    }

    /// How many members have left.
    pub fn left(&self) -> u32 {
        self.left_word().load(Ordering::Acquire)
    }

    pub fn publish_call(&self, barrier: u32, words: [u64; CALL_WORDS]) {
        for (at, word) in words.into_iter().enumerate() {
            self.call_word(barrier, at).store(word, Ordering::Relaxed);
        }
    }

    /// The call published with `barrier`.
    pub fn call(&self, barrier: u32) -> [u64; CALL_WORDS] {
        std::array::from_fn(|at| self.call_word(barrier, at).load(Ordering::Relaxed))
    }

    /// Publishes the owner's identity, before it arrives at any barrier.
    pub fn publish_card(&self, words: [u64; CARD_WORDS]) {
        for (at, word) in words.into_iter().enumerate() {
            self.0.atomic_u64(CARD_AT + at * 8).store(word, Ordering::Relaxed);
        }
    }

    /// The published identity; valid after a barrier.
    pub fn card(&self) -> [u64; CARD_WORDS] {
        std::array::from_fn(|at| self.0.atomic_u64(CARD_AT + at * 8).load(Ordering::Relaxed))
    }

    /// The claims on `bytes` after `barrier`, in this area, which is the first member's.
    pub fn claims(&self, barrier: u32, bytes: usize, members: usize) -> Claims {
        let memory = self.0.sub(CLAIMS_AT + parity(barrier) * CLAIMS_BYTES, CLAIMS_BYTES);
        Claims::new(memory, bytes, members).expect("areas are allocated at cache lines")
    }

    /// Bytes published with `barrier`.
    pub fn slot(&self, barrier: u32, range: Range<usize>) -> &[u8] {
        self.0.slice(within(SLOTS_AT, barrier, range))
    }

    /// The same, writable, for their owner.
    pub fn slot_mut(&self, barrier: u32, range: Range<usize>) -> &mut [u8] {
        self.0.slice_mut(within(SLOTS_AT, barrier, range))
    }

    /// The owner's part of a reduction, published with `barrier`.
    pub fn result(&self, barrier: u32, range: Range<usize>) -> &[u8] {
        self.0.slice(within(RESULTS_AT, barrier, range))
    }

    /// The same, writable, for its owner.
    pub fn result_mut(&self, barrier: u32, range: Range<usize>) -> &mut [u8] {
        self.0.slice_mut(within(RESULTS_AT, barrier, range))
    }

    fn arrived_word(&self) -> &AtomicU32 {
        self.0.atomic_u32(ARRIVED_AT)
    }

    fn sleepers(&self) -> &AtomicU32 {
        self.0.atomic_u32(SLEEPERS_AT)
    }

    fn left_word(&self) -> &AtomicU32 {
        self.0.atomic_u32(LEFT_AT)
    }

    fn call_word(&self, barrier: u32, at: usize) -> &std::sync::atomic::AtomicU64 {
        self.0.atomic_u64(CALLS_AT + parity(barrier) * CALL_BYTES + at * 8)
    }
}

/// # Panics
/// When `range` exceeds the slot.
fn within(first: usize, barrier: u32, range: Range<usize>) -> Range<usize> {
    assert!(range.end <= SLOT_BYTES, "bytes {range:?} of a slot of {SLOT_BYTES}");
    let start = first + parity(barrier) * SLOT_BYTES;
    start + range.start..start + range.end
}

fn parity(barrier: u32) -> usize {
    barrier as usize % 2
}
