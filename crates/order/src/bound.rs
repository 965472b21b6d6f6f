//! Lower bounds on the cost of any order, per algorithm.
//!
//! - Ring: the 1-tree bound of the sum; each host has two links, and all are connected, so some link is as slow as the
//!   second fastest of some host and as the slowest of the fastest spanning tree.
//! - Rounds: the pairs of any `q` rounds join at least `r` hosts into one group, so the slowest of these rounds takes
//!   at least the shortest time within which hosts form groups of `r` or more.
//! - Tree: it spans all hosts, so it has an edge as long as the longest of the shortest spanning tree; its longest path
//!   has as many edges as it is deep.
//! - Two levels: a chain of the largest group, which no chain of as many links beats, and a ring of the leaders.
//! - A link that divides the hosts carries every byte once in each direction, whatever the algorithm: the sum of the
//!   hosts on one side has to reach the other. In a ring at least one host sends across it.

use crate::cost::{phases, rounds};
use crate::model::{Model, ModelError};
use crate::one_tree::OneTree;
use crate::pairs::Pairs;
use hocket_algorithms::{Algorithm, tree_depth};
use hocket_network::Network;

/// Seconds that no order can beat; `cost_s` is the cost of the best known order.
pub fn lower_bound(pairs: &Pairs, model: &Model, cost_s: f64) -> Result<f64, ModelError> {
    model.check(pairs.hosts())?;
    let n = pairs.hosts();
    if n < 2 {
        return Ok(0.0);
    }
    Ok(of_pairs(pairs, model, cost_s).max(of_links(pairs, model)))
}

fn of_links(pairs: &Pairs, model: &Model) -> f64 {
    let Some(shared) = pairs.shared() else { return 0.0 };
    let phases = phases(model, pairs.hosts());
    let most = phases.iter().map(|phase| phase.flows.len()).max().unwrap_or(0) as u32;
    let least_s = |link: u32| match model.algorithm {
        Algorithm::Ring => shared.link(link).busy_s(1, phases[0].bytes),
        // However many flows there are, together they carry all bytes.
        _ => shared.link(link).busy_s(most, model.bytes / f64::from(most)),
    };
    cuts(shared).into_iter().map(least_s).fold(0.0, f64::max)
}

/// Links that divide the hosts: everything from hosts on one side to those on the other crosses them, and nothing
/// else does.
fn cuts(shared: &Network) -> Vec<u32> {
    let (hosts, count) = (shared.world(), shared.links().len());
    let mut pairs = vec![0_usize; count];
    let mut sources = vec![vec![false; hosts]; count];
    let mut targets = vec![vec![false; hosts]; count];
    for a in 0..hosts as u32 {
        for b in (0..hosts as u32).filter(|&b| b != a) {
            for &link in shared.path(a, b) {
                pairs[link as usize] += 1;
                sources[link as usize][a as usize] = true;
                targets[link as usize][b as usize] = true;
            }
        }
    }
    let divides = |&link: &u32| {
        let link = link as usize;
        let many = |sides: &[bool]| sides.iter().filter(|&&side| side).count();
        let from = many(&sources[link]);
        let either = sources[link].iter().zip(&targets[link]).all(|(from, to)| from != to);
        either && from > 0 && pairs[link] == from * (hosts - from)
    };
    (0..count as u32).filter(divides).collect()
}

fn of_pairs(pairs: &Pairs, model: &Model, cost_s: f64) -> f64 {
    let n = pairs.hosts();
    match &model.algorithm {
        Algorithm::Ring => ring(pairs, model.bytes, cost_s),
        Algorithm::DoubleBinaryTree => {
            let half_bytes = model.bytes / 2.0;
            let piece_bytes = half_bytes.min(model.chunk_bytes);
            let pieces = Groups::new(pairs, piece_bytes);
            let rest_bytes = half_bytes - piece_bytes;
            let rest = Groups::by(n, |a, b| rest_bytes * pairs.s_per_byte(a, b));
            let longest_s = f64::from(tree_depth(n)) * pieces.least();
            2.0 * (longest_s.max(pieces.joining(n)) + rest.joining(n))
        }
        Algorithm::TwoLevel { sizes } => {
            let piece = Groups::new(pairs, model.bytes.min(model.chunk_bytes));
            let longest = sizes.iter().copied().max().unwrap_or(1);
            let leaders = sizes.len() as f64;
            let share = Groups::new(pairs, model.bytes / leaders);
            let ring_s = if leaders > 1.0 { 2.0 * (leaders - 1.0) * share.least() } else { 0.0 };
            2.0 * f64::from(longest - 1) * piece.least() + ring_s
        }
        _ => in_rounds(pairs, model),
    }
}

fn ring(pairs: &Pairs, bytes: f64, cost_s: f64) -> f64 {
    let n = pairs.hosts();
    let share_bytes = bytes / n as f64;
    let steps = 2.0 * (n as f64 - 1.0);
    let lengths = pairs.messages_s(share_bytes);
    let sum_s = match n {
        2 => 2.0 * lengths[1],
        _ => OneTree::new(n, &lengths, cost_s / steps * n as f64).bound,
    };
    let transfer = |a: u32, b: u32| share_bytes * pairs.s_per_byte(a, b);
    let second = (0..n as u32).map(|a| {
        let mut others: Vec<f64> = (0..n as u32).filter(|&b| b != a).map(|b| transfer(a, b)).collect();
        others.sort_unstable_by(f64::total_cmp);
        others[1.min(others.len() - 1)]
    });
    let slowest_s = second.fold(0.0, f64::max).max(Groups::by(n, transfer).joining(n));
    steps * (sum_s / n as f64).max(slowest_s)
}

/// The rounds by duration, the fastest first: the first `q` of them join groups of at least `r` hosts.
fn in_rounds(pairs: &Pairs, model: &Model) -> f64 {
    let n = pairs.hosts();
    let rounds = rounds(model, n);
    // If the number of hosts is no power of two, the last round is for those beyond one.
    let folds = !n.is_power_of_two() && !matches!(model.algorithm, Algorithm::Bcube { .. });
    let (core, fold) = rounds.split_at(rounds.len() - usize::from(folds));
    let smallest_bytes = core.iter().map(|round| round.bytes).fold(f64::INFINITY, f64::min);
    let mut radices: Vec<usize> = core.iter().map(|round| partners(&round.pairs) + 1).collect();
    radices.sort_unstable();
    let groups = Groups::new(pairs, if smallest_bytes.is_finite() { smallest_bytes } else { 0.0 });
    let mut joined = 1;
    let mut by_groups = 0.0;
    for (radix, round) in radices.iter().zip(core) {
        joined *= radix;
        // Hosts that sit out because their number is no power of two may be the far ones.
        by_groups += round.times * if fold.is_empty() { groups.joining(joined) } else { groups.least() };
    }
    let pairwise = |bytes: f64| {
        let groups = Groups::new(pairs, bytes);
        if fold.is_empty() { groups.joining(2) } else { groups.least() }
    };
    let by_pairs: f64 = core.iter().map(|round| round.times * pairwise(round.bytes)).sum();
    let folded: f64 = fold.iter().map(|round| round.times * Groups::new(pairs, round.bytes).least()).sum();
    by_groups.max(by_pairs) + folded
}

/// Number of partners of the first rank of the round.
fn partners(pairs: &[(u32, u32)]) -> usize {
    pairs.iter().filter(|pair| pair.0 == pairs[0].0 || pair.1 == pairs[0].0).count()
}

/// Hosts joined by ever longer messages.
struct Groups {
    /// By number of hosts: the shortest time within which every host is in a group of that size.
    joining_s: Vec<f64>,
    least_s: f64,
}

impl Groups {
    fn new(pairs: &Pairs, bytes: f64) -> Self {
        Self::by(pairs.hosts(), |a, b| pairs.message_s(a, b, bytes))
    }

    /// From the edges of a minimum spanning tree (Prim 1957), shortest first.
    fn by(n: usize, length: impl Fn(u32, u32) -> f64) -> Self {
        let mut edges = Vec::with_capacity(n);
        let mut nearest: Vec<(f64, u32)> = vec![(f64::INFINITY, 0); n];
        let mut left: Vec<u32> = (1..n as u32).collect();
        let mut last = 0;
        while !left.is_empty() {
            for &node in &left {
                let to_last = length(last, node);
                if to_last < nearest[node as usize].0 {
                    nearest[node as usize] = (to_last, last);
                }
            }
            let shorter =
                |&a: &usize, &b: &usize| nearest[left[a] as usize].0.total_cmp(&nearest[left[b] as usize].0);
            let next = (0..left.len()).min_by(shorter).unwrap_or(0);
            last = left.swap_remove(next);
            edges.push((nearest[last as usize].0, last, nearest[last as usize].1));
        }
        edges.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let least_s = edges.first().map_or(0.0, |edge| edge.0);
        Self { joining_s: joining(n, &edges), least_s }
    }

    fn joining(&self, hosts: usize) -> f64 {
        self.joining_s[hosts.min(self.joining_s.len() - 1)]
    }

    fn least(&self) -> f64 {
        self.least_s
    }
}

/// Kruskal's joins: after each edge, the size of the smallest group.
fn joining(n: usize, edges: &[(f64, u32, u32)]) -> Vec<f64> {
    let mut group: Vec<u32> = (0..n as u32).collect();
    let mut sizes = vec![1_usize; n];
    // How many groups there are of each size.
    let mut counts = vec![0_usize; n + 1];
    counts[1] = n;
    let mut joining_s = vec![0.0; n + 1];
    let mut smallest = 1;
    for &(length, a, b) in edges {
        let (a, b) = (root(&mut group, a), root(&mut group, b));
        let (small, large) = (sizes[a as usize], sizes[b as usize]);
        counts[small] -= 1;
        counts[large] -= 1;
        counts[small + large] += 1;
        sizes[b as usize] = small + large;
        group[a as usize] = b;
        while counts[smallest] == 0 {
            smallest += 1;
            joining_s[smallest] = length;
        }
    }
    joining_s
}

fn root(group: &mut [u32], mut node: u32) -> u32 {
    while group[node as usize] != node {
        group[node as usize] = group[group[node as usize] as usize];
        node = group[node as usize];
    }
    node
}
