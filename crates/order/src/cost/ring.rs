//! Ring: `2 (n − 1)` steps in which each rank sends a share of the bytes to the next (Patarasuk and Yuan 2009).
//!
//! There is no barrier: a step of a rank waits for its own last send and for its neighbour's last step. The time of a
//! step is then the mean over the ring of latency and transfer (the cycle of waits that goes once around), or the
//! transfer of the slowest link alone (the cycle of one link), whichever is more. Without bandwidth that is the sum
//! over consecutive links.

use super::incremental::Cost;
use super::tallest::Tallest;
use crate::pairs::Pairs;

/// The ring of all ranks.
pub struct RingCost<'a> {
    pairs: &'a Pairs,
    share_bytes: f64,
    /// By rank: the message to the next rank.
    hops_s: Vec<f64>,
    sum_s: f64,
    slowest: Tallest,
}

impl<'a> RingCost<'a> {
    pub fn new(pairs: &'a Pairs, bytes: f64) -> Self {
        let n = pairs.hosts();
        let slowest = Tallest::new(n);
        Self { pairs, share_bytes: bytes / n as f64, hops_s: vec![0.0; n], sum_s: 0.0, slowest }
    }

    fn look(&mut self, order: &[u32], rank: usize) {
        let (from, to) = (order[rank], order[(rank + 1) % order.len()]);
        if from == to {
            return;
        }
        let hop_s = self.pairs.message_s(from, to, self.share_bytes);
        self.sum_s += hop_s - self.hops_s[rank];
        self.hops_s[rank] = hop_s;
        self.slowest.set(rank, self.share_bytes * self.pairs.s_per_byte(from, to));
    }
}

impl Cost for RingCost<'_> {
    fn rebuild(&mut self, order: &[u32]) {
        for rank in 0..order.len() {
            self.look(order, rank);
        }
        self.sum_s = self.hops_s.iter().sum();
    }

    fn update(&mut self, order: &[u32], changed: &[u32]) {
        for &rank in changed {
            let rank = rank as usize;
            self.look(order, rank);
            self.look(order, (rank + order.len() - 1) % order.len());
        }
    }

    fn cost(&self) -> f64 {
        let n = self.hops_s.len() as f64;
        2.0 * (n - 1.0) * (self.sum_s / n).max(self.slowest.max())
    }

    fn guide(&self) -> f64 {
        let n = self.hops_s.len() as f64;
        2.0 * (n - 1.0) / n * self.sum_s
    }
}

/// A ring of some hosts: its cost, and its cost without the slowest link's share.
pub fn ring_s(pairs: &Pairs, hosts: impl Iterator<Item = u32> + Clone, bytes: f64) -> (f64, f64) {
    let n = hosts.clone().count() as f64;
    let share_bytes = bytes / n;
    let next = hosts.clone().cycle().skip(1);
    let (mut sum_s, mut slowest_s) = (0.0, 0.0_f64);
    for (from, to) in hosts.zip(next).filter(|(from, to)| from != to) {
        sum_s += pairs.message_s(from, to, share_bytes);
        slowest_s = slowest_s.max(share_bytes * pairs.s_per_byte(from, to));
    }
    let steps = 2.0 * (n - 1.0);
    (steps * (sum_s / n).max(slowest_s), steps * sum_s / n)
}
