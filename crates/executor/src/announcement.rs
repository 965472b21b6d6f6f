//! A peer's announcement of its side of a message, before it is checked against the programs.

use hocket_ids::Rank;

/// A peer's side of a message is ready: its receive is posted, or its bytes lie in its memory.
#[derive(Clone, Copy, Debug)]
pub struct Announcement {
    /// The announcing rank.
    pub from: Rank,
    /// Program number.
    pub program: u32,
    /// Launch count.
    pub instance: u32,
    /// Our own instruction.
    pub op: u32,
    /// Position of a neighbour's bytes.
    pub offer: Option<Offer>,
}

/// Bytes in a neighbour's arena.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Offset in its arena.
    pub offset_bytes: u64,
    /// Length of the message.
    pub len_bytes: u64,
    /// Offset of the members' claims, for a collective in place.
    pub claims: Option<u64>,
}
