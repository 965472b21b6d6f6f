//! The alpha-beta model of one step's communication.
//!
//! Every link, and every rank's engine, serves the buckets that are ready in order of priority (`timeline.rs`). A
//! bucket is done when each of its links has served it and those before it, and not before the time that it needs
//! alone, `head + max(busiest link, stall + slowest round) + tail` (alpha-beta with pipelining, Thakur et al. 2005,
//! section 2; the round is the cycle time of the ring's event graph). Every term falls when a link gets faster, so a
//! better network is never predicted slower; owners, which wait for what fair links bring them late (`fair.rs`), are the exception.
//!
//! Budget: 250 ns per bucket. Terms linear in the elements are prepared once per route; only those links and engines
//! are evaluated that are not dominated by another on every route.

use crate::error::PlanError;
use crate::prepared::{Load, Prepared};
use crate::route::Route;
use crate::timeline::{Piece, Timeline};
use hocket_network::Network;

/// One bucket of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Index of its route.
    pub route: usize,
    /// Number of elements.
    pub elements: f64,
    /// When its first byte may leave.
    pub start_s: f64,
    /// A factor on its time alone, where measurements show that the model is off.
    pub factor: f64,
}

/// Routes on a network.
pub struct Cost {
    routes: Vec<Prepared>,
    links: usize,
    /// Those that are evaluated: links, and from their number on the ranks' engines.
    kept: Vec<usize>,
    /// By route: of the evaluated resources.
    loads: Vec<Columns>,
}

/// Loads of resources, a column for each coefficient: the loop over resources is one of vectors.
struct Columns {
    element_s: Vec<f64>,
    /// By class.
    message_s: Vec<Vec<f64>>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When the last bucket is done.
    pub done_s: f64,
    /// By link.
    pub bytes: Vec<f64>,
}

impl Cost {
    /// Prepares the routes.
    pub fn new(network: &Network, routes: &[Route]) -> Result<Self, PlanError> {
        let prepared: Result<Vec<Prepared>, PlanError> =
            routes.iter().map(|route| Prepared::new(route, network)).collect();
        let prepared = prepared?;
        let kept = not_covered(&prepared);
        let loads = prepared.iter().map(|route| Columns::new(&kept, &route.loads)).collect();
        Ok(Self { loads, links: network.links().len(), kept, routes: prepared })
    }

    /// The evaluated links and engines.
    pub fn resources(&self) -> usize {
        self.loads.first().map_or(0, |route| route.element_s.len())
    }

    /// Which links and engines they are: of links their numbers; the engine of rank `r` is `r` after the last link.
    pub fn kept(&self) -> &[usize] {
        &self.kept
    }

    /// Seconds of one bucket with the network to itself.
    pub fn alone_s(&self, route: usize, elements: f64) -> Result<f64, PlanError> {
        let prepared = self.route(route)?;
        Ok(prepared.alone(elements, &prepared.chunks(elements)).total_s)
    }

    /// A bucket's load on links and engines.
    pub fn piece(&self, launch: &Launch) -> Result<Piece, PlanError> {
        let route = self.route(launch.route)?;
        let chunks = route.chunks(launch.elements);
        let alone = route.alone(launch.elements, &chunks);
        Ok(Piece {
            start_s: launch.start_s,
            head_s: alone.head_s,
            tail_s: alone.tail_s,
            alone_s: alone.total_s * launch.factor,
            busy_s: self.loads[launch.route].busy_s(launch.elements, &chunks),
        })
    }

    /// Minimum seconds of each link and engine per element, however buckets are cut.
    pub fn least_s(&self, route: usize) -> Result<Vec<f64>, PlanError> {
        let per_element = self.route(route)?.chunks_per_element();
        let columns = &self.loads[route];
        let mut least_s = columns.element_s.clone();
        for (column, chunks) in columns.message_s.iter().zip(per_element) {
            least_s.iter_mut().zip(column).for_each(|(sum_s, each_s)| *sum_s += chunks * each_s);
        }
        Ok(least_s)
    }

    /// Sizes at which a route's cost bends: messages are one chunk long.
    pub fn bends(&self, route: usize) -> Result<Vec<f64>, PlanError> {
        Ok(self.route(route)?.chunks_per_element().iter().map(|per_element| 1.0 / per_element).collect())
    }

    /// A step with buckets in order of priority, and each link's traffic.
    pub fn step(&self, launches: &[Launch]) -> Result<Step, PlanError> {
        let mut bytes = vec![0.0; self.links];
        let mut pieces = Vec::with_capacity(launches.len());
        for launch in launches {
            pieces.push(self.piece(launch)?);
            let each = &self.route(launch.route)?.bytes_per_element;
            bytes.iter_mut().zip(each).for_each(|(sum, each)| *sum += each * launch.elements);
        }
        let outcome = Timeline::new(self.resources()).run(&pieces, f64::INFINITY);
        Ok(Step { done_s: outcome.map_or(0.0, |outcome| outcome.done_s), bytes })
    }

    fn route(&self, route: usize) -> Result<&Prepared, PlanError> {
        self.routes.get(route).ok_or(PlanError::Route { route, routes: self.routes.len() })
    }
}

impl Columns {
    fn new(kept: &[usize], loads: &[Load]) -> Self {
        let classes = loads.first().map_or(0, |load| load.message_s.len());
        let column = |class: usize| kept.iter().map(|&at| loads[at].message_s[class]).collect();
        Self {
            element_s: kept.iter().map(|&at| loads[at].element_s).collect(),
            message_s: (0..classes).map(column).collect(),
        }
    }

    fn busy_s(&self, elements: f64, chunks: &[f64]) -> Vec<f64> {
        let mut busy_s: Vec<f64> = self.element_s.iter().map(|each_s| elements * each_s).collect();
        for (column, count) in self.message_s.iter().zip(chunks) {
            busy_s.iter_mut().zip(column).for_each(|(busy_s, each_s)| *busy_s += count * each_s);
        }
        busy_s
    }
}

/// Links and ranks that no other dominates on every route: of two equal ones, the first.
fn not_covered(routes: &[Prepared]) -> Vec<usize> {
    let covers =
        |one: usize, other: usize| routes.iter().all(|route| route.loads[one].covers(&route.loads[other]));
    let mut kept: Vec<usize> = Vec::new();
    for at in 0..routes.first().map_or(0, |route| route.loads.len()) {
        if !kept.iter().any(|&known| covers(known, at)) {
            kept.retain(|&known| !covers(at, known));
            kept.push(at);
        }
    }
    kept
}
