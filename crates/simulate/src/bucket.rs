//! Token buckets of links: a link's savings from its rest pass at once. A link saves only while no flow is on it.

use crate::time::{Picos, to_s};
use hocket_network::Network;

/// The buckets of all links; does nothing where no link has one.
pub struct Buckets {
    /// By link: saved bytes, and the start of its rest; `None` while it is in use.
    state: Vec<(f64, Option<Picos>)>,
}

impl Buckets {
    /// All full.
    pub fn new(network: &Network) -> Self {
        let bursts = network.links().iter().any(|link| link.burst_bytes > 0.0);
        let links = if bursts { network.links() } else { &[] };
        Self { state: links.iter().map(|link| (link.burst_bytes, Some(0))).collect() }
    }

    /// A message of `bytes` enters `route`; returns how many of them pass at once.
    pub fn take(&mut self, network: &Network, route: u32, bytes: f64, now: Picos) -> f64 {
        if self.state.is_empty() {
            return 0.0;
        }
        let mut passes = bytes;
        for &at in network.crossed(route) {
            let (saved, resting) = &mut self.state[at as usize];
            let link = network.link(at);
            if let Some(since) = resting.take() {
                *saved = (*saved + link.bytes_per_s() * to_s(now - since)).min(link.burst_bytes);
            }
            passes = passes.min(*saved);
        }
        for &at in network.crossed(route) {
            self.state[at as usize].0 -= passes;
        }
        passes
    }

    /// The last flow has left `link`.
    pub fn rest(&mut self, link: u32, now: Picos) {
        if let Some((_, resting)) = self.state.get_mut(link as usize) {
            *resting = Some(now);
        }
    }

    /// Whether no link has one.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }
}
