//! Raises the exceptions of `hocket.errors` from Rust, with their attributes.

use hocket_adapter::{ABORTED, DEADLINE_EXCEEDED, FAILED_PRECONDITION, INTERNAL, Refusal};
use hocket_executor::{Engine, Error, Failure, Location, Who, Why};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// An instance of `hocket.errors.<class>` with that message, ready to raise.
pub fn error(py: Python<'_>, class: &str, message: &str) -> PyErr {
    error_with(py, class, message, |_| Ok(()))
}

/// The same, with the attributes that `fill` sets.
pub fn error_with(
    py: Python<'_>,
    class: &str,
    message: &str,
    fill: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let class = py.import("hocket.errors")?.getattr(PyString::new(py, class))?;
        let attributes = PyDict::new(py);
        fill(&attributes)?;
        Ok(PyErr::from_value(class.call((message,), Some(&attributes))?))
    };
    build().unwrap_or_else(|error| error)
}

/// The exception that an executor's error becomes.
pub fn raise(py: Python<'_>, cause: &Error) -> PyErr {
    let message = cause.to_string();
    match cause {
        Error::Mesh { missing, left, .. } => error_with(py, "RendezvousError", &message, |attributes| {
            set_who(attributes, left.as_ref().or(missing.first()))?;
            set_missing(attributes, missing)
        }),
        Error::Peer(failure) => failed(py, &message, failure),
        Error::Interrupted { lost, .. } => error_with(py, "EpochError", &message, |attributes| {
            attributes.set_item("lost", lost.iter().map(|loss| loss.who.rank.0).collect::<Vec<_>>())
        }),
        Error::Timeout { location, missing, .. } => timed_out(py, &message, *location, missing),
        Error::Usage(_) => error(py, "UsageError", &message),
        Error::Program { .. } => error(py, "ProgramError", &message),
        Error::System(_) => error(py, "Error", &message),
    }
}

/// Results of an executor, with its errors as exceptions.
pub trait Raised<T> {
    /// The value, or the exception to raise.
    fn raised(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Raised<T> for Result<T, Error> {
    fn raised(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|cause| raise(py, &cause))
    }
}

/// What a framework's runtime is told of an exception that was raised for it.
pub fn refusal(py: Python<'_>, raised: &PyErr) -> Refusal {
    let value = raised.value(py);
    let attribute = |name: &str| value.getattr(name).and_then(|found| found.extract::<String>()).ok();
    let class = value.get_type().name().map_or_else(|_| "an exception".into(), |name| name.to_string());
    let message = value.to_string();
    match class.as_str() {
        "PeerError" if attribute("why").as_deref() == Some("timeout") => {
            Refusal { code: DEADLINE_EXCEEDED, message }
        }
        "PeerError" | "RendezvousError" => Refusal { code: ABORTED, message },
        "UsageError" => Refusal { code: FAILED_PRECONDITION, message },
        _ => Refusal { code: INTERNAL, message: format!("{class}: {message}") },
    }
}

/// The job's failure, as noticed elsewhere: with `message` instead of its own.
pub fn ended_by(py: Python<'_>, executor: &Engine, message: &str) -> PyErr {
    match executor.failure() {
        Some(Error::Peer(failure)) => failed(py, message, &failure),
        _ => error(py, "PeerError", message),
    }
}

/// A wait for `missing` timed out.
fn timed_out(py: Python<'_>, message: &str, location: Option<Location>, missing: &[Who]) -> PyErr {
    error_with(py, "PeerError", message, |attributes| {
        attributes.set_item("why", "timeout")?;
        set_who(attributes, missing.first())?;
        set_missing(attributes, missing)?;
        set_location(attributes, location)
    })
}

fn failed(py: Python<'_>, message: &str, failure: &Failure) -> PyErr {
    error_with(py, "PeerError", message, |attributes| {
        attributes.set_item("why", failure.why.name())?;
        attributes.set_item("exit_code", failure.exit_code)?;
        set_who(attributes, Some(&failure.who))?;
        if failure.why == Why::Timeout {
            set_missing(attributes, std::slice::from_ref(&failure.who))?;
        }
        set_location(attributes, failure.location)
    })
}

fn set_who(attributes: &Bound<'_, PyDict>, who: Option<&Who>) -> PyResult<()> {
    attributes.set_item("rank", who.map(|who| who.rank.0))?;
    attributes.set_item("host", who.map(|who| &who.host))
}

fn set_missing(attributes: &Bound<'_, PyDict>, missing: &[Who]) -> PyResult<()> {
    attributes.set_item("missing", missing.iter().map(|who| who.rank.0).collect::<Vec<_>>())
}

fn set_location(attributes: &Bound<'_, PyDict>, location: Option<Location>) -> PyResult<()> {
    attributes.set_item("program", location.map(|location| location.program))?;
    attributes.set_item("launch", location.map(|location| location.launch))?;
    attributes.set_item("op", location.and_then(|location| location.op))
}
