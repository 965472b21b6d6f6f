//! A lower bound for any mix of the routes: a fractional assignment of elements to routes.
//!
//! All gradients that are made at `r` or later and needed at `d` or earlier cross links and engines after `r`, whatever
//! their buckets. The least time of the busiest resource is a packing problem, min T: `Σ x_o · load_o ≤ T`, `Σ x_o =
//! elements`. By its dual, for any weights of the resources, `Σ elements · min_o weights · load_o ≤ T`. The weights
//! come from multiplicative updates (Garg and Könemann 2007); the bound holds for any weights, and is as tight as they
//! are good.

use crate::constants::BUCKET_S;
use crate::network::PlanError;
use crate::problem::{Overlap, Problem};

/// Change of a weight in one update.
const STEP: f64 = 0.1;
/// Updates: more change the bound by less than a percent.
const UPDATES_MAX: usize = 20_000;
/// Operations of all updates: 1,024 ranks get fewer updates.
const OPERATIONS_MAX: usize = 400_000_000;
/// Updates without a better bound after which it counts as the best.
const PATIENCE: usize = 2_000;

/// The bound, and the mix that comes near it.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Lower bound of a step's time.
    pub step_s: f64,
    /// By class: proposals, and the share of its elements on each.
    pub shares: Vec<Vec<(usize, f64)>>,
}

/// Weights of the resources, and the shares that belong to them.
struct Weights {
    of: Vec<f64>,
    shares: Vec<(usize, f64)>,
}

/// The bound of all plans of a problem; `splits`: whether a variable may be in several buckets.
pub fn bound(problem: &Problem, splits: bool) -> Result<Bound, PlanError> {
    let classes = problem.model.classes.len();
    let packed: Result<Vec<Weights>, PlanError> = (0..classes).map(|class| packed(problem, class)).collect();
    let packed = packed?;
    // By weights and class: seconds per element.
    let mut least_s = Vec::new();
    for weights in &packed {
        let of: Result<Vec<f64>, PlanError> =
            (0..classes).map(|class| least(problem, class, &weights.of)).collect();
        least_s.push(of?);
    }
    let late_s = links_late_s(problem, &least_s).max(alone_late_s(problem, splits)?);
    let shares = packed.into_iter().map(|weights| weights.shares).collect();
    Ok(Bound { step_s: problem.model.step_s + late_s.max(0.0), shares })
}

/// The largest lateness from gradients that are made late and needed early.
fn links_late_s(problem: &Problem, least_s: &[Vec<f64>]) -> f64 {
    let variables = &problem.model.variables;
    let mut needed: Vec<f64> = match problem.model.overlap {
        Overlap::Barrier => vec![f64::INFINITY],
        Overlap::Gates => variables.iter().map(|variable| variable.needed_s).collect(),
    };
    needed.sort_by(f64::total_cmp);
    needed.dedup();
    let mut late_s = f64::NEG_INFINITY;
    for last_s in needed {
        let mut sums_s = vec![0.0; least_s.len()];
        let due_s = problem.due_s(if last_s.is_finite() { last_s } else { 0.0 });
        for variable in problem.backward.iter().rev().map(|&at| &variables[at]) {
            if variable.needed_s > last_s {
                continue;
            }
            for (sum_s, least_s) in sums_s.iter_mut().zip(least_s) {
                *sum_s += variable.elements as f64 * least_s[variable.class];
            }
            let work_s = sums_s.iter().copied().fold(0.0, f64::max);
            late_s = late_s.max(BUCKET_S + variable.ready_s + work_s - due_s);
        }
    }
    late_s
}

/// The largest lateness of a gradient with the network to itself.
fn alone_late_s(problem: &Problem, splits: bool) -> Result<f64, PlanError> {
    let mut late_s = f64::NEG_INFINITY;
    for variable in &problem.model.variables {
        let elements = if splits { variable.elements.min(1) } else { variable.elements } as f64;
        let mut alone_s = f64::INFINITY;
        for &proposal in &problem.fitting[variable.class] {
            let route = problem.route(variable.class, proposal).unwrap_or_default();
            let least = problem.cost.alone_s(route, elements)? * problem.least_factor(proposal);
            alone_s = alone_s.min(least);
        }
        late_s = late_s.max(BUCKET_S + variable.ready_s + alone_s - problem.due_s(variable.needed_s));
    }
    Ok(late_s)
}

/// Minimum weighted seconds of an element of a class.
fn least(problem: &Problem, class: usize, weights: &[f64]) -> Result<f64, PlanError> {
    let mut least_s = f64::INFINITY;
    for &proposal in &problem.fitting[class] {
        let load = problem.cost.least_s(problem.route(class, proposal).unwrap_or_default())?;
        least_s = least_s.min(weighed(weights, &load));
    }
    Ok(least_s)
}

fn weighed(weights: &[f64], load: &[f64]) -> f64 {
    weights.iter().zip(load).map(|(weight, load)| weight * load).sum()
}

/// Weights under which even the best mix of a class's routes takes long.
fn packed(problem: &Problem, class: usize) -> Result<Weights, PlanError> {
    let live = &problem.live[class];
    let loads: Result<Vec<Vec<f64>>, PlanError> = live
        .iter()
        .map(|&proposal| problem.cost.least_s(problem.route(class, proposal).unwrap_or_default()))
        .collect();
    let loads = loads?;
    let resources = problem.cost.resources();
    let even = 1.0 / resources.max(1) as f64;
    let (mut weights, mut best) = (vec![even; resources], vec![even; resources]);
    let (mut best_s, mut since) = (f64::NEG_INFINITY, 0);
    let mut taken = vec![0.0; loads.len()];
    let widths: Vec<f64> = loads.iter().map(|load| load.iter().copied().fold(0.0, f64::max)).collect();
    let updates = UPDATES_MAX.min(OPERATIONS_MAX / (resources * loads.len()).max(1)).max(1);
    for _ in 0..updates {
        let priced = loads.iter().map(|load| weighed(&weights, load));
        let Some((at, cost_s)) = priced.enumerate().min_by(|one, other| one.1.total_cmp(&other.1)) else {
            break;
        };
        since += 1;
        if cost_s > best_s * (1.0 + 1e-4) || best_s <= 0.0 {
            (best_s, since) = (cost_s, 0);
            best.clone_from(&weights);
        }
        if widths[at] <= 0.0 || since > PATIENCE {
            // Nothing is sent, or the weights cycle.
            taken[at] += f64::from(u8::from(widths[at] <= 0.0));
            break;
        }
        taken[at] += 1.0 / widths[at];
        let mut sum = 0.0;
        for (weight, load) in weights.iter_mut().zip(&loads[at]) {
            *weight *= 1.0 + STEP * load / widths[at];
            sum += *weight;
        }
        for weight in &mut weights {
            *weight /= sum;
        }
    }
    let all: f64 = taken.iter().sum();
    let used = live.iter().zip(taken).filter(|(_, taken)| *taken > 0.0);
    let shares = used.map(|(&proposal, taken)| (proposal, taken / all)).collect();
    Ok(Weights { of: best, shares })
}
