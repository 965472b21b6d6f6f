//! Ranks, switches and what links between them can carry, and the conditions under which trees from every rank fit them.

use super::flow::Flow;
use std::collections::BTreeMap;

/// Capacities by edge. The first vertices are ranks; the others are switches, which only pass on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    pub ranks: usize,
    pub vertices: usize,
    /// By edge, without loops; none of zero.
    pub capacities: BTreeMap<(usize, usize), u64>,
}

/// A fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    pub over: u64,
    pub under: u64,
}

impl Ratio {
    pub fn new(over: u64, under: u64) -> Self {
        let divisor = divisor(over, under).max(1);
        Self { over: over / divisor, under: under / divisor }
    }

    pub fn value(self) -> f64 {
        self.over as f64 / self.under as f64
    }
}

pub const fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

impl Graph {
    pub fn new(ranks: usize, vertices: usize) -> Self {
        Self { ranks, vertices, capacities: BTreeMap::new() }
    }

    /// Adds to the capacity of an edge.
    pub fn add(&mut self, from: usize, to: usize, capacity: u64) {
        if from != to && capacity > 0 {
            *self.capacities.entry((from, to)).or_default() += capacity;
        }
    }

    /// Takes off the capacity of an edge.
    pub fn take(&mut self, edge: (usize, usize), capacity: u64) {
        let left = self.capacities.get(&edge).copied().unwrap_or_default().saturating_sub(capacity);
        if left == 0 {
            self.capacities.remove(&edge);
        } else {
            self.capacities.insert(edge, left);
        }
    }

    /// All edges turned round.
    pub fn reversed(&self) -> Self {
        let turned = self.capacities.iter().map(|(&(from, to), &capacity)| ((to, from), capacity));
        Self { capacities: turned.collect(), ..self.clone() }
    }

    /// With capacities of another scale.
    pub fn scaled(&self, scale: impl Fn(u64) -> u64) -> Self {
        let capacities = self.capacities.iter().map(|(&edge, &capacity)| (edge, scale(capacity)));
        Self { capacities: capacities.filter(|(_, capacity)| *capacity > 0).collect(), ..self.clone() }
    }

    /// A flow network of the edges and of one edge to each rank from a source, which is its last vertex; and the edges' numbers.
    pub fn flow(&self, from_source: u64) -> (Flow, BTreeMap<(usize, usize), usize>) {
        let mut flow = Flow::new(self.vertices + 1);
        for rank in 0..self.ranks {
            flow.edge(self.vertices, rank, from_source);
        }
        let edge = |(&(from, to), &capacity)| ((from, to), flow.edge(from, to, capacity));
        let numbers = self.capacities.iter().map(edge).collect();
        (flow, numbers)
    }

    /// Whether `trees` out of each rank fit: into every set of vertices with a rank, as much can flow as is outside (Edmonds 1973).
    pub fn admits(&self, trees: u64) -> bool {
        let (mut flow, _) = self.flow(trees);
        let all = trees * self.ranks as u64;
        (0..self.ranks).all(|rank| flow.most(self.vertices, rank, all) == all)
    }

    /// The least time in which every rank can send one unit to all others: the largest ratio, over cuts, of the ranks before the cut
    /// to what can cross it (Zhao et al., arXiv 2402.06787, section 4). None where a rank cannot be reached.
    ///
    /// From any cut's ratio on, a flow shows a cut of a larger one until there is none (Dinkelbach 1967): whole numbers all the way.
    pub fn optimum(&self) -> Option<Ratio> {
        let all = self.ranks as u64;
        let into = |rank: usize| self.crossing(|vertex| vertex != rank);
        let starts: Option<Vec<Ratio>> = (0..self.ranks)
            .map(|rank| Some(into(rank)).filter(|&into| into > 0).map(|into| Ratio::new(all - 1, into)))
            .collect();
        let mut best = starts?.into_iter().max_by(|one, other| one.value().total_cmp(&other.value()))?;
        while let Some(larger) = self.larger(best) {
            if larger.under == 0 {
                return None;
            }
            best = larger;
        }
        Some(best)
    }

    /// The ratio of a cut that has a larger one; over zero where nothing crosses it.
    fn larger(&self, than: Ratio) -> Option<Ratio> {
        let (mut flow, _) = self.scaled(|capacity| capacity * than.over).flow(than.under);
        let all = than.under * self.ranks as u64;
        for rank in 0..self.ranks {
            if flow.most(self.vertices, rank, all) < all {
                let side = flow.source_side();
                let before = (0..self.ranks).filter(|&rank| side[rank]).count() as u64;
                return Some(Ratio::new(before, self.crossing(|vertex| side[vertex])));
            }
        }
        None
    }

    /// Capacity out of a set of vertices.
    fn crossing(&self, before: impl Fn(usize) -> bool) -> u64 {
        let crossing = self.capacities.iter().filter(|((from, to), _)| before(*from) && !before(*to));
        crossing.map(|(_, capacity)| capacity).sum()
    }
}
