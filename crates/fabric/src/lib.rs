//! libfabric (OFI), loaded at run time by name: endpoints that move tagged messages between ranks.
//!
//! Knows neither frames nor programs. The wheel is built without the library's headers and runs without the library:
//! [`library`] finds its functions by name and symbol version, [`mirrors`] repeats its structures, and
//! `tests/layout.rs` compares them with the headers. What a link needs of an endpoint is the trait [`Carrier`], which
//! [`Endpoint`] implements over libfabric, and fakes implement in tests.
//!
//! Names are those of the manual pages `fi_getinfo(3)`, `fi_endpoint(3)`, `fi_tagged(3)` and `fi_cq(3)`, for version
//! 1.17 of the interface.

mod carrier;
mod endpoint;
mod error;
mod library;
pub mod mirrors;
mod operations;
mod providers;
mod queue;
mod region;

pub use carrier::{Carrier, Completion, Destination, Memory, Operation, Posting};
pub use endpoint::Endpoint;
pub use error::FabricError;
pub use library::Library;
pub use providers::{Choice, providers};
