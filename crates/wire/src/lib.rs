//! Links to other ranks: memory that they may reach into, sockets that carry frames, and how a mesh of them comes up.
//!
//! Knows frames and handshakes (from `protocol`) and bytes; knows nothing of programs: the executor says through
//! [`tcp::Sink`] where a payload lands. `unsafe` lives in `memory`, `shm::mailbox`,
//! `shm::large_pages` and `tcp::info` alone.

mod callers;
pub mod clock;
pub mod identity;
pub mod limits;
pub mod memory;
pub mod mesh;
pub mod poll;
mod proof;
pub mod shape;
pub mod shm;
pub mod tcp;
pub mod ways;
