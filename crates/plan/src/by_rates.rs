//! Hosts that collect and hosts that spread, by the rates of their links in each direction.
//!
//! Of p hosts, all together send 2 (p − 1) times the gradients and receive as much; each sends its own at least and receives the sum
//! (Chen et al., arXiv 2606.01680). With the least time T of these, a host that can send u has T · u − 1 of the gradients left
//! to spread results, and one that can receive d has T · d − 1 left to collect: shares in these proportions fill all links that the
//! bound is of.

use crate::exchange::Exchange;
use crate::proposal::{Proposal, Setting};
use hocket_algorithms::Algorithm;
use hocket_network::Network;

/// With more ranks, messages from everyone to everyone take longer than they gain.
const RANKS_MAX: usize = 32;
/// Shares are multiples of this part of the largest one.
const SHARES: f64 = 60.0;
/// Ratio of rates from which they are equal.
const EQUAL: f64 = 0.99;
/// Every link serves all other hosts at once: so many times shorter chunks than a neighbour's keep all of them busy to the end.
const SHORTER: f64 = 2.0;
const CHUNK_BYTES_MIN: f64 = 16_384.0;

/// The proposal; none where all hosts are alike, or ranks share hosts.
pub fn by_rates(network: &Network, setting: &Setting) -> Option<Proposal> {
    let n = setting.workers;
    let ranks = || 0..n as u32;
    let alone = ranks().all(|rank| (0..rank).all(|other| network.is_remote(rank, other)));
    if !(3..=RANKS_MAX).contains(&n) || !alone {
        return None;
    }
    let [out, into] = [true, false].map(|outward| -> Vec<f64> {
        ranks().map(|rank| one_way_bit_per_s(network, &[rank], outward)).collect()
    });
    let most = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let fastest = most(&out).max(most(&into));
    if out.iter().chain(&into).all(|&rate| rate >= EQUAL * fastest) {
        return None;
    }
    Some(Proposal {
        exchange: Exchange::AllReduce(Algorithm::CollectSpread { shares: shares(&out, &into) }),
        order: ranks().collect(),
        rule: "given".to_owned(),
        codec: None,
        codec_links: Vec::new(),
        chunk_bytes: (setting.chunk_bytes / SHORTER).max(CHUNK_BYTES_MIN),
        measured_as: "",
    })
}

/// By rank, what it collects, and then what it spreads.
fn shares(out: &[f64], into: &[f64]) -> Vec<u32> {
    let least_s = least_s(out).max(least_s(into));
    let of = |rates: &[f64]| -> Vec<u32> {
        let left: Vec<f64> = rates.iter().map(|rate| (least_s * rate - 1.0).max(0.0)).collect();
        let most = left.iter().copied().fold(0.0, f64::max);
        left.iter().map(|left| (SHARES * left / most).round() as u32).collect()
    };
    [of(into), of(out)].concat()
}

/// Seconds that a bit of all gradients takes at least in one direction.
fn least_s(rates: &[f64]) -> f64 {
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    (2.0 * (rates.len() as f64 - 1.0) / rates.iter().sum::<f64>()).max(1.0 / slowest)
}

/// What ranks can carry together to all others, or from them: the rate of the narrowest link that all of this traffic crosses, and
/// no more than that of the fastest path. 1 if there are no others.
pub fn one_way_bit_per_s(network: &Network, ranks: &[u32], outward: bool) -> f64 {
    let others: Vec<u32> = (0..network.world() as u32).filter(|other| !ranks.contains(other)).collect();
    let pairs: Vec<(u32, u32)> =
        ranks.iter().flat_map(|&rank| others.iter().map(move |&other| (rank, other))).collect();
    if pairs.is_empty() {
        return 1.0;
    }
    let path = |&(rank, other): &(u32, u32)| {
        if outward { network.path(rank, other) } else { network.path(other, rank) }
    };
    let mut crossed = vec![0_usize; network.links().len()];
    pairs.iter().flat_map(path).for_each(|&link| crossed[link as usize] += 1);
    let common = (0..crossed.len()).filter(|&link| crossed[link] == pairs.len());
    let common = common.map(|link| network.bit_per_s(link as u32)).fold(f64::INFINITY, f64::min);
    let narrowest = |pair: &(u32, u32)| {
        path(pair).iter().map(|&link| network.bit_per_s(link)).fold(f64::INFINITY, f64::min)
    };
    pairs.iter().map(narrowest).fold(0.0, f64::max).min(common)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hocket_algorithms::Counts;

    /// Time of the busiest link over the least time.
    fn taken(out: &[f64], into: &[f64]) -> f64 {
        let n = out.len();
        let algorithm = Algorithm::CollectSpread { shares: shares(out, into) };
        let counts = Counts::of_all_reduce(&algorithm, n).expect("it fits");
        let mut busy_s = vec![0.0; 2 * n];
        for flow in &counts.flows {
            let share = flow.elements as f64 / counts.elements as f64;
            busy_s[flow.from] += share / out[flow.from];
            busy_s[n + flow.to] += share / into[flow.to];
        }
        busy_s.into_iter().fold(0.0, f64::max) / least_s(out).max(least_s(into))
    }

    /// Broken: a slow direction would slow all hosts down, or carry less than it can while others wait.
    #[test]
    fn links_are_busy_no_longer_than_the_bound() {
        let mut random = fastrand::Rng::with_seed(42);
        for _ in 0..300 {
            let n = random.usize(3..10);
            let mut rates = || -> Vec<f64> { (0..n).map(|_| 0.1 + random.f64()).collect() };
            let (out, into) = (rates(), rates());
            assert!(taken(&out, &into) < 1.02, "{out:?} {into:?} {}", taken(&out, &into));
        }
        assert!(taken(&[0.02, 0.02, 0.02, 1.0], &[0.1, 0.1, 0.1, 1.0]) < 1.001);
    }
}
