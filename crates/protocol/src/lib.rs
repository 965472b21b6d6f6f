//! Protocol machines without I/O: bytes and values in, bytes and values out; the caller owns sockets and clocks.
#![forbid(unsafe_code)]

pub mod backlog;
pub mod checksum;
pub mod congestion;
pub mod extents;
pub mod frame;
pub mod handshake;
pub mod liveness;
pub mod messages;
pub mod stripe;
pub mod why;
