//! The end of an epoch of members while the job goes on: its waits end, nothing of it starts, what runs ends, and
//! another epoch follows with a core of its own.
//!
//! Only an elastic rank's epochs end so. There, losing a peer ends the epoch and not the job.

use crate::core::Core;
use crate::error::Error;
use crate::failure::Failure;
use std::time::Duration;

impl Core {
    /// The epoch ends, for the first reason that comes; nothing more of it starts.
    pub fn interrupt(&self, reason: &str) {
        if self.halt.begin(reason) {
            self.wake_workers();
            self.note_change();
            // As in `fail`.
            drop(self.bell.waker().wake());
        }
    }

    /// A peer is lost: the epoch ends.
    pub fn note_loss(&self, failure: Failure) {
        let what = failure.what.clone();
        self.halt.note_loss(failure);
        self.interrupt(&what);
    }

    /// Peers that were lost in this epoch.
    pub fn losses(&self) -> Vec<Failure> {
        self.halt.losses()
    }

    /// Whether the epoch has been interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.halt.reason().is_some()
    }

    /// The error of every wait in an epoch that was interrupted.
    pub fn interruption(&self) -> Option<Error> {
        let reason = self.halt.reason()?;
        let what = format!("epoch {} is interrupted: {reason}", self.epoch);
        Some(Error::Interrupted { what, lost: self.losses() })
    }

    /// The caller works on an op of the epoch until [`Self::note_quiet`]; `false`: the epoch has ended, and it must not.
    pub fn note_busy(&self) -> bool {
        let begins = self.halt.note_busy();
        if !begins {
            self.note_change();
        }
        begins
    }

    /// This thread works on no op of the epoch any more, and begins none.
    pub fn note_quiet(&self) {
        self.halt.note_quiet();
        self.note_change();
    }

    /// Whether threads may still be working on ops of it.
    pub fn is_busy(&self) -> bool {
        self.halt.is_busy()
    }

    /// Waits until none is, at most `timeout`.
    pub fn wait_for_quiet(&self, timeout: Duration) {
        self.wait_while(timeout, || self.is_busy());
    }

    /// The I/O thread hands its ports over and ends.
    pub fn retire(&self) {
        self.halt.retire();
        // It looks by itself before long.
        drop(self.bell.waker().wake());
    }

    /// Whether it does.
    pub fn is_retired(&self) -> bool {
        self.halt.is_retired()
    }
}
