//! The alpha-beta model of one step's communication.
//!
//! Every link, and every rank's engine, serves the buckets in order of priority. A bucket is done when each of its links has
//! served it after those before it, and not before the time that it needs alone,
//! `head + max(busiest link, stall + slowest round) + tail` (alpha-beta with pipelining, Thakur et al. 2005, section 2; the round
//! is the cycle time of the ring's event graph). Every term falls when a link gets faster, so a better network is never predicted slower.
//!
//! Budget: 250 ns a bucket. What is linear in the elements is prepared once a route; of links and engines only those are looked at
//! that are, on some route, not always served before another.

use crate::network::{Network, PlanError};
use crate::route::{Load, Prepared, Route};

/// One bucket of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Index of its route.
    pub route: usize,
    /// Of the bucket.
    pub elements: f64,
    /// When its first byte may leave.
    pub start_s: f64,
    /// A factor for its time alone, where measurements show that the model is off.
    pub factor: f64,
}

/// Routes on a network.
pub struct Cost {
    routes: Vec<Prepared>,
    links: usize,
    /// By route: of the resources that are looked at.
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
        let prepared: Result<Vec<Prepared>, PlanError> = routes
            .iter()
            .map(|route| Prepared::new(route, network.counts(&route.algorithm)?.as_ref(), network))
            .collect();
        let prepared = prepared?;
        let kept = not_covered(&prepared);
        let loads = prepared.iter().map(|route| Columns::new(&kept, &route.loads));
        Ok(Self { loads: loads.collect(), links: network.links(), routes: prepared })
    }

    /// Seconds of one bucket with the network to itself.
    pub fn alone_s(&self, route: usize, elements: f64) -> Result<f64, PlanError> {
        let prepared = self.route(route)?;
        let mut chunks = Vec::new();
        prepared.chunks(elements, &mut chunks);
        Ok(prepared.alone(elements, &chunks).total_s)
    }

    /// When the last of a step's buckets is done, in seconds; buckets come in order of priority.
    pub fn done_s(&self, launches: &[Launch]) -> Result<f64, PlanError> {
        let mut free_s = vec![0.0_f64; self.loads.first().map_or(0, |route| route.element_s.len())];
        let mut busy_s = free_s.clone();
        let (mut done_s, mut chunks) = (0.0_f64, Vec::new());
        for launch in launches {
            let route = self.route(launch.route)?;
            route.chunks(launch.elements, &mut chunks);
            let alone = route.alone(launch.elements, &chunks);
            done_s = done_s.max(launch.start_s + alone.total_s * launch.factor);
            self.loads[launch.route].busy_s(launch.elements, &chunks, &mut busy_s);
            let (begins_s, mut last_s) = (launch.start_s + alone.head_s, 0.0_f64);
            for (free_s, busy_s) in free_s.iter_mut().zip(&busy_s) {
                // What is not used stays as free as it was.
                let served_s = if *free_s > begins_s { *free_s } else { begins_s } + busy_s;
                *free_s = if *busy_s > 0.0 { served_s } else { *free_s };
                let used_s = if *busy_s > 0.0 { served_s } else { 0.0 };
                last_s = if used_s > last_s { used_s } else { last_s };
            }
            done_s = done_s.max(if last_s > 0.0 { last_s + alone.tail_s } else { 0.0 });
        }
        Ok(done_s)
    }

    /// The same, with what every link carries.
    pub fn step(&self, launches: &[Launch]) -> Result<Step, PlanError> {
        let mut bytes = vec![0.0; self.links];
        for launch in launches {
            let each = &self.route(launch.route)?.bytes_per_element;
            bytes.iter_mut().zip(each).for_each(|(sum, each)| *sum += each * launch.elements);
        }
        Ok(Step { done_s: self.done_s(launches)?, bytes })
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

    fn busy_s(&self, elements: f64, chunks: &[f64], into: &mut [f64]) {
        into.iter_mut().zip(&self.element_s).for_each(|(busy_s, each_s)| *busy_s = elements * each_s);
        for (column, count) in self.message_s.iter().zip(chunks) {
            into.iter_mut().zip(column).for_each(|(busy_s, each_s)| *busy_s += count * each_s);
        }
    }
}

/// Links and ranks that no other is busy at least as long as on every route: of two that are equal, the first.
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
