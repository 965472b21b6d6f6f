//! libfabric's providers on this machine.

use crate::exceptions::error;
use hocket_executor::{Provider, providers};
use pyo3::prelude::*;

/// Name, card or interface, and version of each provider of tagged messages. UsageError: there is no libfabric.
#[pyfunction]
fn fabric_providers(py: Python<'_>) -> PyResult<Vec<(String, String, String)>> {
    let all = py.detach(providers).map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
    Ok(all.into_iter().map(|Provider { name, domain, version }| (name, domain, version)).collect())
}

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(fabric_providers, module)?)
}
