//! What threads and ranks meet at, without locks: dependency counters, gradients that arrive, the two sides of a message,
//! members of a collective, and rings of small messages.
//!
//! Knows atomics alone. It depends on nothing, so that loom, which tries every order in which threads can meet, is compiled with
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
