//! Kinds of trace records, and why record files end.

use crate::exceptions::error;
use hocket_trace::{End, Kind};
use pyo3::prelude::*;

/// Names and numbers of what a record is about, ascending.
#[pyfunction]
pub fn trace_kinds() -> Vec<(String, u16)> {
    Kind::ALL.map(|kind| (format!("{kind:?}").to_uppercase(), kind as u16)).to_vec()
}

/// Why a record file ends before its run does, by number; the first: it does not.
#[pyfunction]
pub fn trace_ends() -> Vec<String> {
    [End::Whole, End::Full, End::Unwritable].map(|end| format!("{end:?}").to_lowercase()).to_vec()
}

/// The part of a training step that has that name.
pub fn span(py: Python<'_>, name: &str) -> PyResult<Kind> {
    Ok(match name {
        "step" => Kind::Step,
        "forward" => Kind::Forward,
        "backward" => Kind::Backward,
        "wait" => Kind::Wait,
        "optimizer" => Kind::Optimizer,
        "update" => Kind::Update,
        _ => return Err(error(py, "UsageError", &format!("there is no span of kind `{name}`"))),
    })
}
