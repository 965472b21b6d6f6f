//! The layout of a trace's record files, and the kinds of records.

use hocket_trace::{End, FIELDS, HEADER, Kind, MAGIC, NO_PEER, RECORD_BYTES, VERSION};
use pyo3::prelude::*;

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("TRACE_MAGIC", &MAGIC[..])?;
    module.add("TRACE_VERSION", VERSION)?;
    module.add("TRACE_HEADER", HEADER)?;
    module.add("TRACE_FIELDS", FIELDS.to_vec())?;
    module.add("TRACE_RECORD_BYTES", RECORD_BYTES)?;
    module.add("TRACE_NO_PEER", NO_PEER)?;
    let kinds: Vec<(String, u16)> =
        Kind::ALL.map(|kind| (format!("{kind:?}").to_uppercase(), kind as u16)).to_vec();
    module.add("TRACE_KINDS", kinds)?;
    let ends = [End::Whole, End::Full, End::Unwritable].map(|end| format!("{end:?}").to_lowercase());
    module.add("TRACE_ENDS", ends.to_vec())
}
