//! Raises the exceptions of `hocket.errors` from Rust.

use pyo3::prelude::*;
use pyo3::types::PyString;

/// An instance of `hocket.errors.<class>` with that message, ready to raise.
pub fn error(py: Python<'_>, class: &str, message: &str) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let class = py.import("hocket.errors")?.getattr(PyString::new(py, class))?;
        Ok(PyErr::from_value(class.call1((message,))?))
    };
    build().unwrap_or_else(|error| error)
}
