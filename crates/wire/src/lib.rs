//! Links to other ranks: memory that peers map, sockets that carry frames, and bringing up the mesh.
//!
//! Knows frames and handshakes (from `protocol`) and bytes, but no programs: the executor decides through
//! [`link::Sink`] where a payload lands. Only `memory`, `shm::reach`, `shm::large_pages`, `connection::buffer`,
//! `connection::info` and `fabric::shared` contain `unsafe`.

#![warn(missing_docs)]

pub mod bell;
mod callers;
pub mod claims;
pub mod clock;
#[cfg(test)]
mod conformance;
pub mod connection;
mod drained;
pub mod endpoint;
mod fabric;
pub mod identity;
mod lanes;
pub mod life;
pub mod limits;
pub mod link;
pub mod listener;
mod meeting;
pub mod memory;
pub mod mesh;
pub mod poll;
mod proof;
pub mod reduce;
#[cfg(test)]
mod reference;
pub mod shaper;
pub mod shm;
pub mod take;
mod tcp;
pub mod transports;
