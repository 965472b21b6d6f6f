//! Collectives that a library executes: a queue from which a caller takes the next, and reports it done.

use crate::lock::lock;
use hocket_wire::memory::Region;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A collective ready for its library.
#[derive(Clone, Debug)]
pub struct External {
    /// Program number.
    pub program: u32,
    /// Our instruction.
    pub op: u32,
    /// Its slice.
    pub slice: Region,
    /// The output of an all-to-all.
    pub dst: Option<Region>,
}

/// Collectives whose dependencies are met, in that order.
#[derive(Debug, Default)]
pub struct Externals {
    ready: Mutex<VecDeque<External>>,
    changed: Condvar,
}

impl Externals {
    /// Adds a collective.
    pub fn push(&self, external: External) {
        lock(&self.ready).push_back(external);
        self.changed.notify_one();
    }

    /// The next collective, if there is one in time.
    pub fn next(&self, timeout: Duration) -> Option<External> {
        let mut ready = lock(&self.ready);
        if ready.is_empty() {
            ready = self.changed.wait_timeout(ready, timeout).unwrap_or_else(PoisonError::into_inner).0;
        }
        ready.pop_front()
    }
}
