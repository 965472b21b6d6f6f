//! Wakes the I/O thread of a rank, ours or a neighbour's, when it sleeps.

use crate::memory::Mapping;
use crate::poll::Waker;
use crate::shm::mailbox::Sleeping;
use std::io;
use std::sync::Arc;

/// The flag of a rank that sleeps, in its own memory, and what wakes it.
#[derive(Debug)]
pub struct Bell {
    sleeping: Sleeping,
    waker: Waker,
}

impl Bell {
    /// Of the rank that owns `memory` and waits for `waker`.
    pub fn new(memory: &Arc<Mapping>, waker: Waker) -> Self {
        Self { sleeping: Sleeping::new(memory), waker }
    }

    /// After something was put into one of the owner's queues: wakes it if it sleeps.
    pub fn ring(&self) -> io::Result<()> {
        if self.sleeping.must_wake() { self.waker.wake() } else { Ok(()) }
    }

    /// The owner's flag.
    pub fn sleeping(&self) -> &Sleeping {
        &self.sleeping
    }

    /// What the owner waits for.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}
