//! Artefacts of `hocket.artefacts` as the crates read them: both sides write and read the same JSON.

use crate::exceptions::error;
use hocket_plan::Rule;
use hocket_schedule::{SavedTurns, Schedule};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::type_hint_identifier;
use pyo3::types::PyBytes;
use serde::de::DeserializeOwned;

/// What is given as a struct of Python's, and a schedule is returned as. A schedule's rate is Python's alone.
pub struct Told<T>(pub T);

/// A struct that both sides have, and its class in Python.
pub trait Artefact: DeserializeOwned {
    const CLASS: PyStaticExpr;
}

impl Artefact for Schedule {
    const CLASS: PyStaticExpr = type_hint_identifier!("hocket.artefacts.plan", "Schedule");
}

impl Artefact for SavedTurns {
    const CLASS: PyStaticExpr = type_hint_identifier!("hocket.training.memory.turns", "SavedTurns");
}

impl Artefact for Rule {
    const CLASS: PyStaticExpr = type_hint_identifier!("hocket.policy.bucketing", "Closing");
}

impl<'py, T: Artefact> FromPyObject<'_, 'py> for Told<T> {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = T::CLASS;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let encoded = py.import("msgspec.json")?.call_method1("encode", (given,))?;
        let read = serde_json::from_slice(encoded.cast::<PyBytes>()?.as_bytes());
        read.map(Self).map_err(|cause| error(py, "UsageError", &cause.to_string()))
    }
}

impl<'py> IntoPyObject<'py> for Told<Schedule> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;
    const OUTPUT_TYPE: PyStaticExpr = Schedule::CLASS;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let class = py.import("hocket.artefacts.plan")?.getattr("Schedule")?;
        let json =
            serde_json::to_vec(&self.0).map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
        py.import("hocket.typed")?.call_method1("of_json", (PyBytes::new(py, &json), class))
    }
}
