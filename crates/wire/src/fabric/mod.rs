//! Links whose payloads cross a fabric, such as Amazon's EFA, through libfabric. The connection beside it carries all
//! words: clear to send, probes, aborts, goodbyes, epochs. So what a fabric lacks, such as order, authentication and an
//! end that the other side sees, is not needed of it.
//!
//! A message crosses in pieces. The receiver posts a tagged receive for each of the first pieces, then says clear to
//! send with the first tag; the sender sends each piece with its own tag. So many pieces of a message are under way as the
//! receiver posts: a provider holds at most these few before their receive is posted, and holds none for ever.
//!
//! - `shared`: the endpoint of this rank, and memory for pieces; whose completions are whose.
//! - `endpoint`: the transport.
//! - `incoming`: pieces posted and landed, of one link.
//! - `outgoing`: messages queued and pieces sent, of one link.
//! - `link`, `port`: the halves of the link, for all threads and for the I/O thread.

mod endpoint;
mod incoming;
mod link;
mod outgoing;
mod port;
mod shared;

#[cfg(test)]
pub use endpoint::Fabric;
pub use endpoint::TRANSPORT;

use hocket_protocol::frame::PAYLOAD_BYTES_MAX;

/// Largest piece.
const PIECE_BYTES: usize = PAYLOAD_BYTES_MAX;

/// Pieces of a message under way: 1 MiB, which 400 Gbit/s need over 20 µs.
const PIECES_UNDER_WAY: usize = 4;

/// Pieces of a link under way; a more urgent message waits for so many at most.
const LINK_PIECES_UNDER_WAY: usize = 8;

/// Number of pieces of a message.
fn pieces(bytes: usize) -> usize {
    bytes.div_ceil(PIECE_BYTES)
}

/// Length of piece `at` of a message.
fn piece_bytes(bytes: usize, at: usize) -> usize {
    (bytes - at * PIECE_BYTES).min(PIECE_BYTES)
}
