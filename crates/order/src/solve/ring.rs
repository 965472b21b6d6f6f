//! Orders for a ring: short tours, and where bandwidth counts, tours without the slowest links.
//!
//! The cost is the mean of the hops or the transfer of the slowest link, whichever is more. Excluding links slower than
//! some bound can only increase the mean, so the best bound is where the two meet: found by bisection over the links'
//! transfers.

use super::exact::{RING_MAX, shortest_tour};
use super::lin_kernighan::LinKernighan;
use super::{Budget, Watch, in_parallel};
use crate::cost::ring_s;
use crate::one_tree::OneTree;
use crate::pairs::Pairs;

/// Number of candidate neighbours of a host.
const CANDIDATES: usize = 8;
/// Kicks of one run, per host: 512 hosts take some seconds.
const KICKS: u64 = 15;
/// Factor by which runs are shorter during the search for the bound.
const SHORTER: u64 = 10;

/// The result, and whether it is optimal and no run was stopped.
pub struct Found {
    pub order: Vec<u32>,
    pub proven: bool,
    pub complete: bool,
}

/// Limit of the kicks of all runs.
pub fn amount(n: usize, budget: &Budget) -> u64 {
    if n <= RING_MAX { 0 } else { kicks(n, budget) * u64::from(budget.restarts) }
}

fn kicks(n: usize, budget: &Budget) -> u64 {
    (KICKS as f64 * n as f64 * budget.effort) as u64
}

/// A good order for a ring; `given` is one of the starts.
pub fn ring(pairs: &Pairs, bytes: f64, given: &[u32], budget: &Budget, watch: &dyn Watch) -> Found {
    let mut found = cheap_ring(pairs, bytes, given, budget, watch);
    turn(pairs, bytes, &mut found.order);
    found
}

/// A ring may be rotated and mirrored: its longest link comes last, so that near hosts are adjacent in the printed
/// order.
pub fn turn(pairs: &Pairs, bytes: f64, order: &mut [u32]) {
    let n = order.len();
    if n < 3 {
        return;
    }
    let lengths = pairs.crowded_messages_s(bytes / n as f64, 1.0);
    let link_s = |at: usize| lengths[order[at] as usize * n + order[(at + 1) % n] as usize];
    let longest = (0..n).max_by(|&a, &b| link_s(a).total_cmp(&link_s(b))).unwrap_or(0);
    order.rotate_left((longest + 1) % n);
    if order[0] > order[n - 1] {
        order.reverse();
    }
}

fn cheap_ring(pairs: &Pairs, bytes: f64, given: &[u32], budget: &Budget, watch: &dyn Watch) -> Found {
    let n = pairs.hosts();
    let share_bytes = bytes / n as f64;
    let lengths = pairs.messages_s(share_bytes);
    let mut found = tour(n, &lengths, given, budget, watch);
    let slowest = |order: &[u32]| {
        let next = order.iter().cycle().skip(1);
        let each = order.iter().zip(next).map(|(&a, &b)| share_bytes * pairs.s_per_byte(a, b));
        each.fold(0.0, f64::max)
    };
    let cost = |order: &[u32]| ring_s(pairs, order.iter().copied(), bytes).0;
    let mean_s = |order: &[u32]| ring_s(pairs, order.iter().copied(), bytes).1 / (2 * (n - 1)) as f64;
    if n < 4 || slowest(&found.order) <= mean_s(&found.order) {
        return found;
    }
    let mut transfers = pairs.messages_s(0.0);
    for (at, transfer) in transfers.iter_mut().enumerate() {
        *transfer = share_bytes * pairs.s_per_byte((at / n) as u32, (at % n) as u32);
    }
    let mut bounds = transfers.clone();
    bounds.sort_unstable_by(f64::total_cmp);
    bounds.dedup();
    let top = slowest(&found.order);
    bounds.retain(|&bound| bound < top);
    let shorter =
        Budget { effort: budget.effort / SHORTER as f64, restarts: budget.restarts.min(2), ..*budget };
    let out = if n <= RING_MAX { f64::INFINITY } else { 4.0 * lengths.iter().copied().fold(0.0, f64::max) };
    let (mut low, mut high) = (0, bounds.len());
    while low < high && found.complete {
        let middle = usize::midpoint(low, high);
        let within = |at: usize| transfers[at] <= bounds[middle];
        let limited: Vec<f64> = lengths
            .iter()
            .enumerate()
            .map(|(at, length)| if within(at) { *length } else { length + out })
            .collect();
        let other = tour(n, &limited, &found.order, &shorter, watch);
        if cost(&other.order) < cost(&found.order) {
            found.order.clone_from(&other.order);
        }
        found.complete &= other.complete;
        if slowest(&other.order) <= bounds[middle] && mean_s(&other.order) <= bounds[middle] {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    found.proven &= found.complete;
    found
}

/// A short tour.
pub fn tour(n: usize, lengths: &[f64], given: &[u32], budget: &Budget, watch: &dyn Watch) -> Found {
    if n <= RING_MAX {
        let order = shortest_tour(n, lengths).unwrap_or_else(|| given.to_vec());
        return Found { order, proven: true, complete: true };
    }
    let greedy = nearest_next(n, lengths);
    let bound = OneTree::new(n, lengths, length(n, lengths, &greedy));
    let candidates = bound.candidates(lengths, CANDIDATES);
    let runs = in_parallel(budget.restarts, |run| {
        let mut random = fastrand::Rng::with_seed(budget.seed ^ (u64::from(run) << 32));
        let start = match run {
            0 => given.to_vec(),
            1 => greedy.clone(),
            _ => {
                let mut order = greedy.clone();
                random.shuffle(&mut order);
                order
            }
        };
        let mut search = LinKernighan::new(lengths, &candidates, &start);
        search.descend();
        let complete = search.kick(kicks(n, budget), &mut random, watch);
        (length(n, lengths, search.order()), search.order().to_vec(), complete)
    });
    let complete = runs.iter().all(|run| run.2);
    let best = runs.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    Found { order: best.map_or_else(|| given.to_vec(), |run| run.1), proven: false, complete }
}

/// From host 0 always to the nearest remaining one.
fn nearest_next(n: usize, lengths: &[f64]) -> Vec<u32> {
    let mut left: Vec<u32> = (1..n as u32).collect();
    let mut order = vec![0_u32];
    let mut last = 0;
    while !left.is_empty() {
        let row = &lengths[last * n..(last + 1) * n];
        let nearest =
            (0..left.len()).min_by(|&a, &b| row[left[a] as usize].total_cmp(&row[left[b] as usize]));
        last = left.swap_remove(nearest.unwrap_or(0)) as usize;
        order.push(last as u32);
    }
    order
}

fn length(n: usize, lengths: &[f64], order: &[u32]) -> f64 {
    let next = order.iter().cycle().skip(1);
    order.iter().zip(next).map(|(&a, &b)| lengths[a as usize * n + b as usize]).sum()
}
