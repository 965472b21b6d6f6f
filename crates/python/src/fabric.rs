//! libfabric's providers on this machine.

use crate::exceptions::error;
use hocket_executor::{Fabric, Provider, providers};
use pyo3::prelude::*;

/// libfabric's providers of tagged messages here: name, card or interface, version. `UsageError`: there is no libfabric.
#[pyfunction]
pub fn fabric_providers(py: Python<'_>) -> PyResult<Vec<(String, String, String)>> {
    let all = py.detach(providers).map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
    Ok(all.into_iter().map(|Provider { name, domain, version }| (name, domain, version)).collect())
}

pub fn chosen(py: Python<'_>, name: Option<&str>) -> PyResult<Option<Fabric>> {
    let fabric = name.map(Fabric::from_name).transpose();
    fabric.map_err(|what| error(py, "UsageError", &what))
}
