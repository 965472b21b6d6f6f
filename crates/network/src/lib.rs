//! A network as plans, orders and simulations see it: links with rates in bit/s, and for ordered pairs of ranks the links on the path
//! and the latency. Where nobody has placed ranks, its ranks are hosts.
//!
//! Pure data, checked once. It knows nothing of algorithms, flows or time.
#![forbid(unsafe_code)]

mod bus;
mod error;
mod link;
mod network;

pub use bus::{Bus, PIECE_BYTES, Way};
pub use error::NetworkError;
pub use link::Link;
pub use network::{Network, Route};
