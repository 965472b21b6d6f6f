//! The one event record that every executor writes, and its file form.
#![forbid(unsafe_code)]

mod record;
mod recorder;

pub use record::{HEADER_BYTES, Kind, MAGIC, RECORD_BYTES, Record, VERSION, header};
pub use recorder::Recorder;
