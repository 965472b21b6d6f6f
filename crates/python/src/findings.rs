//! What is wrong with a program, as `ProgramError`: a sentence, and what the verifier found.

use crate::exceptions::{error, error_with};
use hocket_program::passes::PassError;
use hocket_program::verify::Diagnostic;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Raises `ProgramError`.
pub fn refuse(py: Python<'_>, cause: &dyn std::fmt::Display) -> PyErr {
    error(py, "ProgramError", &cause.to_string())
}

/// Raises `ProgramError`, with the ops that a pass should not have left.
pub fn refused(py: Python<'_>, cause: &PassError) -> PyErr {
    let PassError::Spec { findings, .. } = cause else { return refuse(py, cause) };
    error_with(py, "ProgramError", &cause.to_string(), |attributes| {
        let findings: Vec<_> = findings.iter().map(|found| finding(py, found)).collect::<PyResult<_>>()?;
        attributes.set_item("findings", findings)
    })
}

/// What the verifier found, as `hocket.errors.Finding`.
pub fn finding<'py>(py: Python<'py>, diagnostic: &Diagnostic) -> PyResult<Bound<'py, PyAny>> {
    let Diagnostic { op, what, source, .. } = diagnostic;
    let fields = PyDict::new(py);
    fields.set_item("rank", op.map(|(rank, _)| rank))?;
    fields.set_item("op", op.map(|(_, op)| op))?;
    fields.set_item("after_pass", diagnostic.after_pass)?;
    fields.set_item("what", what)?;
    fields.set_item("file", source.as_ref().map(|source| &source.file))?;
    fields.set_item("line", source.as_ref().map(|source| source.line))?;
    fields.set_item("text", diagnostic.to_string())?;
    py.import("hocket.errors")?.getattr("Finding")?.call((), Some(&fields))
}

/// Raises `ProgramError` with all findings, if there are any.
pub fn proven(py: Python<'_>, name: &str, found: &[Diagnostic]) -> PyResult<()> {
    if found.is_empty() {
        return Ok(());
    }
    let findings = found.iter().map(|each| finding(py, each)).collect::<PyResult<Vec<_>>>()?;
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let message = format!("program `{name}` is refused:\n{}", text.join("\n"));
    Err(error_with(py, "ProgramError", &message, |attributes| attributes.set_item("findings", findings)))
}
