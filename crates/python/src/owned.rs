//! Owners of a bucket's parts: their traffic, and programs over them.

use crate::artefact::Told;
use crate::exceptions::error;
use crate::findings::{proven, refuse};
use crate::program::{Program, dtype, reduce_op};
use hocket_algorithms::{Counts, Misfit, Owned};
use hocket_program as ir;
use pyo3::prelude::*;

/// Position, first element, one past the last.
type Part = (usize, usize, usize);
/// Sender, receiver, elements, messages.
type Flow = (usize, usize, usize, usize);

fn misfit(py: Python<'_>, cause: &Misfit) -> PyErr {
    error(py, "UsageError", &cause.to_string())
}

/// Owners with their first element, and one past their last: in order, none empty. `UsageError` for owners that cannot be.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn owned_parts(py: Python<'_>, owned: Told<Owned>, elements: usize) -> PyResult<Vec<Part>> {
    owned.0.check().map_err(|cause| misfit(py, &cause))?;
    let parts = owned.0.parts(elements).into_iter();
    Ok(parts.map(|(owner, part)| (owner, part.start, part.end)).collect())
}

/// What is sent to owners and back: sender, receiver, elements, messages; as `count_messages`.
#[pyfunction]
#[pyo3(signature = (owned, elements))]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn owned_messages(py: Python<'_>, owned: Told<Owned>, elements: Option<usize>) -> PyResult<Vec<Flow>> {
    let elements = elements.unwrap_or_else(|| owned.0.even_elements());
    let counts = py.detach(|| Counts::of_owned(&owned.0, elements)).map_err(|cause| misfit(py, &cause))?;
    Ok(counts.flows.iter().map(|flow| (flow.from, flow.to, flow.elements, flow.messages)).collect())
}

/// One bound buffer of each of `world` ranks, of which the first are the members. `direction`: `both` reduces it over the
/// workers; `to_owners` leaves the reduction on owners, `from_owners` brings what they hold to all workers. Neither relabelled
/// nor split; not verified.
#[pyfunction]
#[pyo3(signature = (owned, *, name, world, direction, elements, dtype, op, scale))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "keyword-only in Python")]
pub fn owned_program(
    py: Python<'_>,
    owned: Told<Owned>,
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
            return Err(refuse(py, &format!("there is no direction `{direction}` between ranks and owners")));
        }
    };
    let what = ir::Exchanged { elements, dtype: self::dtype(py, dtype)?, op: reduce_op(py, op)?, scale };
    let made = py.detach(|| ir::Program::owned(name, world, &owned.0, direction, what));
    made.map(Program::from).map_err(|cause| refuse(py, &cause))
}

/// Raise `ProgramError` unless values that owners make of the reductions that one program brings them reach everybody by the other:
/// both verified before, of the same owners, parts and ranks.
#[pyfunction]
pub fn verify_halves(py: Python<'_>, to_owners: &Program, from_owners: &Program) -> PyResult<()> {
    let (to, from) = (to_owners.inner(), from_owners.inner());
    proven(py, &from.name, &py.detach(|| ir::verify::halves(to, from)))
}
