//! Protocol machines without I/O: bytes and values in, bytes and values out; the caller owns sockets and clocks.
#![forbid(unsafe_code)]

pub mod backlog;
pub mod checksum;
pub mod congestion;
pub mod drain;
pub mod epoch;
pub mod extents;
pub mod frame;
pub mod handshake;
mod header;
pub mod inquiry;
pub mod limits;
pub mod liveness;
pub mod membership;
pub mod messages;
pub mod path;
pub mod planted;
pub mod sampler;
pub mod stripe;
pub mod why;
pub mod word;
