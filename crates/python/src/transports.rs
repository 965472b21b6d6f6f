//! Needs of transports on this machine.

use hocket_wire::endpoint::Need;
use hocket_wire::transports::ALL;
use pyo3::prelude::*;

/// Needs of transports on this machine: name, whether it is there, its parts or why it is missing, and a hint.
#[pyfunction]
pub fn transport_needs(py: Python<'_>) -> Vec<(&'static str, bool, String, &'static str)> {
    let needs = py.detach(|| {
        ALL.iter().filter_map(|transport| transport.needs).map(|needs| needs()).collect::<Vec<_>>()
    });
    let each = |(name, found, hint): Need| (name, found.is_ok(), found.unwrap_or_else(|why| why), hint);
    needs.into_iter().map(each).collect()
}
