//! The one event record of every executor, and the file that a rank's records are written to.
//!
//! A file is a header of 64 bytes and then records of 64 bytes, all little-endian. Knows nothing of programs or of who
//! makes the records; `hocket.artefacts.trace` reads them.
#![forbid(unsafe_code)]

mod header;
mod record;
mod writer;

pub use header::{HEADER_BYTES, MAGIC, VERSION};
pub use record::{Kind, NO_PEER, RECORD_BYTES, Record};
pub use writer::Recorder;
