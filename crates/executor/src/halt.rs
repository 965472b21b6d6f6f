//! How an epoch of members ends while the job goes on; what follows from it is in `interruption.rs`.

use crate::failure::Failure;
use crate::lock::lock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock};

/// How far an epoch's end has come.
#[derive(Debug)]
pub struct Halt {
    /// Why the epoch was interrupted.
    reason: OnceLock<String>,
    /// Peers that were lost in it, in that order.
    losses: Mutex<Vec<Failure>>,
    /// Threads, and copies of devices, that may still be working on an op of it.
    busy: AtomicUsize,
    /// Its I/O thread hands over.
    retired: AtomicBool,
}

impl Halt {
    /// Of an epoch with this many threads.
    pub fn new(threads: usize) -> Self {
        let (reason, losses) = (OnceLock::new(), Mutex::default());
        Self { reason, losses, busy: AtomicUsize::new(threads), retired: AtomicBool::new(false) }
    }

    /// Notes why the epoch ends; whether this is the first reason.
    pub fn begin(&self, reason: &str) -> bool {
        let first = self.reason.set(reason.to_owned()).is_ok();
        // As in `note_busy`.
        fence(Ordering::SeqCst);
        first
    }

    /// The first reason.
    pub fn reason(&self) -> Option<&String> {
        self.reason.get()
    }

    /// Notes the loss of a peer.
    pub fn note_loss(&self, failure: Failure) {
        lock(&self.losses).push(failure);
    }

    /// All losses.
    pub fn losses(&self) -> Vec<Failure> {
        lock(&self.losses).clone()
    }

    /// The caller works on an op of the epoch from now on, unless that has ended; returns whether it does.
    pub fn note_busy(&self) -> bool {
        self.busy.fetch_add(1, Ordering::AcqRel);
        // Either the epoch's end is seen here, or whoever ended it sees that this caller is busy.
        fence(Ordering::SeqCst);
        let begins = self.reason().is_none();
        if !begins {
            self.note_quiet();
        }
        begins
    }

    /// A thread works on no op of the epoch any more.
    pub fn note_quiet(&self) {
        self.busy.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether threads may still be working on ops of it.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// The I/O thread hands its ports over.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Whether it does.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}
