//! Owners of a bucket's parts: their traffic, and programs over them.

use crate::exceptions::error;
use crate::findings::{proven, refuse};
use crate::program::{Program, dtype, reduce_op};
use hocket_algorithms::{Counts, Owned, Via};
use hocket_program as ir;
use pyo3::prelude::*;

/// Owners of a bucket's parts. `shares`: by member, in units of which there are as many as the sum. The first `workers` members
/// have gradients, the others only own. `via`: `direct`; `two_level`, through the first of each group of workers, whose sizes are
/// `stations`; `ring`, for members that all work and own equal shares. `UsageError` for what cannot be.
#[pyclass(frozen, eq, hash, from_py_object, name = "Owned", module = "hocket._native")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OwnedRoute(pub Owned);

/// By flow: sender, receiver, elements, messages.
type Flow = (usize, usize, usize, usize);

#[pymethods]
impl OwnedRoute {
    #[new]
    #[pyo3(signature = (*, shares, workers, via, stations))]
    fn new(
        py: Python<'_>,
        shares: Vec<u32>,
        workers: usize,
        via: &str,
        stations: Vec<u32>,
    ) -> PyResult<Self> {
        let unknown = || error(py, "UsageError", &format!("owners: there is no route `{via}` to them"));
        let via = match via {
            "direct" => Via::Direct,
            "two_level" => Via::Stations(stations),
            "ring" => Via::Ring,
            _ => return Err(unknown()),
        };
        let owned = Owned { shares, workers, via };
        owned.check().map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
        Ok(Self(owned))
    }

    /// Owner (by position), its first element, one past its last: in order, none empty.
    fn parts(&self, elements: usize) -> Vec<(usize, usize, usize)> {
        let parts = self.0.parts(elements).into_iter();
        parts.map(|(owner, part)| (owner, part.start, part.end)).collect()
    }

    /// What is sent to owners and back: sender, receiver, elements, messages; as `count_messages`.
    #[pyo3(signature = (elements))]
    fn sent(&self, py: Python<'_>, elements: Option<usize>) -> PyResult<Vec<Flow>> {
        let elements = elements.unwrap_or_else(|| self.0.even_elements());
        let counts = py.detach(|| Counts::of_owned(&self.0, elements));
        let counts = counts.map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
        Ok(counts.flows.iter().map(|flow| (flow.from, flow.to, flow.elements, flow.messages)).collect())
    }

    /// One bound buffer of each of `world` ranks, of which the first are the members. `direction`: `both` reduces it over the
    /// workers; `to_owners` leaves the reduction on owners, `from_owners` brings what they hold to all workers. Neither relabelled
    /// nor split; not verified.
    #[pyo3(signature = (*, name, world, direction, elements, dtype, op, scale))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn program(
        &self,
        py: Python<'_>,
        name: String,
        world: usize,
        direction: &str,
        elements: usize,
        dtype: &str,
        op: &str,
        scale: f64,
    ) -> PyResult<Program> {
        let direction = match direction {
            "both" => ir::Direction::Both,
            "to_owners" => ir::Direction::ToOwners,
            "from_owners" => ir::Direction::FromOwners,
            _ => {
                return Err(refuse(
                    py,
                    &format!("there is no direction `{direction}` between ranks and owners"),
                ));
            }
        };
        let what = ir::Exchanged { elements, dtype: self::dtype(py, dtype)?, op: reduce_op(py, op)?, scale };
        let made = py.detach(|| ir::Program::owned(name, world, &self.0, direction, what));
        made.map(Program::from).map_err(|cause| refuse(py, &cause))
    }
}

/// Raise `ProgramError` unless values that owners make of the reductions that one program brings them reach everybody by the other:
/// both verified before, of the same owners, parts and ranks.
#[pyfunction]
pub fn verify_halves(py: Python<'_>, to_owners: &Program, from_owners: &Program) -> PyResult<()> {
    let (to, from) = (to_owners.inner(), from_owners.inner());
    proven(py, &from.name, &py.detach(|| ir::verify::halves(to, from)))
}
