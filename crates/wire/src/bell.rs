//! Wakes a sleeping I/O thread, of this rank or of a neighbour.

use crate::memory::Mapping;
use crate::poll::Waker;
use crate::shm::mailbox::Sleeping;
pub use hocket_sync::ring::reserved_bytes;
use std::io;
use std::sync::Arc;

/// The sleep flag in a rank's own memory, and the waker of its I/O thread.
#[derive(Debug)]
pub struct Bell {
    sleeping: Sleeping,
    waker: Waker,
}

impl Bell {
    /// The bell of the rank that owns `memory` and waits for `waker`.
    pub fn new(memory: &Arc<Mapping>, waker: Waker) -> Self {
        Self { sleeping: Sleeping::new(memory), waker }
    }

    /// Call after adding to one of the owner's queues: wakes the owner if it sleeps.
    pub fn ring(&self) -> io::Result<()> {
        if self.sleeping.must_wake() { self.waker.wake() } else { Ok(()) }
    }

    /// The owner's flag.
    pub fn sleeping(&self) -> &Sleeping {
        &self.sleeping
    }

    /// The waker that the owner waits for.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}
