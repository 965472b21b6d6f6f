//! The load of an order on links that several pairs share. A collective ends no earlier than its busiest link, which
//! takes all bytes that cross it over its rate. Pieces follow one another, so rounds overlap where their links differ,
//! and a link's rounds add up.

use super::rounds::{Round, rounds};
use super::tallest::Tallest;
use super::tree::edges as tree_edges;
use crate::model::Model;
use hocket_algorithms::Algorithm;
use hocket_network::Network;

/// Messages between ranks that are in flight at the same time, each of this many bytes.
pub struct Phase {
    pub bytes: f64,
    pub flows: Vec<(u32, u32)>,
}

/// The flows of a model among `n` ranks.
pub fn phases(model: &Model, n: usize) -> Vec<Phase> {
    let both = |(a, b): (u32, u32)| [(a, b), (b, a)];
    match &model.algorithm {
        Algorithm::Ring => vec![around(&(0..n as u32).collect::<Vec<_>>(), model.bytes)],
        Algorithm::DoubleBinaryTree => {
            let edges = (0..2).flat_map(|half| tree_edges(n, half));
            vec![Phase { bytes: model.bytes / 2.0, flows: edges.flat_map(both).collect() }]
        }
        Algorithm::TwoLevel { sizes } => {
            let (mut flows, mut leaders, mut first) = (Vec::new(), Vec::new(), 0);
            for &size in sizes {
                leaders.push(first);
                flows.extend((first + 1..first + size).flat_map(|rank| both((rank - 1, rank))));
                first += size;
            }
            vec![Phase { bytes: model.bytes, flows }, around(&leaders, model.bytes)]
        }
        _ => {
            let phase = |round: Round| Phase {
                bytes: round.carried_bytes,
                flows: round.pairs.into_iter().flat_map(both).collect(),
            };
            rounds(model, n).into_iter().map(phase).collect()
        }
    }
}

/// A ring of some ranks.
fn around(ranks: &[u32], bytes: f64) -> Phase {
    let n = ranks.len();
    let next = ranks.iter().cycle().skip(1);
    let flows = ranks.iter().zip(next).filter(|(from, to)| from != to).map(|(&from, &to)| (from, to));
    Phase { bytes: 2.0 * (n as f64 - 1.0) / n as f64 * bytes, flows: flows.collect() }
}

/// Flows on links, updated while the order changes.
pub struct Loads<'a> {
    shared: &'a Network,
    phases: Vec<Phase>,
    /// By rank: phase and index of the flows that it sends or receives.
    flows: Vec<Vec<(u32, u32)>>,
    /// By rank: the host at which it was counted.
    placed: Vec<u32>,
    /// By phase and link: flows.
    counts: Vec<Vec<u32>>,
    busy: Tallest,
    sum_s: f64,
    /// By rank: the update in which it changed last.
    changed: Vec<u64>,
    updates: u64,
    touched: Vec<u32>,
}

impl<'a> Loads<'a> {
    pub fn new(shared: &'a Network, model: &Model, n: usize) -> Self {
        let phases = phases(model, n);
        let mut flows = vec![Vec::new(); n];
        for (phase, Phase { flows: all, .. }) in phases.iter().enumerate() {
            for (flow, &(from, to)) in all.iter().enumerate() {
                flows[from as usize].push((phase as u32, flow as u32));
                flows[to as usize].push((phase as u32, flow as u32));
            }
        }
        Self {
            shared,
            counts: vec![vec![0; shared.links().len()]; phases.len()],
            phases,
            flows,
            placed: vec![0; n],
            busy: Tallest::new(shared.links().len()),
            sum_s: 0.0,
            changed: vec![0; n],
            updates: 0,
            touched: Vec::new(),
        }
    }

    pub fn rebuild(&mut self, order: &[u32]) {
        self.placed.copy_from_slice(order);
        for (phase, counts) in self.phases.iter().zip(&mut self.counts) {
            counts.fill(0);
            for &(from, to) in &phase.flows {
                for &link in self.shared.path(order[from as usize], order[to as usize]) {
                    counts[link as usize] += 1;
                }
            }
        }
        let count = self.shared.links().len();
        let busy_s = |link: usize| busy_s(self.shared, &self.phases, &self.counts, link as u32);
        self.busy.fill(count, busy_s);
        self.sum_s = (0..count).map(|link| self.busy.get(link)).sum();
    }

    pub fn update(&mut self, order: &[u32], changed: &[u32]) {
        self.updates += 1;
        for &rank in changed {
            self.changed[rank as usize] = self.updates;
        }
        for &rank in changed {
            for at in 0..self.flows[rank as usize].len() {
                let (phase, flow) = self.flows[rank as usize][at];
                let (from, to) = self.phases[phase as usize].flows[flow as usize];
                let other = if from == rank { to } else { from };
                // A flow with two changed ends moves once.
                if other > rank || self.changed[other as usize] != self.updates {
                    let before = (self.placed[from as usize], self.placed[to as usize]);
                    self.count(phase, before, -1);
                    self.count(phase, (order[from as usize], order[to as usize]), 1);
                }
            }
        }
        for &rank in changed {
            self.placed[rank as usize] = order[rank as usize];
        }
        while let Some(link) = self.touched.pop() {
            let now_s = busy_s(self.shared, &self.phases, &self.counts, link);
            self.sum_s += now_s - self.busy.get(link as usize);
            self.busy.set(link as usize, now_s);
        }
    }

    /// Seconds of the busiest link.
    pub fn busiest_s(&self) -> f64 {
        self.busy.max()
    }

    /// Mean seconds of a link: a low value means that shared links are crossed rarely.
    pub fn mean_s(&self) -> f64 {
        self.sum_s / self.shared.links().len().max(1) as f64
    }

    fn count(&mut self, phase: u32, hosts: (u32, u32), by: i32) {
        for &link in self.shared.path(hosts.0, hosts.1) {
            let count = &mut self.counts[phase as usize][link as usize];
            *count = count.wrapping_add_signed(by);
            self.touched.push(link);
        }
    }
}

fn busy_s(shared: &Network, phases: &[Phase], counts: &[Vec<u32>], link: u32) -> f64 {
    let crossed = shared.link(link);
    phases.iter().zip(counts).map(|(phase, counts)| crossed.busy_s(counts[link as usize], phase.bytes)).sum()
}
