//! Ops that others execute, collectives of libraries and copies of devices: queues from which a caller takes the next, and reports
//! it done.

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
    /// Its slice; where the program has it on the device, the host's twin of it.
    pub slice: Region,
    /// The output of an all-to-all.
    pub dst: Option<Region>,
}

/// A copy between the rank's device and the host, for whoever has the device's memory. Its two ends lie at the same place of the
/// device's buffer and of its twin.
#[derive(Clone, Debug)]
pub struct Staged {
    /// Program number.
    pub program: u32,
    /// Our instruction.
    pub op: u32,
    /// The host's end.
    pub host: Region,
}

/// Ops whose dependencies are met, in that order.
#[derive(Debug)]
pub struct Externals<T> {
    /// `None`: no more will come.
    ready: Mutex<Option<VecDeque<T>>>,
    changed: Condvar,
}

impl<T> Default for Externals<T> {
    fn default() -> Self {
        Self { ready: Mutex::new(Some(VecDeque::new())), changed: Condvar::default() }
    }
}

impl<T> Externals<T> {
    /// Adds an op.
    pub fn push(&self, external: T) {
        if let Some(ready) = lock(&self.ready).as_mut() {
            ready.push_back(external);
        }
        self.changed.notify_one();
    }

    /// Forgets all ops, and lets nobody wait for another: the next epoch has queues of its own.
    pub fn close(&self) {
        *lock(&self.ready) = None;
        self.changed.notify_all();
    }

    /// The next op, if there is one in time.
    pub fn next(&self, timeout: Duration) -> Option<T> {
        let mut ready = lock(&self.ready);
        if ready.as_ref().is_some_and(VecDeque::is_empty) {
            ready = self.changed.wait_timeout(ready, timeout).unwrap_or_else(PoisonError::into_inner).0;
        }
        ready.as_mut()?.pop_front()
    }
}
