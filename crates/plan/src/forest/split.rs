//! Removal of switches: what flows into one and out of it again becomes capacity between its neighbours, until only ranks are left.
//!
//! Cuts must keep what trees need. Where a switch passes on as much as it gets, there is always such a split (Bang-Jensen, Frank and
//! Jackson 1995; Zhao et al., arXiv 2402.06787, section 5.2). The even one among neighbours whose routes lead through the switch, or
//! whom it alone connects, keeps it for most networks, and is tried first; else pair by pair, each as far as all cuts allow.

use super::flow::Flow;
use super::graph::Graph;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

type Pair = (usize, usize);

/// Numbers of neighbours that each one before a switch sends to, fewest first: flows of few pairs share few links, on which the one
/// that is behind gets no more than others.
const SPREADS: [usize; 4] = [1, 2, 4, usize::MAX];

#[derive(Clone)]
struct Split {
    graph: Graph,
    trees: u64,
}

/// Capacities between ranks alone, with room for `trees` out of each rank. `routed`: pairs of vertices on a route, which come first.
pub fn without_switches(graph: &Graph, trees: u64, routed: &BTreeSet<Pair>) -> Graph {
    // All trees together do not cross a link more often.
    let most = trees * (graph.ranks * graph.ranks) as u64;
    let graph = graph.scaled(|capacity| capacity.min(most));
    let mut split = Split { graph, trees };
    let mut switches: Vec<usize> = (split.graph.ranks..split.graph.vertices).collect();
    while let Some(at) = (0..switches.len()).min_by_key(|&at| split.pairs(switches[at])) {
        let switch = switches.remove(at);
        let parts = split.parts(switch);
        let on_routes: &dyn Fn(Pair) -> bool = &|pair| routed.contains(&pair);
        let only_here: &dyn Fn(Pair) -> bool = &|(from, to)| parts[from] != parts[to];
        let wanted = [[on_routes, on_routes], [only_here, on_routes]];
        let mut tried =
            SPREADS.into_iter().flat_map(|spread| wanted.iter().map(move |wanted| (spread, wanted)));
        let even = tried.find_map(|(spread, wanted)| {
            let mut even = split.clone();
            even.fill(switch, wanted, spread);
            even.remove(switch);
            even.graph.admits(trees).then_some(even)
        });
        split = even.unwrap_or_else(|| {
            Exact::new(&mut split, switch).all(routed);
            split.remove(switch);
            split
        });
    }
    Graph { vertices: split.graph.ranks, ..split.graph }
}

impl Split {
    /// Vertices before a switch, and after it, with the capacities.
    fn neighbours(&self, switch: usize) -> [Vec<(usize, u64)>; 2] {
        let edges = || self.graph.capacities.iter();
        let before = edges().filter(|((_, to), _)| *to == switch).map(|((from, _), &c)| (*from, c));
        let after = edges().filter(|((from, _), _)| *from == switch).map(|((_, to), &c)| (*to, c));
        [before.collect(), after.collect()]
    }

    fn pairs(&self, switch: usize) -> usize {
        let [before, after] = self.neighbours(switch);
        before.len() * after.len()
    }

    /// By vertex: one of those that it is connected with beside a switch, the same for all of them.
    fn parts(&self, switch: usize) -> Vec<usize> {
        let mut parts: Vec<usize> = (0..self.graph.vertices).collect();
        let beside = self.graph.capacities.keys().filter(|(from, to)| *from != switch && *to != switch);
        for &(from, to) in beside {
            let (one, other) = (parts[from], parts[to]);
            if one != other {
                parts.iter_mut().filter(|part| **part == other).for_each(|part| *part = one);
            }
        }
        parts
    }

    /// Shares out what flows through a switch as evenly as whole numbers allow: of each vertex before it among so many of those
    /// behind that the first of `wanted` names which names any, at first.
    fn fill(&mut self, switch: usize, wanted: &[&dyn Fn(Pair) -> bool], spread: usize) {
        let [mut before, mut after] = self.neighbours(switch);
        let partners: Vec<Vec<usize>> = before
            .iter()
            .map(|&(from, _)| {
                let places = |wanted: &dyn Fn(usize) -> bool| -> Vec<usize> {
                    (0..after.len()).filter(|&at| wanted(after[at].0)).collect()
                };
                let others = places(&|to| to != from);
                let named = wanted.iter().map(|wanted| places(&|to| to != from && wanted((from, to))));
                let mut found = named.chain([others]).find(|found| !found.is_empty()).unwrap_or_default();
                // Those after it first, so that no vertex is everybody's first.
                let first = found.iter().position(|&at| after[at].0 > from).unwrap_or_default();
                found.rotate_left(first);
                found
            })
            .collect();
        loop {
            let mut moved = false;
            let mut used = vec![vec![false; after.len()]; before.len()];
            for round in 0..spread.min(after.len()) {
                for (((from, left), partners), used) in before.iter_mut().zip(&partners).zip(&mut used) {
                    let rounds = spread.min(partners.len());
                    let open = partners.iter().copied().filter(|&at| !used[at] && after[at].1 > 0);
                    let Some(at) = open.min_by_key(|&at| Reverse(after[at].1)) else { continue };
                    let amount = left.div_ceil(rounds.saturating_sub(round).max(1) as u64).min(after[at].1);
                    if round < rounds && amount > 0 {
                        self.shift(*from, switch, after[at].0, amount);
                        *left -= amount;
                        after[at].1 -= amount;
                        used[at] = true;
                        moved = true;
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Makes capacity through a switch capacity between its neighbours.
    fn shift(&mut self, from: usize, switch: usize, to: usize, amount: u64) {
        self.graph.take((from, switch), amount);
        self.graph.take((switch, to), amount);
        self.graph.add(from, to, amount);
    }

    /// Drops what is left of a switch's edges.
    fn remove(&mut self, switch: usize) {
        self.graph.capacities.retain(|(from, to), _| *from != switch && *to != switch);
    }
}

/// Splits one switch pair by pair.
struct Exact<'a> {
    split: &'a mut Split,
    switch: usize,
    /// Of the source, which is in front of all cuts, to each vertex, and of each vertex to the sink, which is behind them: as far as
    /// a question needs.
    flow: Flow,
    sink: usize,
    heads: Vec<usize>,
    tails: Vec<usize>,
    numbers: BTreeMap<Pair, usize>,
    /// What crosses every cut at least.
    all: u64,
}

impl<'a> Exact<'a> {
    fn new(split: &'a mut Split, switch: usize) -> Self {
        let (graph, trees) = (&split.graph, split.trees);
        let mut flow = Flow::new(graph.vertices + 2);
        let (source, sink) = (graph.vertices, graph.vertices + 1);
        let heads = (0..graph.vertices).map(|vertex| {
            let own = if vertex < graph.ranks { trees } else { 0 };
            flow.edge(source, vertex, own)
        });
        let heads = heads.collect();
        let tails = (0..graph.vertices).map(|vertex| flow.edge(vertex, sink, 0)).collect();
        let edge = |(&(from, to), &capacity): (&Pair, &u64)| ((from, to), flow.edge(from, to, capacity));
        let numbers = graph.capacities.iter().map(edge).collect();
        let all = trees * graph.ranks as u64;
        Self { split, switch, flow, sink, heads, tails, numbers, all }
    }

    fn all(&mut self, routed: &BTreeSet<Pair>) {
        self.balance();
        let [before, after] = self.split.neighbours(self.switch);
        let mut pairs: Vec<Pair> =
            before.iter().flat_map(|(from, _)| after.iter().map(move |(to, _)| (*from, *to))).collect();
        // Routed ones first; of a vertex with itself, which is no capacity at all, last.
        let apart = |(from, to): &Pair| (to + self.split.graph.vertices - from) % self.split.graph.vertices;
        pairs.sort_by_key(|pair| (pair.0 == pair.1, !routed.contains(pair), apart(pair)));
        let others = after.len().saturating_sub(1).max(1) as u64;
        let largest = before.iter().map(|(_, capacity)| capacity.div_ceil(others)).max().unwrap_or_default();
        for quota in [largest, u64::MAX] {
            for &(from, to) in &pairs {
                let [into, out] = [self.capacity((from, self.switch)), self.capacity((self.switch, to))];
                let most = quota.min(into).min(out);
                let amount = self.slack(&[from, to], &[self.switch], most);
                let amount = self.slack(&[self.switch], &[from, to], amount);
                if amount > 0 {
                    self.split.shift(from, self.switch, to, amount);
                    self.update((from, self.switch));
                    self.update((self.switch, to));
                    self.update((from, to));
                }
            }
        }
    }

    /// Takes capacity off the side of the switch that has more, as far as cuts allow.
    fn balance(&mut self) {
        let sides = self.split.neighbours(self.switch);
        let [into, out] = [0, 1].map(|side: usize| sides[side].iter().map(|(_, c)| c).sum::<u64>());
        let larger = usize::from(out > into);
        let (sum, mut excess) = (into.max(out), into.abs_diff(out));
        let share = excess;
        for even in [true, false] {
            for &(vertex, capacity) in &sides[larger] {
                let edge = if larger == 0 { (vertex, self.switch) } else { (self.switch, vertex) };
                let quota = if even { (capacity * share).div_ceil(sum) } else { excess };
                let most = quota.min(excess).min(self.capacity(edge));
                let amount = self.slack(&[edge.0], &[edge.1], most);
                self.split.graph.take(edge, amount);
                self.update(edge);
                excess -= amount;
            }
        }
    }

    fn capacity(&self, pair: Pair) -> u64 {
        self.split.graph.capacities.get(&pair).copied().unwrap_or_default()
    }

    fn update(&mut self, pair: Pair) {
        let capacity = self.capacity(pair);
        match self.numbers.get(&pair) {
            Some(&number) => self.flow.set(number, capacity),
            None if pair.0 != pair.1 => {
                self.numbers.insert(pair, self.flow.edge(pair.0, pair.1, capacity));
            }
            None => {}
        }
    }

    /// How much less may cross the cuts with some vertices before them, and others and a rank behind; no more than `most`.
    fn slack(&mut self, before: &[usize], behind: &[usize], most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        let limit = self.all + most;
        for &vertex in before {
            self.flow.set(self.heads[vertex], limit);
        }
        for &vertex in behind {
            self.flow.set(self.tails[vertex], limit);
        }
        let (source, ranks) = (self.sink - 1, self.split.graph.ranks);
        let mut least = self.flow.most(source, self.sink, limit);
        if least < limit && behind.iter().all(|&vertex| vertex >= ranks) {
            // More behind the cut only adds to what crosses it.
            least = limit;
            for rank in (0..ranks).filter(|rank| !before.contains(rank)) {
                self.flow.set(self.tails[rank], limit);
                least = least.min(self.flow.most(source, self.sink, limit));
                self.flow.set(self.tails[rank], 0);
            }
        }
        for &vertex in before {
            self.flow.set(self.heads[vertex], if vertex < ranks { self.split.trees } else { 0 });
        }
        for &vertex in behind {
            self.flow.set(self.tails[vertex], 0);
        }
        least.saturating_sub(self.all)
    }
}
