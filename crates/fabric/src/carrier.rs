//! What a link needs of a fabric: tagged receives and sends, their completions, and a descriptor to sleep on.

use crate::error::FabricError;
use std::os::fd::BorrowedFd;

/// Another end, as this one addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination(pub u64);

/// A posted receive or send. Its number is used again once its completion was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation(pub u32);

#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// First byte.
    pub address: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posting {
    Posted(Operation),
    /// The provider's queue is full: poll, then try again.
    Full,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub operation: Operation,
    /// Bytes received, or 0 of a send.
    pub outcome: Result<usize, FabricError>,
}

/// An endpoint. One thread at a time uses it.
pub trait Carrier: Send {
    fn provider(&self) -> &str;

    /// This end's address, for [`Self::insert`] at others.
    fn address(&self) -> &[u8];

    /// Largest message in bytes.
    fn message_bytes_max(&self) -> usize;

    /// Learns the address of another end.
    fn insert(&mut self, address: &[u8]) -> Result<Destination, FabricError>;

    /// Prepares memory for operations, where the provider asks for that; stays until [`Self::forget`].
    fn register(&mut self, memory: Memory) -> Result<(), FabricError>;

    /// Memory is given back to the system: what is prepared of it is no longer.
    fn forget(&mut self, memory: Memory) -> Result<(), FabricError>;

    /// Receives the message of that tag, from whichever end.
    ///
    /// # Safety
    /// The memory is valid, and nobody else reads or writes it, until the operation's completion was polled or the
    /// endpoint is dropped.
    unsafe fn receive(&mut self, memory: Memory, tag: u64) -> Result<Posting, FabricError>;

    /// Sends a message.
    ///
    /// # Safety
    /// The memory is valid, and nobody writes it, until the operation's completion was polled or the endpoint is dropped.
    unsafe fn send(&mut self, to: Destination, memory: Memory, tag: u64) -> Result<Posting, FabricError>;

    /// Asks for an operation's early end. It completes all the same: as cancelled, or as if nobody had asked.
    fn cancel(&mut self, operation: Operation);

    /// Makes progress, and appends operations that have ended.
    fn poll(&mut self, ended: &mut Vec<Completion>) -> Result<(), FabricError>;

    /// Becomes readable when there is something to poll; `None` where the provider has no such thing.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the descriptor reports everything from now on; otherwise, poll again before sleeping.
    fn may_sleep(&mut self) -> bool;
}
