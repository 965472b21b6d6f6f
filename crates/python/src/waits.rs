//! Waits without the GIL.

use crate::exceptions::{Raised, error};
use hocket_executor::Error;
use hocket_protocol::limits::patience;
use pyo3::prelude::*;
use std::time::Duration;

/// A duration from Python, as long as waits may be at most; negative values and NaN are the caller's mistake.
pub fn duration(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    let wrong = || error(py, "UsageError", &format!("a time-out of {seconds} s: it is a number from 0"));
    patience(seconds).ok_or_else(wrong)
}

/// The exception of a pending signal, such as Ctrl-C.
pub fn raised_signal() -> Option<PyErr> {
    Python::attach(|py| py.check_signals().err())
}

/// Waits without the GIL. Ctrl-C ends the wait with its exception, and so does an exception of `meanwhile`, which is
/// called several times a second.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    meanwhile: Option<&Py<PyAny>>,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let outcome = py.detach(|| {
        wait(&mut || {
            raised = raised_signal()
                .or_else(|| meanwhile.and_then(|act| Python::attach(|py| act.call0(py).err())));
            raised.is_some()
        })
    });
    match raised {
        Some(raised) => Err(raised),
        None => outcome.raised(py),
    }
}
