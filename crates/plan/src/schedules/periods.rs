//! Our schedules: turn boundaries for links that never idle beside work, and the front of what may be had for which staleness.
//!
//! Where links carry a share r < 1 of what is made, turns of all buckets are spread evenly over a period at the best ratio of small
//! numbers below r; so updates come as often as the links allow, and stages lose nothing at their ends. Two slots of a bucket limit how
//! late a turn may be applied: at the end of the next one.

use super::steady::{Computation, Steady, carried_s, steady};
use crate::error::PlanError;
use crate::timeline::Piece;
use hocket_schedule::{At, Schedule, one_after_another};

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Iterations after its last one at which a turn is applied, at most.
    pub delay_max: usize,
    /// Iterations in a turn, at most.
    pub merge_max: usize,
    /// Whether forward may wait for each bucket alone.
    pub gates: bool,
    /// Whether all buckets have the same turns; else long buckets may be merged more often than others.
    pub together: bool,
}

/// A schedule and what it comes to.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub schedule: Schedule,
    pub steady: Steady,
}

/// Iterations of a period, at most.
const PERIOD_MAX: usize = 64;

/// Shares of what the links carry that are tried: a little less leaves room for what is late.
const SHARES: [f64; 4] = [1.0, 0.98, 0.95, 0.9];

/// Differences of times, as shares, that count for none.
const ALIKE: f64 = 1e-9;

/// Long buckets that get turns of their own, at most.
const LONG_MAX: usize = 3;

/// Schedules that no other is better than in step, updates per iteration and delay at the same time; the fastest steps first.
///
/// The synchronous one and each of `others` are candidates, too. `pieces` by bucket, in order of priority.
///
/// [`PlanError::Window`]: times that are none. [`PlanError::Schedule`]: one that no session could keep.
pub fn front(
    computation: &Computation,
    pieces: &[Piece],
    limits: &Limits,
    others: &[Schedule],
) -> Result<Vec<Candidate>, PlanError> {
    check(computation, pieces, others)?;
    let run = |schedule: Schedule| {
        let steady = steady(computation, pieces, &schedule);
        Candidate { schedule, steady }
    };
    let mut candidates: Vec<Candidate> = others.iter().cloned().map(run).collect();
    let gates: &[At] = if limits.gates { &[At::End, At::Gate] } else { &[At::End] };
    for lengths in lengths(computation, pieces, limits) {
        let longest = lengths.iter().copied().max().unwrap_or(1);
        let late =
            (0..=limits.delay_max.min(longest)).flat_map(|delay| gates.iter().map(move |&at| (delay, at)));
        for (delay, at) in late {
            let candidate = run(Schedule::together(pieces.len(), &lengths, delay, at));
            let least_s = computation.step_s.max(carried_s(pieces, &candidate.schedule));
            let best = candidate.steady.iteration_s <= least_s * (1.0 + ALIKE);
            candidates.push(candidate);
            // Later turns of these lengths would have nothing to gain.
            if best {
                break;
            }
        }
    }
    if !limits.together {
        let apart = gates.iter().flat_map(|&at| long_apart(pieces, limits, at));
        candidates.extend(apart.map(run));
    }
    Ok(not_dominated(candidates))
}

/// What a schedule comes to.
///
/// Its errors are those of [`front`].
pub fn predicted(
    computation: &Computation,
    pieces: &[Piece],
    schedule: &Schedule,
) -> Result<Steady, PlanError> {
    check(computation, pieces, std::slice::from_ref(schedule))?;
    Ok(steady(computation, pieces, schedule))
}

fn check(computation: &Computation, pieces: &[Piece], others: &[Schedule]) -> Result<(), PlanError> {
    let resources = pieces.first().map_or(0, |piece| piece.busy_s.len());
    let sound = |time_s: &f64| time_s.is_finite() && *time_s >= 0.0;
    let all = |piece: &Piece| {
        let beside = [piece.start_s, piece.head_s, piece.tail_s, piece.alone_s];
        piece.busy_s.len() == resources && piece.busy_s.iter().chain(&beside).all(sound)
    };
    if computation.needed_s.len() != pieces.len() || !pieces.iter().all(all) {
        return Err(PlanError::Window("buckets need times of 0 or more on the same resources"));
    }
    let times = [computation.backward_end_s, computation.step_s];
    if !computation.needed_s.iter().chain(&times).all(sound) || computation.step_s <= 0.0 {
        return Err(PlanError::Window("iteration takes no time, or less than none"));
    }
    others.iter().try_for_each(|each| Ok(each.check(pieces.len())?))
}

/// The largest ratio of whole numbers that is at most `share`, as (turns, iterations), iterations at most `period_max`.
pub fn ratio_below(share: f64, period_max: usize) -> (usize, usize) {
    let below = |iterations: usize| ((share * iterations as f64 + 1e-9).floor() as usize, iterations);
    let ratios = (1..=period_max).map(below).filter(|&(turns, _)| turns > 0);
    let larger = |best: (usize, usize), next: (usize, usize)| {
        // Of equal ones, the shorter period.
        if next.0 * best.1 > best.0 * next.1 { next } else { best }
    };
    ratios.reduce(larger).map_or((1, period_max), |(turns, iterations)| (turns.min(iterations), iterations))
}

/// Lengths of turns that are worth a try, by period.
fn lengths(computation: &Computation, pieces: &[Piece], limits: &Limits) -> Vec<Vec<usize>> {
    let resources = pieces.first().map_or(0, |piece| piece.busy_s.len());
    let busy_s = |resource: usize| pieces.iter().map(|piece| piece.busy_s[resource]).sum::<f64>();
    let busiest_s = (0..resources).map(busy_s).fold(0.0, f64::max);
    let carried = if busiest_s > 0.0 { (computation.step_s / busiest_s).min(1.0) } else { 1.0 };
    let mut found: Vec<Vec<usize>> = (1..=limits.merge_max.max(1)).map(|merge| vec![merge]).collect();
    for share in SHARES {
        let (count, iterations) = ratio_below(carried * share, PERIOD_MAX);
        let made = spread(iterations, count);
        if made.iter().all(|&length| length <= limits.merge_max) && !found.contains(&made) {
            found.push(made);
        }
    }
    found
}

/// `turns` over `iterations`, as evenly as whole iterations allow.
fn spread(iterations: usize, turns: usize) -> Vec<usize> {
    let end = |turn: usize| (turn * iterations).div_ceil(turns);
    (0..turns).map(|turn| end(turn + 1) - end(turn)).collect()
}

/// The longest buckets are merged, others travel in every iteration.
fn long_apart(pieces: &[Piece], limits: &Limits, at: At) -> Vec<Schedule> {
    let longest_s = |piece: &Piece| piece.busy_s.iter().copied().fold(0.0, f64::max);
    let mut longest: Vec<usize> = (0..pieces.len()).collect();
    longest.sort_by(|&one, &other| longest_s(&pieces[other]).total_cmp(&longest_s(&pieces[one])));
    let mut found = Vec::new();
    for merged in 1..pieces.len().min(LONG_MAX + 1) {
        for merge in 2..=limits.merge_max {
            for delay in 0..=limits.delay_max.min(merge) {
                let each = |bucket| {
                    let long = longest[..merged].contains(&bucket);
                    one_after_another(&if long { vec![merge] } else { vec![1; merge] }, delay, at)
                };
                found.push(Schedule::new(merge, (0..pieces.len()).map(each).collect()));
            }
        }
    }
    found
}

fn not_dominated(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.sort_by(|one, other| one.steady.iteration_s.total_cmp(&other.steady.iteration_s));
    let covers = |one: &Candidate, other: &Candidate| {
        one.steady.iteration_s <= other.steady.iteration_s * (1.0 + ALIKE)
            && one.steady.updates_per_iteration >= other.steady.updates_per_iteration - 1e-9
            && one.schedule.delay_max <= other.schedule.delay_max
    };
    let mut front: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        if !front.iter().any(|known| covers(known, &candidate)) {
            front.retain(|known| !covers(&candidate, known));
            front.push(candidate);
        }
    }
    front
}
