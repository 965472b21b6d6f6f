//! Runs programs in real time: compiles a rank's part to instructions that name memory and peers directly, counts
//! dependencies, and moves data as receives are posted.
//!
//! Knows programs, links and the event record. Knows no framework and no Python.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(test)]
extern crate self as hocket_executor;

mod announcement;
mod arrival;
mod compile;
mod completions;
mod compute;
mod connect;
mod core;
mod dataflow;
#[cfg(test)]
mod death;
mod early;
mod ending;
mod engine;
mod error;
mod external;
mod failing;
mod failure;
mod guard;
mod halt;
#[cfg(test)]
mod hostile;
mod in_place;
mod instruction;
mod interruption;
mod io_thread;
mod landing;
mod launch;
mod leaving;
mod loaded;
mod lock;
mod loss;
mod message_table;
mod messages;

#[cfg(test)]
#[path = "../tests/mesh/mod.rs"]
mod mesh;
mod op_state;
mod options;
mod peer;
mod peer_table;
mod programs;
pub mod readiness;
mod relays;
mod resume;
mod sets;
mod threads;
mod timeout;
mod waiting;
mod waits;

pub use engine::Engine;
pub use error::Error;
pub use external::{External, Staged};

pub use failure::{Failure, Location, Who};
pub use guard::panic_text;
pub use hocket_kernels::{Foreign, Function};
pub use hocket_protocol::why::Why;
pub use hocket_wire::clock::now_ns;
pub use hocket_wire::endpoint::Options as WireOptions;
pub use hocket_wire::identity::Address;
pub use hocket_wire::life::Lifetime;
pub use hocket_wire::link::Cards;
pub use hocket_wire::memory::Allocation;
pub use hocket_wire::memory::Region;
pub use hocket_wire::shaper::EmulatedLinks;
pub use instruction::Way;
pub use loaded::{NonFinite, Sending};
pub use options::Options;
pub use waits::NotedWait;
