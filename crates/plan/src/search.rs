//! Local search over whole plans: from every seed's best, moves that are kept unless they cost more than a threshold which falls
//! to nothing (threshold accepting, Dueck and Scheuer 1990). Additions, products and comparisons only, so that a seed and a budget
//! give the same plan on every machine.

use crate::bound::{Bound, bound};
use crate::moves::moved;
use crate::network::PlanError;
use crate::problem::{Part, Placed, Problem};
use crate::seeds::{State, Uniform, bundlings, mixed, uniform};
use crate::timeline::{Outcome, Timeline};
use std::rc::Rc;

/// Seeds that are searched from.
const STARTS: usize = 4;
/// The first threshold, as a part of what the start has of waiting.
const FIRST: f64 = 0.05;
/// What a resource's mean time counts beside the step: of two plans that take as long, the one with less work goes on.
const MEAN: f64 = 1e-3;
/// What a bucket counts: of two plans that take as long, the one with fewer buckets.
const BUCKET: f64 = 1e-7;
/// A mixed plan must take less than this part of the best uniform one: what is predicted to gain less is not worth its intricacy.
pub(crate) const WORTH: f64 = 0.999;

/// How long to search. The same budget and input give the same plan.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of all random choices.
    pub seed: u64,
    /// Of whole plans, beyond the seeds.
    pub evaluations: usize,
    /// Whether a variable may be in several buckets.
    pub splits: bool,
}

/// A bucket of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Variable, first element, one after the last.
    pub parts: Vec<(usize, u64, u64)>,
    /// Index of its route's proposal.
    pub proposal: usize,
}

/// A plan, and what is known about it.
#[derive(Clone, Debug)]
pub struct Solution {
    /// In order of priority.
    pub buckets: Vec<Chosen>,
    /// Of a step.
    pub step_s: f64,
    /// No plan's step takes less.
    pub bound_s: f64,
    /// Whole plans that were scored.
    pub evaluations: usize,
    /// Of one route for all buckets: proposal, index of the bucket size, step; simplest first.
    pub uniform: Vec<(usize, usize, f64)>,
    /// Index in `uniform` of the plan, where it is one of these.
    pub chosen: Option<usize>,
    /// Index of a bucket size, and the variables of each bucket.
    pub bundlings: Vec<(usize, Vec<Vec<usize>>)>,
    /// The fastest plan of each builder that has one.
    pub built: Vec<Built>,
}

/// What a builder makes.
#[derive(Clone, Debug)]
pub struct Built {
    /// One of [`crate::BUILDERS`].
    pub builder: &'static str,
    /// Of a step.
    pub step_s: f64,
    /// In order of priority.
    pub buckets: Vec<Chosen>,
}

struct Scored {
    state: State,
    energy_s: f64,
    step_s: f64,
}

/// The fastest plan that was found.
pub fn solve(problem: &Problem, budget: &Budget) -> Result<Solution, PlanError> {
    let mut timeline = Timeline::new(problem.cost.resources());
    let bound = bound(problem, budget.splits)?;
    let Seeds { uniform, mut scored, built, mut evaluations } = seeded(problem, &bound, &mut timeline)?;
    let simplest = simplest(&uniform).ok_or(PlanError::Model("gradients fit no route"))?;
    scored.sort_by(|one, other| one.energy_s.total_cmp(&other.energy_s));
    let mut starts: Vec<Scored> = Vec::new();
    for seed in scored {
        let alike = |known: &Scored| routes(&known.state) == routes(&seed.state);
        if starts.len() < STARTS && !starts.iter().any(alike) {
            starts.push(seed);
        }
    }
    let mut random = fastrand::Rng::with_seed(budget.seed);
    let each = budget.evaluations / starts.len().max(1);
    let mut best: Option<Scored> = None;
    for start in starts {
        let found = anneal(problem, start, each, budget.splits, &mut timeline, &mut random);
        evaluations += each;
        if best.as_ref().is_none_or(|known| found.energy_s < known.energy_s) {
            best = Some(found);
        }
    }
    let best = best.map(|found| tidied(problem, found, &mut timeline));
    let listed = uniform.iter().map(|(each, step_s)| (each.proposal, each.size, *step_s)).collect();
    let (one, uniform_s) = &uniform[simplest];
    let (state, step_s, chosen) = match &best {
        Some(found) if found.step_s < uniform_s * WORTH => (&found.state, found.step_s, None),
        _ => (&one.state, *uniform_s, Some(simplest)),
    };
    Ok(Solution {
        buckets: chosen_of(problem, state),
        step_s,
        // The bound of a plan that attains it may be above it by rounding.
        bound_s: bound.step_s.min(step_s),
        evaluations,
        uniform: listed,
        chosen,
        bundlings: listed_bundlings(problem),
        built,
    })
}

fn chosen_of(problem: &Problem, state: &State) -> Vec<Chosen> {
    let part = |part: &Part| (problem.backward[part.place], part.start, part.stop);
    let bucket = |bucket: &Rc<Placed>| Chosen {
        parts: bucket.parts.iter().map(part).collect(),
        proposal: bucket.proposal,
    };
    state.iter().map(bucket).collect()
}

/// The plan of these buckets: a step, and when it ends.
pub fn score(problem: &Problem, buckets: &[Chosen]) -> Option<f64> {
    let mut places = vec![0; problem.backward.len()];
    problem.backward.iter().enumerate().for_each(|(place, &variable)| places[variable] = place);
    let parts = |bucket: &Chosen| {
        let part =
            |&(variable, start, stop): &(usize, u64, u64)| Part { place: places[variable], start, stop };
        problem.placed(bucket.parts.iter().map(part).collect(), bucket.proposal)
    };
    let state: Option<State> = buckets.iter().map(parts).collect();
    let outcome = Timeline::new(problem.cost.resources()).run(&state?, f64::INFINITY)?;
    Some(problem.step_s(&outcome))
}

fn listed_bundlings(problem: &Problem) -> Vec<(usize, Vec<Vec<usize>>)> {
    let variables = |bundle: Vec<Part>| bundle.iter().map(|part| problem.backward[part.place]).collect();
    let of = |(size, bundles): (usize, Vec<Vec<Part>>)| (size, bundles.into_iter().map(variables).collect());
    bundlings(problem).into_iter().map(of).collect()
}

struct Seeds {
    uniform: Vec<(Uniform, f64)>,
    /// All of them.
    scored: Vec<Scored>,
    built: Vec<Built>,
    evaluations: usize,
}

fn seeded(problem: &Problem, bound: &Bound, timeline: &mut Timeline) -> Result<Seeds, PlanError> {
    let (mut listed, mut found, mut evaluations) = (Vec::new(), Vec::new(), 0);
    let mut built: Vec<Built> = Vec::new();
    for each in uniform(problem) {
        let scored = scored(problem, each.state.clone(), timeline);
        evaluations += 1;
        if let Some(scored) = scored {
            listed.push((each, scored.step_s));
            found.push(scored);
        }
    }
    for (builder, state) in mixed(problem, bound, timeline) {
        evaluations += 1;
        let Some(scored) = scored(problem, state, timeline) else { continue };
        let made = Built { builder, step_s: scored.step_s, buckets: chosen_of(problem, &scored.state) };
        match built.iter_mut().find(|known| known.builder == builder) {
            Some(known) if made.step_s < known.step_s => *known = made,
            Some(_) => {}
            None => built.push(made),
        }
        found.push(scored);
    }
    if listed.is_empty() {
        return Err(PlanError::Model("gradients fit no route"));
    }
    Ok(Seeds { uniform: listed, scored: found, built, evaluations })
}

fn scored(problem: &Problem, state: State, timeline: &mut Timeline) -> Option<Scored> {
    let outcome = timeline.run(&state, f64::INFINITY)?;
    let energy_s = energy_s(&outcome, state.len());
    Some(Scored { step_s: problem.step_s(&outcome), energy_s, state })
}

fn energy_s(outcome: &Outcome, buckets: usize) -> f64 {
    outcome.late_s.max(0.0) + MEAN * outcome.mean_s + BUCKET * buckets as f64
}

/// Of those that are equally fast to a microsecond, the first.
fn simplest(uniform: &[(Uniform, f64)]) -> Option<usize> {
    let micros = |at: &usize| (uniform[*at].1 * 1e6).round();
    (0..uniform.len()).min_by(|one, other| micros(one).total_cmp(&micros(other)))
}

/// Urgent buckets first, then those that are ready first, where that costs nothing: a search leaves in disorder what has no effect.
fn tidied(problem: &Problem, found: Scored, timeline: &mut Timeline) -> Scored {
    let mut state = found.state.clone();
    state.sort_by(|one, other| {
        let (one, other) = (&one.piece, &other.piece);
        one.due_s.total_cmp(&other.due_s).then(one.start_s.total_cmp(&other.start_s))
    });
    let tidy = scored(problem, state, timeline);
    tidy.filter(|tidy| tidy.step_s <= found.step_s * (1.0 + 1e-9)).unwrap_or(found)
}

/// What tells starts apart: the routes, not the sizes.
fn routes(state: &State) -> Vec<usize> {
    let mut routes: Vec<usize> = state.iter().map(|bucket| bucket.proposal).collect();
    routes.sort_unstable();
    routes.dedup();
    routes
}

fn anneal(
    problem: &Problem,
    start: Scored,
    evaluations: usize,
    splits: bool,
    timeline: &mut Timeline,
    random: &mut fastrand::Rng,
) -> Scored {
    let first_s = FIRST * start.energy_s;
    let mut current = (start.state.clone(), start.energy_s);
    let mut best = start;
    for at in 0..evaluations {
        let threshold_s = first_s * (evaluations - at) as f64 / evaluations as f64;
        let Some(state) = moved(problem, &current.0, splits, random) else { continue };
        let limit_s = current.1 + threshold_s;
        let Some(outcome) = timeline.run(&state, limit_s) else { continue };
        let after_s = energy_s(&outcome, state.len());
        if after_s > limit_s {
            continue;
        }
        if after_s < best.energy_s {
            best = Scored { state: state.clone(), energy_s: after_s, step_s: problem.step_s(&outcome) };
        }
        current = (state, after_s);
    }
    best
}
