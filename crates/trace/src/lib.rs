//! The one event record of every executor, and the file that a rank's records are written to.
//!
//! A file is a header of 64 bytes and then records of 64 bytes, all little-endian; `layout.rs` defines the fields.
//! Knows nothing of programs or of the code that makes records; `hocket.artefacts.trace` reads them.
#![forbid(unsafe_code)]

mod bounds;
mod layout;
mod output;
mod record;
mod writer;

pub use bounds::Bounds;
pub use layout::{End, FIELDS, HEADER, HEADER_BYTES, MAGIC, RECORD_BYTES, VERSION};
pub use record::{Kind, NO_PEER, Record};
pub use writer::{Recorder, Wanted};
