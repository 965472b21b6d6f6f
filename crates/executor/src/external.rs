//! Collectives that a library does: handed to whoever asks for the next, taken back when done.

use crate::lock::lock;
use hocket_wire::memory::Region;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A collective that waits for its library.
#[derive(Clone, Debug)]
pub struct External {
    /// Program number.
    pub program: u32,
    /// Our instruction.
    pub op: u32,
    /// Its slice.
    pub slice: Region,
    /// Where an all-to-all goes.
    pub dst: Option<Region>,
}

/// Collectives whose dependencies are met, in that order.
#[derive(Debug, Default)]
pub struct Externals {
    ready: Mutex<VecDeque<External>>,
    changed: Condvar,
}

impl Externals {
    /// One more.
    pub fn push(&self, external: External) {
        lock(&self.ready).push_back(external);
        self.changed.notify_one();
    }

    /// The next, if one comes in time.
    pub fn next(&self, timeout: Duration) -> Option<External> {
        let mut ready = lock(&self.ready);
        if ready.is_empty() {
            ready = self.changed.wait_timeout(ready, timeout).unwrap_or_else(PoisonError::into_inner).0;
        }
        ready.pop_front()
    }
}
