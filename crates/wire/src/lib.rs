//! Links to other ranks: memory that peers map, sockets that carry frames, and bringing up the mesh.
//!
//! Knows frames and handshakes (from `protocol`) and bytes, but no programs: the executor decides through
//! [`link::Sink`] where a payload lands. Only `memory`, `shm::reach`, `shm::large_pages`, `tcp::buffer` and `tcp::info`
//! contain `unsafe`, and `fabric::shared`.

#![warn(missing_docs)]

pub mod bell;
mod callers;
pub mod clock;
#[cfg(test)]
mod conformance;
mod drained;
pub mod fabric;
pub mod identity;
pub mod lanes;
pub mod life;
pub mod limits;
pub mod link;
pub mod memory;
pub mod mesh;
pub mod poll;
mod proof;
#[cfg(test)]
mod reference;
pub mod shaper;
pub mod shm;
pub mod tcp;
pub mod transports;
