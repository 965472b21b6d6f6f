//! The closed form of what a plan costs.

use crate::exceptions::error;
use hocket_algorithms::Algorithm;
use hocket_plan as plan;
use hocket_plan::{Codec, Cost, Launch, Network, Route};
use pyo3::prelude::*;

/// The links between ranks; see `_native.pyi`.
#[pyclass(frozen, module = "hocket._native")]
struct PlanNetwork(Network);

/// Routes on a network, prepared; see `_native.pyi`.
#[pyclass(frozen, module = "hocket._native")]
struct PlanCost(Cost);

/// Algorithm, its numbers, order, bytes of an element, of a chunk; the codec's bytes of an element and its pairs.
type Described = (String, Vec<u32>, Vec<u32>, u32, u64, Option<(u32, Vec<(u32, u32)>)>);

/// Route, elements, earliest start, factor.
type Bucket = (usize, f64, f64, f64);

fn refuse(py: Python<'_>, cause: &dyn std::fmt::Display) -> PyErr {
    error(py, "UsageError", &format!("plan: {cause}"))
}

#[pymethods]
impl PlanNetwork {
    #[new]
    #[pyo3(signature = (*, hosts, bit_per_s, starts, crossed, latency_s))]
    fn new(
        py: Python<'_>,
        hosts: Vec<u32>,
        bit_per_s: Vec<f64>,
        starts: Vec<u32>,
        crossed: Vec<u32>,
        latency_s: Vec<f64>,
    ) -> PyResult<Self> {
        let made = Network::new(hosts, bit_per_s, starts, crossed, latency_s);
        made.map(Self).map_err(|cause| refuse(py, &cause))
    }
}

fn route(described: Described) -> Result<Route, plan::PlanError> {
    let (name, numbers, order, item_bytes, chunk_bytes, codec) = described;
    let codec = codec.map(|(item_bytes, links)| Codec {
        item_bytes: f64::from(item_bytes),
        links: links.into_iter().collect(),
    });
    let chunk_elements = (chunk_bytes / u64::from(item_bytes.max(1))).max(1) as f64;
    let algorithm = Algorithm::new(&name, numbers)?;
    Ok(Route { algorithm, order, item_bytes: f64::from(item_bytes), chunk_elements, codec })
}

#[pymethods]
impl PlanCost {
    #[new]
    fn new(py: Python<'_>, network: &PlanNetwork, routes: Vec<Described>) -> PyResult<Self> {
        let cost = py.detach(|| {
            let routes: Result<Vec<Route>, plan::PlanError> = routes.into_iter().map(route).collect();
            Cost::new(&network.0, &routes?)
        });
        cost.map(Self).map_err(|cause| refuse(py, &cause))
    }

    fn alone_s(&self, py: Python<'_>, route: usize, elements: f64) -> PyResult<f64> {
        self.0.alone_s(route, elements).map_err(|cause| refuse(py, &cause))
    }

    fn step(&self, py: Python<'_>, buckets: Vec<Bucket>) -> PyResult<(f64, Vec<f64>)> {
        let launch = |(route, elements, start_s, factor)| Launch { route, elements, start_s, factor };
        let step = py.detach(|| self.0.step(&buckets.into_iter().map(launch).collect::<Vec<_>>()));
        step.map(|step| (step.done_s, step.bytes)).map_err(|cause| refuse(py, &cause))
    }
}

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("TCP_S_PER_BYTE", plan::TCP_S_PER_BYTE)?;
    module.add("REDUCE_S_PER_BYTE", plan::REDUCE_S_PER_BYTE)?;
    module.add("CAST_S_PER_BYTE", plan::CAST_S_PER_BYTE)?;
    module.add("MESSAGE_S", plan::MESSAGE_S)?;
    module.add("BUCKET_S", plan::BUCKET_S)?;
    module.add_class::<PlanNetwork>()?;
    module.add_class::<PlanCost>()
}
