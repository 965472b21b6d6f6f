//! Two levels: each group reduces along a chain to its first rank, these run a ring, and each result returns along the
//! chain.
//!
//! Chains are pipelined as in [`super::tree`], and the ring with them: the leaders pass on what has come down the
//! chains while more arrives. The first piece thus goes along the longest chain and back, and the slowest link of a
//! chain or the ring determines the rest.

use super::incremental::Cost;
use super::ring::ring_s;
use super::tallest::Tallest;
use crate::model::Model;
use crate::pairs::Pairs;

/// Chains and the leaders' ring.
pub struct TwoLevelCost<'a> {
    pairs: &'a Pairs,
    bytes: f64,
    piece_bytes: f64,
    /// By group: its first rank and the one behind its last.
    spans: Vec<(usize, usize)>,
    /// By rank: its group.
    groups: Vec<u32>,
    /// By group: time of one piece along the chain, and of the following pieces over the chain's slowest link.
    chains: Tallest,
    rests: Tallest,
    sums_s: Vec<f64>,
    ring_s: f64,
    ring_mean_s: f64,
}

impl<'a> TwoLevelCost<'a> {
    pub fn new(pairs: &'a Pairs, model: &Model, sizes: &[u32]) -> Self {
        let mut spans = Vec::with_capacity(sizes.len());
        let mut groups = Vec::with_capacity(pairs.hosts());
        for (group, &size) in sizes.iter().enumerate() {
            spans.push((groups.len(), groups.len() + size as usize));
            groups.extend(std::iter::repeat_n(group as u32, size as usize));
        }
        Self {
            pairs,
            bytes: model.bytes,
            piece_bytes: model.bytes.min(model.chunk_bytes),
            chains: Tallest::new(spans.len()),
            rests: Tallest::new(spans.len()),
            sums_s: vec![0.0; spans.len()],
            spans,
            groups,
            ring_s: 0.0,
            ring_mean_s: 0.0,
        }
    }

    fn look_at_chain(&mut self, order: &[u32], group: usize) {
        let (start, end) = self.spans[group];
        let (mut sum_s, mut slowest_s) = (0.0, 0.0_f64);
        for link in order[start..end].windows(2) {
            sum_s += self.pairs.message_s(link[0], link[1], self.piece_bytes);
            slowest_s = slowest_s.max(self.pairs.s_per_byte(link[0], link[1]));
        }
        self.sums_s[group] = sum_s;
        self.chains.set(group, sum_s);
        self.rests.set(group, (self.bytes - self.piece_bytes) * slowest_s);
    }

    fn look_at_ring(&mut self, order: &[u32]) {
        let leaders = self.spans.iter().map(|span| order[span.0]);
        (self.ring_s, self.ring_mean_s) = ring_s(self.pairs, leaders, self.bytes);
    }
}

impl Cost for TwoLevelCost<'_> {
    fn rebuild(&mut self, order: &[u32]) {
        for group in 0..self.spans.len() {
            self.look_at_chain(order, group);
        }
        self.look_at_ring(order);
    }

    fn update(&mut self, order: &[u32], changed: &[u32]) {
        let mut leads = false;
        let mut last = None;
        for &rank in changed {
            let group = self.groups[rank as usize] as usize;
            leads |= self.spans[group].0 == rank as usize;
            if last != Some(group) {
                self.look_at_chain(order, group);
                last = Some(group);
            }
        }
        if leads {
            self.look_at_ring(order);
        }
    }

    fn cost(&self) -> f64 {
        2.0 * self.chains.max() + self.rests.max().max(self.ring_s)
    }

    fn guide(&self) -> f64 {
        2.0 * self.sums_s.iter().sum::<f64>() / self.sums_s.len() as f64 + self.ring_mean_s
    }
}
