//! All-reduce by trees that fill any network's links: as fast as its narrowest cut allows (Zhao et al., arXiv 2402.06787).
//!
//! Every rank collects an equal part of the elements along trees into it and spreads the sum along trees out of it. `wiring` is the
//! network as a graph; `graph` has the least time, `scale` whole numbers of trees for it, `split` removes switches, `pack` finds the
//! trees, `shallow` makes them less deep.

mod flow;
mod graph;
mod pack;
mod scale;
mod shallow;
mod split;
#[cfg(test)]
mod tests;
mod wiring;

use graph::{Graph, Ratio, divisor};
use hocket_network::Network;
use pack::Tree;
use std::collections::BTreeSet;

/// Trees in pairs: a part of the elements goes up one and down the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Forest {
    pub pairs: Vec<Pair>,
    /// Seconds of each bit of an all-reduce of any length: by the narrowest cut, and of the link that these trees keep busiest.
    pub least_s: f64,
    pub taken_s: f64,
}

/// Two trees with one root. Parents by rank, the root's is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub weight: u64,
    pub up: Vec<usize>,
    pub down: Vec<usize>,
}

/// The least seconds of each bit of an all-reduce whose ranks collect and spread equal parts; none where some cannot reach others.
pub fn least_s(network: &Network, workers: usize) -> Option<f64> {
    let wiring = wiring::wiring(network, workers);
    let bound = |graph: &Graph| graph.optimum().map(Ratio::value);
    let ratio = bound(&wiring.graph)? + bound(&wiring.graph.reversed())?;
    Some(ratio / workers as f64 / wiring.unit_bit_per_s)
}

/// Trees among the first `workers` ranks; none where some cannot reach others, or there is one rank alone.
pub fn forest(network: &Network, workers: usize) -> Option<Forest> {
    if workers < 2 {
        return None;
    }
    let wiring = wiring::wiring(network, workers);
    let (graph, reversed) = (&wiring.graph, wiring.graph.reversed());
    let bounds = [graph.optimum()?, reversed.optimum()?];
    let down = trees(graph, bounds[0], &wiring.routed)?;
    let up = if down.symmetric {
        down.clone()
    } else {
        let routed = wiring.routed.iter().map(|&(from, to)| (to, from)).collect();
        trees(&reversed, bounds[1], &routed)?
    };
    let least_s = (bounds[0].value() + bounds[1].value()) / workers as f64 / wiring.unit_bit_per_s;
    let mut found = Forest { pairs: paired(&up, &down, workers), least_s, taken_s: 0.0 };
    found.taken_s = found.busiest_s(network);
    Some(found)
}

impl Forest {
    /// As an algorithm's numbers: of each pair the weight, the parents up and the parents down.
    pub fn numbers(&self) -> Vec<u32> {
        let all = |pair: &Pair| {
            let parents = pair.up.iter().chain(&pair.down).map(|&parent| parent as u32);
            std::iter::once(pair.weight as u32).chain(parents).collect::<Vec<u32>>()
        };
        self.pairs.iter().flat_map(all).collect()
    }

    fn busiest_s(&self, network: &Network) -> f64 {
        let all: u64 = self.pairs.iter().map(|pair| pair.weight).sum();
        let mut busy_s = vec![0.0; network.links().len()];
        for pair in &self.pairs {
            let share = pair.weight as f64 / all as f64;
            let edges = |parents: &[usize]| parents.iter().copied().enumerate().collect::<Vec<_>>();
            let up = edges(&pair.up);
            let down = edges(&pair.down).into_iter().map(|(child, parent)| (parent, child));
            for (from, to) in up.into_iter().chain(down) {
                for &link in network.path(from as u32, to as u32) {
                    busy_s[link as usize] += share / network.bit_per_s(link);
                }
            }
        }
        busy_s.into_iter().fold(0.0, f64::max)
    }
}

/// Trees out of each rank.
#[derive(Clone)]
struct Packed {
    trees: Vec<Tree>,
    /// How many from each rank.
    each: u64,
    /// Whether they fit turned round, too.
    symmetric: bool,
}

fn trees(graph: &Graph, bound: Ratio, routed: &BTreeSet<(usize, usize)>) -> Option<Packed> {
    let scaled = scale::scaled(graph, bound);
    let between = split::without_switches(&scaled.graph, scaled.trees, routed);
    // Where a switch gets more than it passes on, or the reverse, no split may keep all cuts: fewer trees fit then.
    let each = if between.admits(scaled.trees) {
        scaled.trees
    } else {
        let left = between.optimum()?;
        left.under / left.over
    };
    let symmetric = between == between.reversed();
    (each > 0).then_some(())?;
    let trees = shallow::shallower(pack::packed(&between, each)?, &between);
    Some(Packed { trees, each, symmetric })
}

/// The parts of each root's elements that go up by one tree and down by one.
fn paired(up: &Packed, down: &Packed, workers: usize) -> Vec<Pair> {
    let mut found = Vec::new();
    for root in 0..workers {
        let of = |packed: &Packed, times: u64| -> Vec<(u64, Vec<usize>)> {
            let own = packed.trees.iter().filter(|tree| tree.root == root);
            own.map(|tree| (tree.weight * times, tree.parents.clone())).collect()
        };
        let (mut up, mut down) = (of(up, down.each), of(down, up.each));
        while let (Some((one, rising)), Some((other, falling))) = (up.last_mut(), down.last_mut()) {
            let weight = (*one).min(*other);
            found.push(Pair { weight, up: rising.clone(), down: falling.clone() });
            *one -= weight;
            *other -= weight;
            up.retain(|(left, _)| *left > 0);
            down.retain(|(left, _)| *left > 0);
        }
    }
    let common = found.iter().fold(0, |common, pair| divisor(common, pair.weight)).max(1);
    for pair in &mut found {
        pair.weight /= common;
    }
    found
}
