//! What a peer says of its side of a message, before it is checked against the programs.

use hocket_ids::Rank;

/// A peer's side of a message is ready: its receive is posted, or its bytes lie in its memory.
#[derive(Clone, Copy, Debug)]
pub struct Announcement {
    /// Who says so.
    pub from: Rank,
    /// Program number.
    pub program: u32,
    /// Launch count.
    pub instance: u32,
    /// Our own instruction.
    pub op: u32,
    /// Where a neighbour's bytes lie.
    pub offer: Option<Offer>,
}

/// Bytes in a neighbour's arena.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// In its arena.
    pub offset_bytes: u64,
    /// Of the message.
    pub len_bytes: u64,
    /// Where members claim blocks, of a collective in place.
    pub claims: Option<u64>,
}
