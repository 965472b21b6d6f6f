//! Blocking collectives of the ranks of one host: the calling threads themselves move the bytes through shared memory.
//!
//! The executor runs the programs of a plan or a policy beside training. This crate serves scripts that wait for one
//! collective at a time (`torch.distributed`). Handing over to another thread costs more than a small message, so there
//! is none. Every rank of a group makes the same calls in the same order; a mismatch is found and named before an
//! element is used. Knows memory and kernels, but no programs, sockets or Python.
#![forbid(unsafe_code)]

mod area;
mod call;
mod communicator;
mod direct;
mod error;
mod exchange;
mod overlap;
mod reach;
mod reduction;
#[cfg(test)]
mod tests;
mod waiting;

pub use area::AREA_BYTES;
pub use call::What;
pub use communicator::{Communicator, Departure, Flat, Member, Watch};
pub use error::Error;
pub use waiting::Patience;
