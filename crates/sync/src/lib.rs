//! Lock-free synchronisation of threads and ranks: dependency counters, arrivals of gradients, the two sides of a
//! message, members of a collective, and rings of small messages.
//!
//! Uses atomics alone and depends on nothing, so that loom, which explores every interleaving of threads, compiles with
//! little else: `RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom -p hocket-sync`.
#![forbid(unsafe_code)]

pub mod arrivals;
mod atomic;
pub mod flow;
pub mod gate;
pub mod meeting;
pub mod ring;

/// A peer sent the same message twice, or too early: it breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfTurn;
