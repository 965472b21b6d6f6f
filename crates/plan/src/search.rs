//! Local search over whole plans: from every seed's best, moves that are kept unless they cost more than a threshold which falls
//! to nothing (threshold accepting, Dueck and Scheuer 1990). Additions, products and comparisons only, so that a seed and a budget
//! give the same plan on every machine.

use crate::bound::{Bound, bound, least_step_s};
use crate::constants::BUCKET_S;
use crate::error::PlanError;
use crate::moves::{lie_in_rows, moved, neighbours};
use crate::problem::{Part, Placed, Problem};
use crate::proposal::Proposal;
use crate::seeds::{State, Uniform, bundlings, cut_by_shares, mixed, uniform};
use crate::timeline::{Outcome, Timeline};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// Seeds that are searched from.
const STARTS: usize = 4;
/// One of so many evaluations is kept for the descent at the end.
const DESCENT: usize = 5;
/// The first threshold, as a part of what the start has of waiting.
const FIRST: f64 = 0.05;
/// What a resource's mean time counts beside the step: of two plans that take as long, the one with less work goes on.
const MEAN: f64 = 1e-3;
/// What a bucket counts: of two plans that take as long, the one with fewer buckets.
const BUCKET: f64 = 1e-7;
/// A mixed plan must take less than this part of the best uniform one: what is predicted to gain less is not worth its intricacy.
pub(crate) const WORTH: f64 = 0.999;
/// A plan that cuts variables must take less than this part of the best one that does not: buckets that share a variable share memory,
/// and wait for one another where an epoch begins.
pub const SPLIT_WORTH: f64 = 0.98;
/// A part beyond one of each variable must gain so much of the waiting, and `BUCKET_S` for its launch.
const PART: f64 = 3e-3;

/// How long to search. The same budget and input give the same plan.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of all random choices.
    pub seed: u64,
    /// Of whole plans, beyond the seeds; as many again where variables may be cut and that could pay.
    pub evaluations: usize,
    /// Whether a variable may be in several buckets.
    pub splits: bool,
}

/// A bucket of a plan.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// Variable, first element, one after the last.
    pub parts: Vec<(usize, u64, u64)>,
    /// Index of its route's proposal.
    pub proposal: usize,
}

/// A plan, and what is known about it.
#[derive(Clone, Debug, Serialize)]
pub struct Solution {
    /// In order of priority.
    pub buckets: Vec<Chosen>,
    /// The routes that were considered, simplest first.
    pub proposals: Vec<Proposal>,
    /// Of a step.
    pub step_s: f64,
    /// No plan of these routes takes less.
    pub bound_s: f64,
    /// No plan takes less, whatever its routes.
    pub least_s: f64,
    /// Plans that were scored, whole ones and those that a greedy search had begun.
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
#[derive(Clone, Debug, Serialize)]
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

/// The fastest plan that was found. `given`: plans to begin with, beside those of rules; one with a bucket that a search may not
/// make is left out.
pub fn solve(problem: &Problem, budget: &Budget, given: &[Vec<Chosen>]) -> Result<Solution, PlanError> {
    let bound = bound(problem, budget.splits)?;
    let mut search = Search {
        problem,
        timeline: Timeline::new(problem.cost.resources()),
        random: fastrand::Rng::with_seed(budget.seed),
        splits: false,
    };
    let Seeds { uniform, mut scored, built } = seeded(problem, &bound, &mut search.timeline)?;
    let given = given.iter().filter_map(|plan| state_of(problem, plan));
    let given: Vec<Scored> =
        given.filter_map(|state| scored_state(problem, state, &mut search.timeline)).collect();
    let (cut_given, whole_given): (Vec<Scored>, Vec<Scored>) =
        given.into_iter().partition(|each| is_cut(problem, &each.state));
    scored.extend(whole_given);
    let simplest = simplest(&uniform).ok_or(PlanError::Model("gradients fit no route"))?;
    let whole = search.best(different(scored), budget.evaluations);
    let (one, uniform_s) = &uniform[simplest];
    let mut chosen = (&one.state, *uniform_s, Some(simplest));
    if let Some(found) = whole.as_ref().filter(|found| found.step_s < uniform_s * WORTH) {
        chosen = (&found.state, found.step_s, None);
    }
    let cut = match &whole {
        Some(whole) if budget.splits && whole.step_s > bound.step_s / SPLIT_WORTH => {
            let mut starts = vec![Scored { state: whole.state.clone(), ..*whole }];
            for state in cut_by_shares(problem, &bound) {
                starts.extend(scored_state(problem, state, &mut search.timeline));
            }
            starts.extend(cut_given);
            search.splits = true;
            search.best(different(starts), budget.evaluations)
        }
        _ => None,
    };
    if let Some(found) = cut.as_ref().filter(|found| found.step_s < chosen.1 * SPLIT_WORTH) {
        chosen = (&found.state, found.step_s, None);
    }
    let (state, step_s, chosen) = chosen;
    let listed = uniform.iter().map(|(each, step_s)| (each.proposal, each.size, *step_s)).collect();
    Ok(Solution {
        buckets: chosen_of(problem, state),
        proposals: problem.proposals.clone(),
        step_s,
        // The bound of a plan that attains it may be above it by rounding.
        bound_s: bound.step_s.min(step_s),
        least_s: least_step_s(problem).min(step_s),
        evaluations: search.timeline.runs(),
        uniform: listed,
        chosen,
        bundlings: listed_bundlings(problem),
        built,
    })
}

/// The few best ones that differ in routes.
fn different(mut scored: Vec<Scored>) -> Vec<Scored> {
    scored.sort_by(|one, other| one.energy_s.total_cmp(&other.energy_s));
    let mut starts: Vec<Scored> = Vec::new();
    for seed in scored {
        let alike = |known: &Scored| routes(&known.state) == routes(&seed.state);
        if starts.len() < STARTS && !starts.iter().any(alike) {
            starts.push(seed);
        }
    }
    starts
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
    let outcome = Timeline::new(problem.cost.resources()).run(&state_of(problem, buckets)?, f64::INFINITY)?;
    Some(problem.step_s(&outcome))
}

/// These buckets on their routes; `None` if one has a part that a search may not cut, or gradients of two classes.
fn state_of(problem: &Problem, buckets: &[Chosen]) -> Option<State> {
    let mut places = vec![0; problem.backward.len()];
    problem.backward.iter().enumerate().for_each(|(place, &variable)| places[variable] = place);
    let parts = |bucket: &Chosen| {
        let part =
            |&(variable, start, stop): &(usize, u64, u64)| Part { place: places[variable], start, stop };
        let parts: Vec<Part> = bucket.parts.iter().map(part).collect();
        let class = |part: &Part| problem.variable(part.place).class;
        let alike = parts.iter().all(|part| class(part) == class(&parts[0]));
        alike.then(|| problem.placed(parts, bucket.proposal))?
    };
    buckets.iter().map(parts).collect()
}

fn is_cut(problem: &Problem, state: &State) -> bool {
    state.iter().map(|bucket| bucket.parts.len()).sum::<usize>() > problem.backward.len()
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
}

fn seeded(problem: &Problem, bound: &Bound, timeline: &mut Timeline) -> Result<Seeds, PlanError> {
    let (mut listed, mut found) = (Vec::new(), Vec::new());
    let mut built: Vec<Built> = Vec::new();
    for each in uniform(problem) {
        let scored = scored_state(problem, each.state.clone(), timeline);
        if let Some(scored) = scored {
            listed.push((each, scored.step_s));
            found.push(scored);
        }
    }
    for (builder, state) in mixed(problem, bound, timeline) {
        let Some(scored) = scored_state(problem, state, timeline) else { continue };
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
    Ok(Seeds { uniform: listed, scored: found, built })
}

fn scored_state(problem: &Problem, state: State, timeline: &mut Timeline) -> Option<Scored> {
    let outcome = timeline.run(&state, f64::INFINITY)?;
    let energy_s = energy_s(problem, &outcome, &state);
    Some(Scored { step_s: problem.step_s(&outcome), energy_s, state })
}

fn energy_s(problem: &Problem, outcome: &Outcome, state: &State) -> f64 {
    let parts = state.iter().map(|bucket| bucket.parts.len()).sum::<usize>();
    let cuts = parts - problem.backward.len();
    let waits_s = problem.waits_s(outcome);
    let cuts_s = cuts as f64 * (PART * waits_s + BUCKET_S);
    waits_s + MEAN * outcome.mean_s + BUCKET * state.len() as f64 + cuts_s
}

/// Of those that are equally fast to a microsecond, the first.
fn simplest(uniform: &[(Uniform, f64)]) -> Option<usize> {
    let micros = |at: &usize| (uniform[*at].1 * 1e6).round();
    (0..uniform.len()).min_by(|one, other| micros(one).total_cmp(&micros(other)))
}

/// Buckets that are ready first go first, where that costs nothing: a search leaves in disorder what has no effect.
fn tidied(problem: &Problem, found: Scored, timeline: &mut Timeline) -> Scored {
    let mut state = found.state.clone();
    state.sort_by(|one, other| one.piece.start_s.total_cmp(&other.piece.start_s));
    let tidy = scored_state(problem, state, timeline);
    tidy.filter(|tidy| tidy.step_s <= found.step_s * (1.0 + 1e-9)).unwrap_or(found)
}

/// What tells starts apart: the routes, not the sizes.
fn routes(state: &State) -> Vec<usize> {
    let mut routes: Vec<usize> = state.iter().map(|bucket| bucket.proposal).collect();
    routes.sort_unstable();
    routes.dedup();
    routes
}

/// Local search over a problem.
struct Search<'a> {
    problem: &'a Problem,
    timeline: Timeline,
    random: fastrand::Rng,
    /// Whether it may cut variables.
    splits: bool,
}

impl Search<'_> {
    /// The best that is found from all starts, which share the evaluations.
    fn best(&mut self, starts: Vec<Scored>, evaluations: usize) -> Option<Scored> {
        let kept = evaluations / DESCENT;
        let each = (evaluations - kept) / starts.len().max(1);
        let mut best: Option<Scored> = None;
        for start in starts {
            let found = self.anneal(start, each);
            if best.as_ref().is_none_or(|known| found.energy_s < known.energy_s) {
                best = Some(found);
            }
        }
        best.map(|found| self.descend(found, kept))
            .map(|found| tidied(self.problem, found, &mut self.timeline))
    }

    /// Better neighbours until there is none: what a random search leaves undone.
    fn descend(&mut self, start: Scored, evaluations: usize) -> Scored {
        let (mut best, mut left) = (start, evaluations);
        let (mut at, mut since) = (0, 0);
        while left > 0 && since < best.state.len() {
            at = (at + 1) % best.state.len();
            since += 1;
            if let Some(found) = self.better_neighbour(&best, at, &mut left) {
                (best, since) = (found, 0);
            }
        }
        best
    }

    fn better_neighbour(&mut self, best: &Scored, at: usize, left: &mut usize) -> Option<Scored> {
        neighbours(self.problem, &best.state, at).take(*left).find_map(|state| {
            *left -= 1;
            if self.splits && !lie_in_rows(self.problem, &state) {
                return None;
            }
            let found = scored_state(self.problem, state, &mut self.timeline)?;
            (found.energy_s < best.energy_s * (1.0 - 1e-9)).then_some(found)
        })
    }

    fn anneal(&mut self, start: Scored, evaluations: usize) -> Scored {
        let first_s = FIRST * start.energy_s;
        let mut current = (start.state.clone(), start.energy_s);
        let mut best = start;
        for at in 0..evaluations {
            let threshold_s = first_s * (evaluations - at) as f64 / evaluations as f64;
            let Some(state) = moved(self.problem, &current.0, self.splits, &mut self.random) else {
                continue;
            };
            if self.splits && !lie_in_rows(self.problem, &state) {
                continue;
            }
            let limit_s = current.1 + threshold_s;
            let until_s = self.problem.model.backward_end_s + limit_s;
            let Some(outcome) = self.timeline.run(&state, until_s) else { continue };
            let after_s = energy_s(self.problem, &outcome, &state);
            if after_s > limit_s {
                continue;
            }
            if after_s < best.energy_s {
                best =
                    Scored { step_s: self.problem.step_s(&outcome), energy_s: after_s, state: state.clone() };
            }
            current = (state, after_s);
        }
        best
    }
}
