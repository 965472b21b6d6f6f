//! The closed form of what a plan costs, and the search for the fastest plan.

use crate::artefact::Told;
use crate::exceptions::error;
use crate::network::Network;
use crate::owned::OwnedRoute;
use crate::schedules::DescribedPiece;
use hocket_algorithms::{Algorithm, Counts, Flow, Stage};
use hocket_plan as plan;
use hocket_plan::{
    Budget, Chosen, Class, Codec, Cost, Counted, Exchange, Factors, Gathered, Launch, Model, Order, Overlap,
    Problem, Proposal, Route, Rows, Setting, Solution, Variable, Via,
};
use pyo3::prelude::*;
use std::sync::Arc;

/// The routes of buckets, on a network. Each: algorithm and its numbers, or owners, or for rows an algorithm, the share of rows
/// that a rank touches, the bytes of one, and whether they are added to a table, or the messages of a program; order; bytes of an element and of a chunk; None or
/// the codec's bytes of an element and its ordered pairs of ranks. `UsageError` for one that does not fit.
#[pyclass(frozen, module = "hocket._native")]
pub struct PlanCost(Cost);

/// An all-reduce by an algorithm with its numbers, owners, or rows by an algorithm: the share of all rows, the bytes of one, and
/// whether they are added to a table.
#[derive(FromPyObject)]
pub enum By {
    Owned(OwnedRoute),
    AllReduce(String, Vec<u32>),
    Gathered(String, f64, f64, bool),
    /// A program's messages: bytes of its bucket, how many messages follow one another, bytes beside them for each of the bucket,
    /// and by sender and receiver the bytes, how many of these are reduced, and the messages.
    Counted(usize, usize, f64, Vec<(usize, usize, usize, usize, usize)>),
}

/// What the members do, order, bytes of an element, of a chunk; the codec's bytes of an element and its pairs.
type Described = (By, Vec<u32>, u32, u64, Option<(u32, Vec<(u32, u32)>)>);

/// Route, elements, earliest start, factor.
type Bucket = (usize, f64, f64, f64);

fn refuse(py: Python<'_>, cause: &dyn std::fmt::Display) -> PyErr {
    error(py, "UsageError", &format!("plan: {cause}"))
}

fn route(described: Described) -> Result<Route, plan::PlanError> {
    let (by, order, item_bytes, chunk_bytes, codec) = described;
    let codec = codec.map(|(item_bytes, links)| Codec {
        item_bytes: f64::from(item_bytes),
        links: links.into_iter().collect(),
    });
    let chunk_elements = (chunk_bytes / u64::from(item_bytes.max(1))).max(1) as f64;
    let exchange = exchange(by)?;
    Ok(Route { exchange, order, item_bytes: f64::from(item_bytes), chunk_elements, codec })
}

fn exchange(by: By) -> Result<Exchange, plan::PlanError> {
    Ok(match by {
        By::Owned(OwnedRoute(owned)) => Exchange::Owned(owned),
        By::AllReduce(name, numbers) => Exchange::AllReduce(Algorithm::new(&name, numbers)?),
        By::Gathered(name, density, row_bytes, table) => {
            let algorithm = Algorithm::new(&name, Vec::new())?;
            Exchange::Gathered(Gathered { algorithm, rows: Rows { density, row_bytes, table } })
        }
        By::Counted(elements, depth, beside, flows) => {
            let flow = |(from, to, elements, reduced, messages)| Flow {
                from,
                to,
                stage: Stage::Cycle,
                elements,
                messages,
                reduced,
            };
            let counts = Counts { elements, flows: flows.into_iter().map(flow).collect(), depth };
            Exchange::Counted(Counted { counts: Arc::new(counts), beside })
        }
    })
}

#[pymethods]
impl PlanCost {
    #[new]
    fn new(py: Python<'_>, network: &Network, routes: Vec<Described>) -> PyResult<Self> {
        let cost = py.detach(|| {
            let routes: Result<Vec<Route>, plan::PlanError> = routes.into_iter().map(route).collect();
            Cost::new(&network.0, &routes?)
        });
        cost.map(Self).map_err(|cause| refuse(py, &cause))
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
        let piece = self.0.piece(&Launch { route, elements, start_s, due_s: 0.0, factor });
        let described =
            |piece: plan::Piece| (piece.start_s, piece.head_s, piece.tail_s, piece.alone_s, piece.busy_s);
        piece.map(described).map_err(|cause| refuse(py, &cause))
    }

    /// When the last bucket is done, and bytes by link. Buckets in order of priority: route, elements, earliest start, and what its
    /// time alone is multiplied with.
    fn step(&self, py: Python<'_>, buckets: Vec<Bucket>) -> PyResult<(f64, Vec<f64>)> {
        let launch = |(route, elements, start_s, factor)| {
            // Who asks for a step alone compares its end with forward and backward.
            Launch { route, elements, start_s, due_s: 0.0, factor }
        };
        let step = py.detach(|| self.0.step(&buckets.into_iter().map(launch).collect::<Vec<_>>()));
        step.map(|step| (step.done_s, step.bytes)).map_err(|cause| refuse(py, &cause))
    }
}

/// The rule's name, the algorithm and numbers that it is for alone, and ranks.
type DescribedOrder = (String, Option<(String, Vec<u32>)>, Vec<u32>);

/// Bytes of an element; of gradients that may travel as rows the share of these, the bytes of one, and whether they are added to a
/// table.
type DescribedClass = (f64, Option<(f64, f64, bool)>);

/// What members do, their order, bytes of a chunk, and the index of a codec with the pairs of ranks that use it.
type DescribedRoute = (By, Vec<u32>, f64, Option<usize>, Vec<(u32, u32)>);

/// Bytes of an element, and pairs of ranks.
type DescribedCodec = (f64, Vec<(u32, u32)>);

/// What a proposal does, by which algorithm, and its numbers; of owners the way, the shares and the stations.
type DescribedExchange = (&'static str, String, Vec<u32>, Vec<u32>);

/// Parts (variable, first element, one after the last), and the index of a proposal.
type DescribedBucket = (Vec<(usize, u64, u64)>, usize);

/// A route that was considered. `exchange`: `all_reduce` by an algorithm with its numbers; `owned` (`direct`, `two_level`, `ring`)
/// with the shares of the members of `order` and the sizes of stations; `gathered` by an algorithm. `codec`: index of the codec.
#[pyclass(frozen, module = "hocket._native")]
pub struct PlanProposal(Proposal);

#[pymethods]
impl PlanProposal {
    #[getter]
    fn exchange(&self) -> DescribedExchange {
        match &self.0.exchange {
            Exchange::AllReduce(how) => ("all_reduce", how.name().into(), how.numbers().to_vec(), Vec::new()),
            Exchange::Owned(owned) => {
                let (via, stations) = match &owned.via {
                    Via::Direct => ("direct", Vec::new()),
                    Via::Stations(sizes) => ("two_level", sizes.clone()),
                    Via::Ring => ("ring", Vec::new()),
                };
                ("owned", via.into(), owned.shares.clone(), stations)
            }
            Exchange::Gathered(rows) => ("gathered", rows.algorithm.name().into(), Vec::new(), Vec::new()),
            Exchange::Counted(_) => ("counted", String::new(), Vec::new(), Vec::new()),
        }
    }

    #[getter]
    fn order(&self) -> Vec<u32> {
        self.0.order.clone()
    }

    #[getter]
    fn rule(&self) -> &str {
        &self.0.rule
    }

    #[getter]
    fn measured_as(&self) -> &'static str {
        self.0.measured_as
    }

    #[getter]
    fn codec(&self) -> Option<usize> {
        self.0.codec
    }

    #[getter]
    fn codec_links(&self) -> Vec<(u32, u32)> {
        self.0.codec_links.clone()
    }

    #[getter]
    fn chunk_bytes(&self) -> u64 {
        self.0.chunk_bytes as u64
    }
}

/// The fastest plan that was found. `buckets`, urgent ones first: parts (variable, first element, one after the last) and the index
/// of the proposal. `uniform`: plans with one route for all buckets: proposal, index of the bucket size, seconds a step, simplest
/// first; `chosen`: the index of the plan among these, None when it mixes routes. `bundlings`: index of a bucket size, and the
/// variables of each bucket. `built`: the name of a builder, its seconds a step, and its buckets as in `buckets`.
#[pyclass(frozen, module = "hocket._native")]
pub struct PlanSolution {
    solution: Solution,
    proposals: Vec<Py<PlanProposal>>,
}

#[pymethods]
impl PlanSolution {
    #[getter]
    fn buckets(&self) -> Vec<DescribedBucket> {
        self.solution.buckets.iter().map(|bucket| (bucket.parts.clone(), bucket.proposal)).collect()
    }

    #[getter]
    fn proposals(&self, py: Python<'_>) -> Vec<Py<PlanProposal>> {
        self.proposals.iter().map(|proposal| proposal.clone_ref(py)).collect()
    }

    #[getter]
    fn step_s(&self) -> f64 {
        self.solution.step_s
    }

    /// No plan of these routes takes less.
    #[getter]
    fn bound_s(&self) -> f64 {
        self.solution.bound_s
    }

    /// No plan takes less, whatever its routes: hosts and racks must send and receive so much.
    #[getter]
    fn least_s(&self) -> f64 {
        self.solution.least_s
    }

    #[getter]
    fn evaluations(&self) -> usize {
        self.solution.evaluations
    }

    #[getter]
    fn uniform(&self) -> Vec<(usize, usize, f64)> {
        self.solution.uniform.clone()
    }

    #[getter]
    fn bundlings(&self) -> Vec<(usize, Vec<Vec<usize>>)> {
        self.solution.bundlings.clone()
    }

    #[getter]
    fn built(&self) -> Vec<(&'static str, f64, Vec<DescribedBucket>)> {
        let bucket = |bucket: &plan::Chosen| (bucket.parts.clone(), bucket.proposal);
        let all = self.solution.built.iter();
        all.map(|each| (each.builder, each.step_s, each.buckets.iter().map(bucket).collect())).collect()
    }

    #[getter]
    fn chosen(&self) -> Option<usize> {
        self.solution.chosen
    }
}

/// The plan with the shortest step; the same one for the same arguments, on every machine.
///
/// `racks`, by rank. The first `workers` ranks have gradients. `orders` of the workers, simplest first: the rule, the only
/// algorithm that it is for, ranks. `codecs`: bytes of an element, and ordered pairs of ranks. `admitted`: algorithms, as they are
/// measured, and `owned` for owners of parts; None: all. `classes`: bytes of an element; of gradients that may travel as rows the
/// share of these, bytes of one, and whether they are added to a table. `variables`, in the order of the model: elements, class,
/// ready, needed. `factors`, by the name under which an algorithm is measured: measured times over the model's, by elements,
/// ascending. `splits`: whether a variable may be in several buckets. `given`: plans to begin with, beside those of rules: parts
/// (variable, first element, one after the last) and the index in `routes`. `UsageError` when these do not fit each other.
#[pyfunction]
#[pyo3(signature = (network, *, racks, workers, orders, codecs, chunk_bytes, shared_chunk_bytes, admitted,
    classes, variables, backward_end_s, step_s, gates, factors, seed, evaluations, splits, searched,
    routes = Vec::new(), given = Vec::new()))]
#[expect(clippy::too_many_arguments, reason = "all are named")]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn solve_plan(
    py: Python<'_>,
    network: &Network,
    racks: Vec<u32>,
    workers: usize,
    orders: Vec<DescribedOrder>,
    codecs: Vec<DescribedCodec>,
    chunk_bytes: f64,
    shared_chunk_bytes: f64,
    admitted: Option<Vec<String>>,
    classes: Vec<DescribedClass>,
    variables: Vec<(u64, usize, f64, f64)>,
    backward_end_s: f64,
    step_s: f64,
    gates: bool,
    factors: Vec<(String, Factors)>,
    seed: u64,
    evaluations: usize,
    splits: bool,
    searched: bool,
    routes: Vec<DescribedRoute>,
    given: Vec<Vec<DescribedBucket>>,
) -> PyResult<PlanSolution> {
    let order = |(rule, algorithm, ranks): DescribedOrder| {
        let algorithm = algorithm.map(|(name, numbers)| Algorithm::new(&name, numbers)).transpose()?;
        Ok(Order { rule, algorithm, ranks })
    };
    let codec =
        |(item_bytes, links): DescribedCodec| Codec { item_bytes, links: links.into_iter().collect() };
    let variable = |(elements, class, ready_s, needed_s)| Variable { elements, class, ready_s, needed_s };
    let solved = py.detach(|| {
        let orders: Result<Vec<Order>, plan::PlanError> = orders.into_iter().map(order).collect();
        let routes: Result<Vec<Proposal>, plan::PlanError> = routes.into_iter().map(proposal).collect();
        let setting = Setting {
            racks,
            workers,
            orders: orders?,
            codecs: codecs.into_iter().map(codec).collect(),
            chunk_bytes,
            shared_chunk_bytes,
            admitted: admitted.map(|names| names.into_iter().collect()),
            searched,
            seed,
            given: routes?,
        };
        let model = Model {
            variables: variables.into_iter().map(variable).collect(),
            classes: classes.into_iter().map(class).collect(),
            backward_end_s,
            step_s,
            overlap: if gates { Overlap::Gates } else { Overlap::Barrier },
        };
        let problem = Problem::new(&network.0, &setting, model, &factors)?;
        let begun: Option<Vec<Vec<Chosen>>> = given.into_iter().map(|each| chosen(&problem, each)).collect();
        let begun = begun
            .ok_or(plan::PlanError::Model("plans to begin with have routes or gradients that are none"))?;
        let solution = plan::solve(&problem, &Budget { seed, evaluations, splits }, &begun)?;
        Ok((solution, problem.proposals))
    });
    let (solution, proposals) = solved.map_err(|cause: plan::PlanError| refuse(py, &cause))?;
    let proposals: PyResult<Vec<_>> =
        proposals.into_iter().map(|each| Py::new(py, PlanProposal(each))).collect();
    Ok(PlanSolution { solution, proposals: proposals? })
}

/// A route that is given: known by its plan alone, so its order follows from no rule.
fn proposal(
    (by, order, chunk_bytes, codec, codec_links): DescribedRoute,
) -> Result<Proposal, plan::PlanError> {
    let rule = "given plan".to_owned();
    Ok(Proposal { exchange: exchange(by)?, order, rule, codec, codec_links, chunk_bytes, measured_as: "" })
}

/// Buckets of a plan whose routes are numbered as they were given; `None` for a route or a gradient that there is not.
fn chosen(problem: &Problem, buckets: Vec<DescribedBucket>) -> Option<Vec<Chosen>> {
    let bucket = |(parts, route): DescribedBucket| {
        let known = parts.iter().all(|&(variable, _, _)| variable < problem.model.variables.len());
        let proposal = problem.given.get(route).copied()?;
        (known && !parts.is_empty()).then_some(Chosen { parts, proposal })
    };
    buckets.into_iter().map(bucket).collect()
}

fn class((item_bytes, rows): DescribedClass) -> Class {
    let rows = rows.map(|(density, row_bytes, table)| Rows { density, row_bytes, table });
    Class { item_bytes, rows }
}

/// Buckets of gradients, given in their order by kind and size, as their indices. One bucket of each kind is open at a time. Closed
/// ones come first, the others in the order in which they were opened.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn partition(gradients: Vec<(usize, f64)>, rule: Told<plan::Rule>) -> Vec<Vec<usize>> {
    plan::partition(gradients, rule.0)
}
