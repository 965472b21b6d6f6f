//! The closed form of what a plan costs, and the search for the fastest plan.

use crate::artefact::Told;
use crate::exceptions::error;
use crate::network::Network;
use crate::schedules::DescribedPiece;
use hocket_plan as plan;
use hocket_plan::{
    Budget, Chosen, Cost, Factors, Launch, Model, PlanError, Problem, Route, Setting, Solution,
};
use pyo3::prelude::*;

/// The routes of buckets, on a network. `UsageError` for one that does not fit.
#[pyclass(frozen, module = "hocket._native")]
pub struct PlanCost(Cost);

/// Route, elements, earliest start, factor.
type Bucket = (usize, f64, f64, f64);

fn refuse(py: Python<'_>, cause: &PlanError) -> PyErr {
    error(py, "UsageError", &format!("plan: {cause}"))
}

#[pymethods]
impl PlanCost {
    #[new]
    fn new(py: Python<'_>, network: &Network, routes: Vec<Told<Route>>) -> PyResult<Self> {
        let routes: Vec<Route> = routes.into_iter().map(|told| told.0).collect();
        py.detach(|| Cost::new(&network.0, &routes)).map(Self).map_err(|cause| refuse(py, &cause))
    }

    /// Seconds of one bucket with the network to itself.
    fn alone_s(&self, py: Python<'_>, route: usize, elements: f64) -> PyResult<f64> {
        self.0.alone_s(route, elements).map_err(|cause| refuse(py, &cause))
    }

    /// Of the links and engines that are evaluated: numbers of links, and, from their number on, of ranks.
    #[getter]
    fn resources(&self) -> Vec<usize> {
        self.0.kept().to_vec()
    }

    /// What a bucket asks of links and engines: route, elements, earliest start, and what its time alone is multiplied with.
    fn piece(&self, py: Python<'_>, bucket: Bucket) -> PyResult<DescribedPiece> {
        let (route, elements, start_s, factor) = bucket;
        let piece = self.0.piece(&Launch { route, elements, start_s, factor });
        let described =
            |piece: plan::Piece| (piece.start_s, piece.head_s, piece.tail_s, piece.alone_s, piece.busy_s);
        piece.map(described).map_err(|cause| refuse(py, &cause))
    }

    /// When the last bucket is done, and bytes by link. Buckets in order of priority: route, elements, earliest start, and what its
    /// time alone is multiplied with.
    fn step(&self, py: Python<'_>, buckets: Vec<Bucket>) -> PyResult<(f64, Vec<f64>)> {
        let launch = |(route, elements, start_s, factor)| Launch { route, elements, start_s, factor };
        let step = py.detach(|| self.0.step(&buckets.into_iter().map(launch).collect::<Vec<_>>()));
        step.map(|step| (step.done_s, step.bytes)).map_err(|cause| refuse(py, &cause))
    }
}

/// The plan with the shortest step; the same one for the same arguments, on every machine.
///
/// `factors`, by the name under which an algorithm is measured: measured times over the model's, by elements, ascending.
/// `evaluations`: of whole plans, beyond the first ones. `splits`: whether a variable may be in several buckets. `given`: plans to
/// begin with, beside those of rules; their routes are numbered as in the setting. `UsageError` when these do not fit each other.
#[pyfunction]
#[pyo3(signature = (network, setting, model, *, factors, evaluations, splits, given = Vec::new()))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn solve_plan(
    py: Python<'_>,
    network: &Network,
    setting: Told<Setting>,
    model: Told<Model>,
    factors: Vec<(String, Factors)>,
    evaluations: usize,
    splits: bool,
    given: Vec<Vec<Told<Chosen>>>,
) -> PyResult<Told<Solution>> {
    let (setting, model) = (setting.0, model.0);
    let solved = py.detach(|| {
        let budget = Budget { seed: setting.seed, evaluations, splits };
        let problem = Problem::new(&network.0, &setting, model, &factors)?;
        let begun: Option<Vec<Vec<Chosen>>> = given.into_iter().map(|each| chosen(&problem, each)).collect();
        let begun =
            begun.ok_or(PlanError::Model("plans to begin with have routes or gradients that are none"))?;
        plan::solve(&problem, &budget, &begun)
    });
    solved.map(Told).map_err(|cause| refuse(py, &cause))
}

/// Buckets of a plan whose routes are numbered as they were given; `None` for a route or a gradient that there is not.
fn chosen(problem: &Problem, buckets: Vec<Told<Chosen>>) -> Option<Vec<Chosen>> {
    let bucket = |Told(Chosen { parts, proposal })| {
        let known = parts.iter().all(|&(variable, _, _)| variable < problem.model.variables.len());
        let proposal = problem.given.get(proposal).copied()?;
        (known && !parts.is_empty()).then_some(Chosen { parts, proposal })
    };
    buckets.into_iter().map(bucket).collect()
}

/// Buckets of gradients, given in their order by kind and size, as their indices. One bucket of each kind is open at a time. Closed
/// ones come first, the others in the order in which they were opened.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn partition(gradients: Vec<(usize, f64)>, rule: Told<plan::Rule>) -> Vec<Vec<usize>> {
    plan::partition(gradients, rule.0)
}
