//! The simulator: compiled programs, and jobs in virtual time.

use crate::artefact::Told;
use crate::exceptions::{error, error_with};
use crate::network::Network;
use crate::program::Program;
use hocket_network::Bus;
use hocket_schedule::Schedule;
use hocket_simulate as sim;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

fn refuse(py: Python<'_>, cause: &sim::Error) -> PyErr {
    let message = cause.to_string();
    match cause {
        sim::Error::Program { .. } => error(py, "ProgramError", &message),
        sim::Error::Network(_) | sim::Error::Job { .. } => error(py, "UsageError", &message),
        sim::Error::Stuck { at_s, ranks, .. } => error_with(py, "SimulationError", &message, |attributes| {
            attributes.set_item("at_s", at_s)?;
            attributes.set_item("ranks", ranks)
        }),
    }
}

/// Send, receive, reduce, cast, copy, socket; rendezvous.
type Costs = (f64, f64, f64, f64, f64, f64, bool);

fn costs((send_s, receive_s, reduce, cast, copy, socket, rendezvous): Costs) -> sim::Costs {
    sim::Costs {
        send_s,
        receive_s,
        reduce_s_per_byte: reduce,
        cast_s_per_byte: cast,
        copy_s_per_byte: copy,
        socket_s_per_byte: socket,
        rendezvous,
        bus: None,
    }
}

/// A program of all ranks with its routes and costs, or a pattern whose ops are computed.
#[pyclass(module = "hocket._native", frozen, from_py_object)]
#[derive(Clone)]
pub struct SimulatedProgram(Arc<sim::Graph>);

#[pymethods]
impl SimulatedProgram {
    /// `card`: the one whose routes messages take; `share`: part of each message that it carries; `bus`: of each rank's device, if the
    /// program is `staged`. `ProgramError` names the first op at which ranks diverge; `UsageError` a route that is missing.
    #[staticmethod]
    #[pyo3(signature = (program, network, costs, *, card = 0, share = 1.0, bus = None))]
    fn compile(
        py: Python<'_>,
        program: &Program,
        network: &Network,
        costs: Costs,
        card: u32,
        share: f64,
        bus: Option<Told<Bus>>,
    ) -> PyResult<Self> {
        let costs = sim::Costs { bus: bus.map(|told| told.0), ..self::costs(costs) };
        let part = sim::Part { card, share };
        let made = py.detach(|| sim::compile_part(program.inner(), &network.0, &costs, part));
        made.map(|graph| Self(Arc::new(graph))).map_err(|cause| refuse(py, &cause))
    }

    /// Ring all-reduce of `size_bytes` a rank in rank order; cannot be recorded.
    #[staticmethod]
    fn ring(py: Python<'_>, world: u32, size_bytes: u64, network: &Network, costs: Costs) -> PyResult<Self> {
        let made = sim::Ring::new(world, size_bytes, &network.0, &self::costs(costs));
        made.map(|ring| Self(Arc::new(sim::Graph::Ring(ring)))).map_err(|cause| refuse(py, &cause))
    }

    /// All parts of `size_bytes` a rank in flight at once; cannot be recorded.
    #[staticmethod]
    fn all_to_all(
        py: Python<'_>,
        world: u32,
        size_bytes: u64,
        network: &Network,
        costs: Costs,
    ) -> PyResult<Self> {
        let made = sim::AllToAll::new(world, size_bytes, &network.0, &self::costs(costs));
        made.map(|all| Self(Arc::new(sim::Graph::AllToAll(all)))).map_err(|cause| refuse(py, &cause))
    }

    /// Traffic without a program: source, destination, bytes, messages that it comes after, seconds since the last of those;
    /// messages cost nothing at `switches`. By rank, ops are in the order of messages: a wait and a send at the source, a receive
    /// at the destination; a wait alone for one from a rank to itself. `UsageError` for what makes no sense.
    #[staticmethod]
    fn messages(
        py: Python<'_>,
        world: u32,
        messages: Vec<(u32, u32, u64, Vec<u32>, f64)>,
        switches: Vec<u32>,
        network: &Network,
        costs: Costs,
    ) -> PyResult<Self> {
        let timed = |(source, destination, bytes, after, gap_s)| sim::Timed {
            source,
            destination,
            bytes,
            after,
            gap_s,
        };
        let messages: Vec<sim::Timed> = messages.into_iter().map(timed).collect();
        let network = &network.0;
        let made = py.detach(move || sim::timed(world, &messages, &switches, network, &self::costs(costs)));
        made.map(|graph| Self(Arc::new(graph))).map_err(|cause| refuse(py, &cause))
    }

    fn __len__(&self) -> usize {
        self.0.ops() as usize
    }
}

/// What came of a job, in virtual time.
#[pyclass(module = "hocket._native", frozen)]
pub struct Simulation(sim::Outcome);

#[pymethods]
impl Simulation {
    /// When the last rank ended.
    #[getter]
    fn end_s(&self) -> f64 {
        sim::to_s(self.0.end)
    }

    /// By phase, then by rank.
    #[getter]
    fn phase_ends_s(&self) -> Vec<Vec<f64>> {
        self.0.phase_ends.iter().map(|ends| ends.iter().copied().map(sim::to_s).collect()).collect()
    }

    /// First start and last end of each launch, phase by phase.
    #[getter]
    fn launches_s(&self) -> Vec<(f64, f64)> {
        self.0.launches.iter().map(|span| (sim::to_s(span.start), sim::to_s(span.end))).collect()
    }

    /// By link.
    #[getter]
    fn link_bytes(&self) -> Vec<f64> {
        self.0.link_bytes.clone()
    }

    /// Received.
    #[getter]
    fn messages(&self) -> u64 {
        self.0.messages
    }

    /// Of the virtual clock.
    #[getter]
    fn events(&self) -> u64 {
        self.0.events
    }

    /// As they lie in a trace file, `program` being the launch; empty unless recorded.
    fn records<'py>(&self, py: Python<'py>, rank: usize) -> Bound<'py, PyBytes> {
        let records = self.0.records.get(rank).map_or(&[][..], Vec::as_slice);
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.to_bytes(0)).collect();
        PyBytes::new(py, &bytes)
    }
}

/// (graph, priority, seconds after the start of the phase: by rank, or one for all).
type Launch = (usize, u32, Vec<f64>);
/// Launches, minimum seconds and seconds after: by rank, one for all, or none.
type Phase = (Vec<Launch>, Vec<f64>, Vec<f64>);

fn phase((launches, busy_s, tail_s): Phase) -> sim::Phase {
    let times = |times: Vec<f64>| times.into_iter().map(sim::from_s).collect();
    let launch = |(graph, priority, after_s)| sim::Launch { graph, priority, after: times(after_s) };
    sim::Phase {
        launches: launches.into_iter().map(launch).collect(),
        busy: times(busy_s),
        tail: times(tail_s),
    }
}

/// What every rank does. `UsageError` for times, launches or acts that do not fit each other.
#[pyclass(module = "hocket._native", frozen)]
pub struct SimulatedJob(sim::Job);

#[pymethods]
impl SimulatedJob {
    /// Phases one after the other on each rank: nothing outlasts its phase.
    #[staticmethod]
    fn phases(py: Python<'_>, world: usize, phases: Vec<Phase>) -> PyResult<Self> {
        let phases: Vec<sim::Phase> = phases.into_iter().map(phase).collect();
        sim::Job::of_phases(world, &phases).map(Self).map_err(|cause| refuse(py, &cause))
    }

    /// `count` iterations by a schedule. `buckets`: program, priority, and when it is needed and ready, in seconds after forward
    /// began. A launch that is due earlier goes first, and then by priority. `pace`: factors on computation, one for all ranks or
    /// by rank; `late_s`: seconds by which each begins an iteration late, or none.
    #[staticmethod]
    #[pyo3(signature = (world, schedule, buckets, *, backward_end_s, step_s, count, pace, late_s = Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    #[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
    fn scheduled(
        py: Python<'_>,
        world: usize,
        schedule: Told<Schedule>,
        buckets: Vec<(usize, u32, f64, f64)>,
        backward_end_s: f64,
        step_s: f64,
        count: usize,
        pace: Vec<f64>,
        late_s: Vec<f64>,
    ) -> PyResult<Self> {
        let bucket =
            |(graph, priority, needed_s, ready_s)| sim::Bucket { graph, priority, needed_s, ready_s };
        let buckets = buckets.into_iter().map(bucket).collect();
        let training = sim::Training { buckets, backward_end_s, step_s, count };
        let made = sim::Job::scheduled(world, &schedule.0, &training, &pace, &late_s);
        made.map(Self).map_err(|cause| refuse(py, &cause))
    }
}

/// Run a job. `slow`: rank and factor; `changes`: seconds, link, bit/s from then on.
///
/// `SimulationError` when nothing moves and ranks have not ended.
#[pyfunction]
#[pyo3(signature = (network, programs, job, *, rendezvous, seed, jitter, slow, changes, recorded))]
#[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
pub fn simulate(
    py: Python<'_>,
    network: &Network,
    programs: Vec<SimulatedProgram>,
    job: &SimulatedJob,
    rendezvous: bool,
    seed: u64,
    jitter: f64,
    slow: Vec<(u32, f64)>,
    changes: Vec<(f64, u32, f64)>,
    recorded: bool,
) -> PyResult<Simulation> {
    let owned: Vec<Arc<sim::Graph>> = programs.into_iter().map(|program| program.0).collect();
    let graphs: Vec<&sim::Graph> = owned.iter().map(|graph| &**graph).collect();
    let job = &job.0;
    let change = |(at_s, link, bit_per_s)| sim::CapacityChange { at_s, link, bit_per_s };
    let conditions =
        sim::Conditions { seed, jitter, slow, changes: changes.into_iter().map(change).collect() };
    let outcome = py.detach(|| sim::simulate(&network.0, &graphs, job, rendezvous, &conditions, recorded));
    outcome.map(Simulation).map_err(|cause| refuse(py, &cause))
}
