//! Links to other ranks: memory that they may reach into, sockets that carry frames, and how a mesh of them comes up.
//!
//! Knows frames and handshakes (from `protocol`) and bytes; knows nothing of programs: the executor says through
//! [`link::Sink`] where a payload lands. `unsafe` lives in `memory`, `shm::reach`, `shm::large_pages`, `tcp::buffer` and
//! `tcp::info` alone.

pub mod bell;
mod callers;
pub mod clock;
#[cfg(test)]
mod conformance;
pub mod identity;
pub mod limits;
pub mod link;
pub mod memory;
pub mod mesh;
pub mod poll;
mod proof;
#[cfg(test)]
mod reference;
pub mod shape;
pub mod shm;
pub mod tcp;
pub mod transports;
pub mod ways;
