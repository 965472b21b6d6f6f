//! Structs of Python as the crates read and write them: both sides have the same JSON.

use crate::exceptions::error;
use hocket_algorithms::Owned;
use hocket_network::Bus;
use hocket_plan::{Chosen, Model, Route, Rule, Setting, Solution};
use hocket_schedule::{SavedTurns, Schedule};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::type_hint_identifier;
use pyo3::types::PyBytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What is given or returned as a struct of Python's. A schedule's rate is Python's alone.
pub struct Told<T>(pub T);

/// A struct that both sides have, and its class in Python.
pub trait Artefact {
    const MODULE: &'static str;
    const NAME: &'static str;
    const CLASS: PyStaticExpr;
}

macro_rules! artefacts {
    ($($here:ident is $module:literal $name:literal;)*) => {
        $(impl Artefact for $here {
            const MODULE: &'static str = $module;
            const NAME: &'static str = $name;
            const CLASS: PyStaticExpr = type_hint_identifier!($module, $name);
        })*
    };
}

artefacts! {
    Bus is "hocket.artefacts.profile" "Bus";
    Schedule is "hocket.artefacts.plan" "Schedule";
    SavedTurns is "hocket.training.memory.turns" "SavedTurns";
    Rule is "hocket.policy.bucketing" "Closing";
    Setting is "hocket.planning.told" "Setting";
    Model is "hocket.planning.told" "Model";
    Chosen is "hocket.planning.told" "Chosen";
    Solution is "hocket.planning.told" "Solution";
    Route is "hocket.planning.told" "Route";
    Owned is "hocket.planning.told" "Shares";
}

impl<'py, T: Artefact + DeserializeOwned> FromPyObject<'_, 'py> for Told<T> {
    type Error = PyErr;
    const INPUT_TYPE: PyStaticExpr = T::CLASS;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let encoded = py.import("msgspec.json")?.call_method1("encode", (given,))?;
        let read = serde_json::from_slice(encoded.cast::<PyBytes>()?.as_bytes());
        read.map(Self).map_err(|cause| error(py, "UsageError", &cause.to_string()))
    }
}

impl<'py, T: Artefact + Serialize> IntoPyObject<'py> for Told<T> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;
    const OUTPUT_TYPE: PyStaticExpr = T::CLASS;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let class = py.import(T::MODULE)?.getattr(T::NAME)?;
        let json =
            serde_json::to_vec(&self.0).map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
        py.import("hocket.typed")?.call_method1("of_json", (PyBytes::new(py, &json), class))
    }
}
