//! Blocking collectives of the ranks of one host: the calling threads move the bytes through shared memory themselves.
//!
//! The executor runs the programs of a plan or a policy beside training; this crate is for programs that know nothing of either and
//! wait for one collective at a time (`torch.distributed`). A hop to another thread costs more than a small message, so there is none.
//! Every rank of a group calls the same collectives in the same order, and whatever differs is found and named before
//! an element is used. Knows memory and kernels; nothing of programs, sockets or Python.
#![forbid(unsafe_code)]

mod area;
mod call;
mod communicator;
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
pub use communicator::{Communicator, Flat, Member};
pub use error::Error;
pub use waiting::Patience;
