//! The ranks, switches and rates of a network, from its links and routes: links that follow one another on a route meet in a vertex.

use super::graph::{Graph, divisor};
use hocket_network::Network;
use std::collections::{BTreeMap, BTreeSet};

/// Rates are whole multiples of a unit: up to so many parts of the slowest link are tried, and this many taken if none fits.
const PARTS_MAX: u64 = 64;
const PARTS: f64 = 1000.0;
/// Distance from a whole number that is rounding.
const ROUNDING: f64 = 1e-7;

/// A network as a graph.
pub struct Wiring {
    pub graph: Graph,
    /// Rate of one unit of capacity.
    pub unit_bit_per_s: f64,
    /// Pairs of vertices on a route, in its direction.
    pub routed: BTreeSet<(usize, usize)>,
}

/// Of the first `workers` ranks and the links between them.
pub fn wiring(network: &Network, workers: usize) -> Wiring {
    let points = Points::new(network, workers);
    let mut graph = Graph::new(workers, workers + points.switches);
    let used: BTreeSet<u32> = points.ways.iter().flat_map(|way| way.links.iter().copied()).collect();
    let rates: Vec<f64> = used.iter().map(|&link| network.bit_per_s(link)).collect();
    let (capacities, unit_bit_per_s) = whole(&rates);
    let without_limit = capacities.iter().sum();
    for (&link, capacity) in used.iter().zip(capacities) {
        let (from, to) = (points.vertex(tail(link)), points.vertex(head(link)));
        graph.add(from, to, capacity);
    }
    for rank in 0..workers {
        graph.add(rank, points.vertex(points.source(rank)), without_limit);
        graph.add(points.vertex(points.sink(rank)), rank, without_limit);
    }
    let mut routed = BTreeSet::new();
    for Way { from, to, links } in &points.ways {
        let heads = links.iter().map(|&link| points.vertex(head(link)));
        let first = [*from, points.vertex(points.source(*from))];
        let passed: Vec<usize> = first.into_iter().chain(heads).chain([*to]).collect();
        for (at, &vertex) in passed.iter().enumerate() {
            routed.extend(
                passed[at + 1..].iter().filter(|&&later| later != vertex).map(|&later| (vertex, later)),
            );
        }
    }
    Wiring { graph, unit_bit_per_s, routed }
}

/// Rates as multiples of a unit, rounded down where there is no common one.
fn whole(rates: &[f64]) -> (Vec<u64>, f64) {
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let in_parts = |parts: f64| rates.iter().map(move |rate| rate / slowest * parts);
    let is_whole = |part: f64| (part - part.round()).abs() <= ROUNDING * part;
    let fits = |parts: &u64| in_parts(*parts as f64).all(is_whole);
    match (1..=PARTS_MAX).find(fits) {
        Some(parts) => {
            let found: Vec<u64> = in_parts(parts as f64).map(|part| part.round() as u64).collect();
            let common = found.iter().copied().fold(0, divisor).max(1);
            (found.iter().map(|part| part / common).collect(), slowest / parts as f64 * common as f64)
        }
        None => (in_parts(PARTS).map(|part| part as u64).collect(), slowest / PARTS),
    }
}

struct Way {
    from: usize,
    to: usize,
    links: Vec<u32>,
}

const fn tail(link: u32) -> usize {
    2 * link as usize
}

const fn head(link: u32) -> usize {
    2 * link as usize + 1
}

/// Both ends of links and of ranks, joined where routes lead from one to the other.
struct Points {
    workers: usize,
    links: usize,
    /// Routes that no rank between the two passes on.
    ways: Vec<Way>,
    /// By point: one of those that it is joined with, up to one for all.
    joined: Vec<usize>,
    /// By such a point: the vertex.
    vertices: BTreeMap<usize, usize>,
    switches: usize,
}

impl Points {
    fn new(network: &Network, workers: usize) -> Self {
        let links = network.links().len();
        let (mut beginning, mut ending) = (vec![BTreeSet::new(); links], vec![BTreeSet::new(); links]);
        let pairs = || (0..workers).flat_map(|from| (0..workers).map(move |to| (from, to)));
        for (from, to) in pairs() {
            let path = network.path(from as u32, to as u32);
            if let (Some(&first), Some(&last)) = (path.first(), path.last()) {
                beginning[first as usize].insert(from);
                ending[last as usize].insert(to);
            }
        }
        // Through a rank, which could as well keep what it passes on.
        let through = |two: &[u32]| {
            let (ends, begins) = (&ending[two[0] as usize], &beginning[two[1] as usize]);
            ends.len() == 1 && ends == begins
        };
        let way = |(from, to)| Way { from, to, links: network.path(from as u32, to as u32).to_vec() };
        let direct = |way: &Way| !way.links.is_empty() && !way.links.windows(2).any(through);
        let ways = pairs().map(way).filter(direct).collect();
        let joined = (0..2 * (links + workers)).collect();
        let mut made = Self { workers, links, ways, joined, vertices: BTreeMap::new(), switches: 0 };
        made.join();
        made.number();
        made
    }

    const fn source(&self, rank: usize) -> usize {
        2 * (self.links + rank)
    }

    const fn sink(&self, rank: usize) -> usize {
        2 * (self.links + rank) + 1
    }

    fn join(&mut self) {
        let mut together = BTreeSet::new();
        for Way { from, to, links } in &self.ways {
            together.insert((self.source(*from), tail(links[0])));
            together.extend(links.windows(2).map(|two| (head(two[0]), tail(two[1]))));
            together.insert((head(links[links.len() - 1]), self.sink(*to)));
        }
        for (one, other) in together {
            let (one, other) = (self.root(one), self.root(other));
            self.joined[one.max(other)] = one.min(other);
        }
    }

    fn root(&self, point: usize) -> usize {
        let mut at = point;
        while self.joined[at] != at {
            at = self.joined[at];
        }
        at
    }

    /// A point that is joined with one rank alone is that rank; others are switches.
    fn number(&mut self) {
        let mut ranks: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for rank in 0..self.workers {
            for point in [self.source(rank), self.sink(rank)] {
                ranks.entry(self.root(point)).or_default().insert(rank);
            }
        }
        let crossed = self.ways.iter().flat_map(|way| &way.links);
        let ends: BTreeSet<usize> =
            crossed.flat_map(|&link| [self.root(tail(link)), self.root(head(link))]).collect();
        for root in ends.into_iter().chain(ranks.keys().copied()) {
            if !self.vertices.contains_key(&root) {
                let own = ranks.get(&root).filter(|own| own.len() == 1).and_then(|own| own.first());
                self.vertices.insert(root, own.copied().unwrap_or(self.workers + self.switches));
                self.switches += usize::from(own.is_none());
            }
        }
    }

    fn vertex(&self, point: usize) -> usize {
        self.vertices[&self.root(point)]
    }
}
