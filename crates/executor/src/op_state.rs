//! What has come of one instruction in its program's current instance: `gate` joins the two sides of a message.

use crate::instruction::{Action, Instruction};
use crate::lock::lock;
use hocket_protocol::extents::{ExtentError, Extents};
use hocket_sync::OutOfTurn;
use hocket_sync::gate::{ANNOUNCED, Gate, RELEASED};
use hocket_sync::meeting::Meeting;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// State of one instruction.
#[derive(Debug, Default)]
pub struct OpState {
    gate: Gate,
    /// The meeting of a collective in place.
    meeting: Option<Meeting>,
    /// Offset of the announced bytes in a neighbour's arena, by parity of the instance.
    offered: [AtomicU64; 2],
    /// Launch count + 1 of the instance whose receive is posted.
    posted: AtomicU32,
    /// Bytes received of it.
    received: AtomicU64,
    /// Ranges received or being received.
    claimed: Mutex<Extents>,
    /// When its dependencies were met.
    ready_ns: AtomicU64,
    /// When it started.
    start_ns: AtomicU64,
    /// Launch count + 1 of the last completed instance.
    done: AtomicU32,
}

impl OpState {
    /// Before its first instance.
    pub fn of(instruction: &Instruction) -> Self {
        let meeting = match &instruction.action {
            Action::InPlace(own) => Some(Meeting::new(own.members.len())),
            _ => None,
        };
        Self { meeting, ..Self::default() }
    }

    /// The dependencies of a message are met; whether the peer is there too.
    pub fn release(&self, instance: u32) -> bool {
        let both = self.gate.note(instance, RELEASED);
        both.expect("an instruction's dependencies are met once per instance")
    }

    /// The peer announced its side of a message; whether ours is ready too. `Err`: it had announced it before.
    pub fn announce(&self, instance: u32) -> Result<bool, OutOfTurn> {
        self.gate.note(instance, ANNOUNCED)
    }

    /// Where the members of a collective meet.
    ///
    /// # Panics
    /// When it is not an all-reduce in place.
    pub fn meeting(&self) -> &Meeting {
        self.meeting.as_ref().expect("a collective in place has a meeting")
    }

    /// Notes where a neighbour's bytes lie; call before [`Self::announce`].
    pub fn offer(&self, instance: u32, offset_bytes: u64) {
        self.offered[(instance & 1) as usize].store(offset_bytes, Ordering::Release);
    }

    /// Where they lie.
    pub fn offered(&self, instance: u32) -> u64 {
        self.offered[(instance & 1) as usize].load(Ordering::Acquire)
    }

    /// A receive is posted: payloads may land from now on.
    pub fn post(&self, instance: u32) {
        self.received.store(0, Ordering::Relaxed);
        lock(&self.claimed).clear();
        self.posted.store(instance + 1, Ordering::Release);
    }

    /// Whether it is posted for `instance`.
    pub fn is_posted(&self, instance: u32) -> bool {
        instance.checked_add(1) == Some(self.posted.load(Ordering::Acquire))
    }

    /// Bytes `start..end` of the posted receive are about to arrive: none of them may arrive again.
    pub fn claim(&self, start: u64, end: u64) -> Result<(), ExtentError> {
        lock(&self.claimed).claim(start, end)
    }

    /// All of the receive has arrived: nothing more may land.
    pub fn close(&self) {
        self.posted.store(0, Ordering::Release);
    }

    /// `bytes` more landed; returns the sum.
    pub fn land(&self, bytes: u64) -> u64 {
        self.received.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Notes when it became ready.
    pub fn note_ready(&self, now_ns: u64) {
        self.ready_ns.store(now_ns, Ordering::Relaxed);
        self.start_ns.store(0, Ordering::Relaxed);
    }

    /// Notes when it started, the first time.
    pub fn note_start(&self, now_ns: u64) {
        if self.start_ns.load(Ordering::Relaxed) == 0 {
            self.start_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// When it was ready and when it started.
    pub fn times(&self) -> (u64, u64) {
        let ready = self.ready_ns.load(Ordering::Relaxed);
        (ready, self.start_ns.load(Ordering::Relaxed).max(ready))
    }

    /// It is complete.
    pub fn note_done(&self, instance: u32) {
        self.done.store(instance + 1, Ordering::Release);
    }

    /// Launch count + 1 of the last completed instance.
    pub fn done(&self) -> u32 {
        self.done.load(Ordering::Acquire)
    }

    /// Whether `instance` is complete.
    pub fn is_done(&self, instance: u32) -> bool {
        instance.checked_add(1) == Some(self.done())
    }
}
