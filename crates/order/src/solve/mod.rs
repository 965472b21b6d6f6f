//! Finds an order in which a collective costs little; never one that costs more than the given order.
//!
//! Rings are tours, and have their own methods; few hosts are solved exactly. Everything else, including rings over
//! shared links, is annealed from the given order and from short tours. Runs are spread over the cores, and their
//! number does not depend on the number of cores, so that a seed gives the same order everywhere.

mod anneal;
mod exact;
mod lin_kernighan;
mod ring;
mod tour;

use crate::bound::lower_bound;
use crate::cost::{Evaluator, Rank};
use crate::model::{First, Model, ModelError, check_order};
use crate::pairs::Pairs;
use hocket_algorithms::{Algorithm, radices};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Moves of one annealing run: for any number of hosts, and for each.
const MOVES: u64 = 200_000;
const MOVES_PER_HOST: u64 = 200;
/// A move touches few of the groups of two levels: this many cost as much as one of another algorithm, without shared
/// links.
const TWO_LEVEL_CHEAPNESS: u64 = 5;
/// Degrees to which tours avoid shared links: not at all, as much as slow pairs, and as far as possible.
const CROWDED: [f64; 3] = [0.0, 1.0, 1e3];
/// First temperatures of runs, relative to the mean change: the start is forgotten, half kept, kept.
const HEATS: [f64; 3] = [1.0, 0.1, 0.02];

/// The length of a search. The same budget and input give the same order.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of all random choices.
    pub seed: u64,
    /// Runs, of which the best counts.
    pub restarts: u32,
    /// Length of a run; 1 is a good one.
    pub effort: f64,
}

/// Receives the progress of a search and may stop it. Called from several threads.
pub trait Watch: Sync {
    /// Whether to stop now, with the best order so far.
    fn stops(&self) -> bool;
    /// Steps since the last call; at most [`amount`] in all.
    fn advances(&self, steps: u64);
}

/// Never stops the search.
pub struct NoWatch;

impl Watch for NoWatch {
    fn stops(&self) -> bool {
        false
    }

    fn advances(&self, _steps: u64) {}
}

/// An order and what is known about it.
#[derive(Clone, Debug)]
pub struct Solution {
    /// `order[rank] = host`.
    pub order: Vec<u32>,
    /// Seconds, in this order.
    pub cost_s: f64,
    /// Seconds, in the given one.
    pub given_s: f64,
    /// No order costs less.
    pub bound_s: f64,
    /// All orders but equally good ones have been ruled out.
    pub proven: bool,
    /// Nobody stopped the search.
    pub complete: bool,
}

/// Approximate number of steps of a search.
pub fn amount(pairs: &Pairs, model: &Model, budget: &Budget) -> u64 {
    let n = pairs.hosts();
    match model.algorithm {
        Algorithm::Ring if pairs.shared().is_none() => ring::amount(n, budget),
        _ if n <= exact::ALL_MAX => 0,
        _ => {
            ring::amount(n, &first_tour(budget)) * tours(pairs).len() as u64
                + moves(pairs, &model.algorithm, budget) * u64::from(budget.restarts)
        }
    }
}

/// The best order found.
pub fn solve(
    pairs: &Pairs,
    model: &Model,
    given: &[u32],
    budget: &Budget,
    watch: &dyn Watch,
) -> Result<Solution, ModelError> {
    check_order(given, pairs.hosts())?;
    let mut evaluator = Evaluator::new(pairs, model)?;
    evaluator.rebuild(given);
    let given_s = evaluator.cost();
    let mut found = match model.algorithm {
        Algorithm::Ring if pairs.shared().is_none() => ring::ring(pairs, model.bytes, given, budget, watch),
        _ if pairs.hosts() <= exact::ALL_MAX => {
            let order = exact::cheapest(pairs.hosts(), &mut evaluator);
            ring::Found { order, proven: true, complete: true }
        }
        _ => annealed(pairs, model, given, budget, watch)?,
    };
    if model.algorithm == Algorithm::Ring && pairs.shared().is_some() {
        ring::turn(pairs, model.bytes, &mut found.order);
    }
    evaluator.rebuild(&found.order);
    // An order that is equally good up to rounding is not worth a change.
    let better = evaluator.cost() < given_s * (1.0 - 1e-9);
    let (order, cost_s) = if better { (found.order, evaluator.cost()) } else { (given.to_vec(), given_s) };
    let bound_s = if found.proven { cost_s } else { lower_bound(pairs, model, cost_s)?.min(cost_s) };
    let proven = found.proven || cost_s <= bound_s * (1.0 + 1e-9);
    Ok(Solution { order, cost_s, given_s, bound_s, proven, complete: found.complete })
}

fn moves(pairs: &Pairs, algorithm: &Algorithm, budget: &Budget) -> u64 {
    let cheap = matches!(algorithm, Algorithm::TwoLevel { .. }) && pairs.shared().is_none();
    let cheapness = if cheap { TWO_LEVEL_CHEAPNESS } else { 1 };
    ((MOVES + MOVES_PER_HOST * pairs.hosts() as u64) as f64 * budget.effort) as u64 * cheapness
}

/// A tour as a start need not be the shortest.
fn first_tour(budget: &Budget) -> Budget {
    Budget { restarts: 1, effort: budget.effort / 20.0, ..*budget }
}

fn annealed(
    pairs: &Pairs,
    model: &Model,
    given: &[u32],
    budget: &Budget,
    watch: &dyn Watch,
) -> Result<ring::Found, ModelError> {
    let n = pairs.hosts();
    let mut starts = Vec::new();
    let mut complete = true;
    for &weight in tours(pairs) {
        // Neighbours exchange about half of the bytes in the largest rounds, while chains and trees pass on all.
        let lengths = pairs.crowded_messages_s(model.bytes / 2.0, weight);
        let tour = ring::tour(n, &lengths, given, &first_tour(budget), watch);
        complete &= tour.complete;
        starts.push(best_turn(pairs, model, &tour.order)?);
    }
    let mut evaluator = Evaluator::new(pairs, model)?;
    let mut best = (Rank::worst(), given.to_vec());
    for order in starts {
        evaluator.rebuild(&order);
        if evaluator.rank().beats(best.0) {
            best = (evaluator.rank(), order);
        }
    }
    if best.0.cost_s <= lower_bound(pairs, model, best.0.cost_s)? * (1.0 + 1e-9) {
        return Ok(ring::Found { order: best.1, proven: true, complete });
    }
    let starts = [best.1.clone(), given.to_vec()];
    let runs = in_parallel(budget.restarts, |run| {
        let mut random = fastrand::Rng::with_seed(budget.seed ^ (u64::from(run) << 32));
        let mut evaluator = Evaluator::new(pairs, model)?;
        // Every fourth run starts from the given order, which may be good where a tour is not.
        let start = &starts[usize::from(run % 4 == 3)];
        let heat = HEATS[run as usize % HEATS.len()];
        Ok(anneal::anneal(
            start,
            &mut evaluator,
            moves(pairs, &model.algorithm, budget),
            heat,
            &mut random,
            watch,
        ))
    });
    for run in runs {
        let (rank, order, ended) = run?;
        complete &= ended;
        if rank.beats(best.0) {
            best = (rank, order);
        }
    }
    Ok(ring::Found { order: best.1, proven: false, complete })
}

/// How much the starting tours avoid shared links.
fn tours(pairs: &Pairs) -> &'static [f64] {
    if pairs.shared().is_some() { &CROWDED } else { &CROWDED[..1] }
}

/// A tour has no start, but groups and rounds do, and most rotations of it split racks.
fn best_turn(pairs: &Pairs, model: &Model, tour: &[u32]) -> Result<Vec<u32>, ModelError> {
    let mut evaluator = Evaluator::new(pairs, model)?;
    let mut turned = tour.to_vec();
    let mut best = (Rank::worst(), tour.to_vec());
    for _ in 0..tour.len() {
        turned.rotate_left(1);
        let order = arranged(&turned, model);
        evaluator.rebuild(&order);
        if evaluator.rank().beats(best.0) {
            best = (evaluator.rank(), order);
        }
    }
    Ok(best.1)
}

/// An order in which consecutive hosts are near, for a model whose first rounds are between ranks far apart: its digits in
/// reverse. Other models take it as it is.
fn arranged(near: &[u32], model: &Model) -> Vec<u32> {
    let n = near.len();
    let bases = match model.algorithm {
        Algorithm::HalvingDoubling if n.is_power_of_two() => radices(n, 2),
        Algorithm::Bcube { base } => radices(n, base as usize),
        _ => return near.to_vec(),
    };
    if model.first == First::Near {
        return near.to_vec();
    }
    let mut far = vec![0; n];
    for (at, &host) in near.iter().enumerate() {
        let (mut rest, mut place, mut span) = (at, 0, n);
        for radix in &bases {
            span /= radix;
            place += rest % radix * span;
            rest /= radix;
        }
        far[place] = host;
    }
    far
}

/// `run(0)` to `run(count − 1)` on all cores; results in that order.
fn in_parallel<T: Send>(count: u32, run: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(count as usize);
    let next = AtomicU32::new(0);
    let results = Mutex::new(Vec::with_capacity(count as usize));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let result = run(number);
                    // A thread that panicked has not held it: pushing does not panic.
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests;
