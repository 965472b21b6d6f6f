//! A lower bound for any mix of the routes: a fractional assignment of elements to routes.
//!
//! All gradients that are made at `r` or later and needed at `d` or earlier cross links and engines after `r`, whatever
//! their buckets. The least time of the busiest resource is a packing problem (`packing.rs`), whose weights bound it.

use crate::constants::BUCKET_S;
use crate::error::PlanError;
use crate::packing::{Packed, packed, weighed};
use crate::problem::Problem;

/// Of packing: 1,024 ranks get fewer updates.
const OPERATIONS_MAX: usize = 400_000_000;

/// The bound, and the mix that comes near it.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Lower bound of a step's time.
    pub step_s: f64,
    /// By class: proposals, and the share of its elements on each.
    pub shares: Vec<Vec<(usize, f64)>>,
}

/// The bound of all plans of a problem; `splits`: whether a variable may be in several buckets.
pub fn bound(problem: &Problem, splits: bool) -> Result<Bound, PlanError> {
    let classes = problem.model.classes.len();
    let packed: Result<Vec<Packed>, PlanError> = (0..classes).map(|class| mixed(problem, class)).collect();
    let packed = packed?;
    // By weights and class: seconds per element.
    let mut least_s = Vec::new();
    for weights in &packed {
        let of: Result<Vec<f64>, PlanError> =
            (0..classes).map(|class| least(problem, class, &weights.weights)).collect();
        least_s.push(of?);
    }
    let late_s = links_late_s(problem, &least_s, BUCKET_S).max(alone_late_s(problem, splits)?);
    let used = |(class, packed): (usize, Packed)| {
        let shares = problem.live[class].iter().copied().zip(packed.shares);
        shares.filter(|(_, share)| *share > 0.0).collect()
    };
    let shares = packed.into_iter().enumerate().map(used).collect();
    Ok(Bound { step_s: problem.model.step_s + late_s.max(0.0), shares })
}

/// What no plan can beat, whatever its routes: hosts send and receive at least so much (`volume.rs`), and the last of it arrives a
/// latency after it left.
pub fn least_step_s(problem: &Problem) -> f64 {
    let after_s = if problem.latency_s.is_finite() { problem.latency_s } else { 0.0 };
    let late_s = links_late_s(problem, std::slice::from_ref(&problem.least_s), after_s);
    problem.model.step_s + late_s.max(0.0)
}

/// The largest lateness from gradients that are made late, by weights and class: seconds of an element, and `after_s`
/// beside them.
fn links_late_s(problem: &Problem, least_s: &[Vec<f64>], after_s: f64) -> f64 {
    let mut late_s = f64::NEG_INFINITY;
    let mut sums_s = vec![0.0; least_s.len()];
    for variable in problem.backward.iter().rev().map(|&at| &problem.model.variables[at]) {
        for (sum_s, least_s) in sums_s.iter_mut().zip(least_s) {
            *sum_s += variable.elements as f64 * least_s[variable.class];
        }
        let work_s = sums_s.iter().copied().fold(0.0, f64::max);
        late_s = late_s.max(after_s + variable.ready_s + work_s - problem.model.backward_end_s);
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
        late_s = late_s.max(BUCKET_S + variable.ready_s + alone_s - problem.model.backward_end_s);
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

/// The best mix of a class's routes.
fn mixed(problem: &Problem, class: usize) -> Result<Packed, PlanError> {
    let live = &problem.live[class];
    let loads: Result<Vec<Vec<f64>>, PlanError> = live
        .iter()
        .map(|&proposal| problem.cost.least_s(problem.route(class, proposal).unwrap_or_default()))
        .collect();
    Ok(packed(&loads?, OPERATIONS_MAX))
}
