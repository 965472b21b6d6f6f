//! Simulated annealing over orders (Kirkpatrick, Gelatt and Vecchi 1983), for any cost.
//!
//! Moves exchange two ranks or two blocks of equal size, reverse a range, or shift a range: the elements of the costs
//! of rounds, trees and groups. The energy is the cost and a share of its guide, so that a change without effect on any
//! maximum still counts.

use super::Watch;
use crate::cost::{Evaluator, Rank};

/// Weight of the guide beside the cost.
const GUIDE: f64 = 0.1;
/// From the first temperature to the last.
const COOLING: f64 = 1e-4;
/// Changes that determine the first temperature.
const SAMPLES: usize = 200;
/// Moves between two calls of the watch.
const WATCHED: u64 = 1024;

/// An annealing run from `start`; `heat` is the first temperature relative to the mean change of a move. Returns the
/// cheapest order seen and its value, and whether the run was completed.
pub fn anneal(
    start: &[u32],
    evaluator: &mut Evaluator<'_>,
    moves: u64,
    heat: f64,
    random: &mut fastrand::Rng,
    watch: &dyn Watch,
) -> (Rank, Vec<u32>, bool) {
    let mut state = State { order: start.to_vec(), changed: Vec::new(), before: Vec::new() };
    evaluator.rebuild(&state.order);
    let mut best = (evaluator.rank(), state.order.clone());
    if start.len() < 3 {
        return (best.0, best.1, true);
    }
    let first = heat * mean_change(&mut state, evaluator, random);
    let mut energy = energy_of(evaluator);
    let mut temperature = first;
    for done in 0..moves {
        if done % WATCHED == 0 {
            if watch.stops() {
                return (best.0, best.1, false);
            }
            watch.advances(if done == 0 { 0 } else { WATCHED });
            temperature = first * COOLING.powf(done as f64 / moves as f64);
        }
        state.move_some(random);
        evaluator.update(&state.order, &state.changed);
        let after = energy_of(evaluator);
        if after <= energy || random.f64() < ((energy - after) / temperature).exp() {
            energy = after;
            if evaluator.rank().beats(best.0) {
                best.0 = evaluator.rank();
                best.1.copy_from_slice(&state.order);
            }
        } else {
            state.undo();
            evaluator.update(&state.order, &state.changed);
        }
    }
    (best.0, best.1, true)
}

fn energy_of(evaluator: &Evaluator<'_>) -> f64 {
    evaluator.cost() + GUIDE * evaluator.guide()
}

/// Mean deterioration by a move.
fn mean_change(state: &mut State, evaluator: &mut Evaluator<'_>, random: &mut fastrand::Rng) -> f64 {
    let energy = energy_of(evaluator);
    let mut sum = 0.0;
    let mut count = 1.0;
    for _ in 0..SAMPLES {
        state.move_some(random);
        evaluator.update(&state.order, &state.changed);
        let worse = energy_of(evaluator) - energy;
        if worse > 0.0 {
            sum += worse;
            count += 1.0;
        }
        state.undo();
        evaluator.update(&state.order, &state.changed);
    }
    sum / count + f64::MIN_POSITIVE
}

struct State {
    order: Vec<u32>,
    /// Ranks whose host the last move changed, and their previous hosts.
    changed: Vec<u32>,
    before: Vec<u32>,
}

impl State {
    fn move_some(&mut self, random: &mut fastrand::Rng) {
        let n = self.order.len();
        self.changed.clear();
        self.before.clear();
        match random.u8(0..32) {
            0..26 => {
                let a = random.usize(0..n);
                let b = (a + random.usize(1..n)) % n;
                self.take(a, 1);
                self.take(b, 1);
                self.order.swap(a, b);
            }
            26..30 => {
                let size = 1 << random.u32(0..=(n / 2).ilog2());
                let (a, b) = (random.usize(0..n / size), random.usize(0..n / size));
                if a != b {
                    self.take(a * size, size);
                    self.take(b * size, size);
                    for at in 0..size {
                        self.order.swap(a * size + at, b * size + at);
                    }
                }
            }
            30 => {
                let (start, length) = range(n, random);
                self.take(start, length);
                self.order[start..start + length].reverse();
            }
            _ => {
                let (start, length) = range(n, random);
                self.take(start, length);
                self.order[start..start + length].rotate_left(random.usize(1..length));
            }
        }
    }

    fn take(&mut self, start: usize, count: usize) {
        self.changed.extend((start..start + count).map(|rank| rank as u32));
        self.before.extend_from_slice(&self.order[start..start + count]);
    }

    fn undo(&mut self) {
        for (&rank, &host) in self.changed.iter().zip(&self.before) {
            self.order[rank as usize] = host;
        }
    }
}

/// Short ranges as often as long ones: at least 2 and at most half of all ranks.
fn range(n: usize, random: &mut fastrand::Rng) -> (usize, usize) {
    let longest = 2 << random.u32(0..=(n / 2).ilog2());
    let length = random.usize(2..=longest.min(n));
    (random.usize(0..=n - length), length)
}
