//! Knapsacks, and schedules of merged and late gradients.

use crate::artefact::Told;
use crate::exceptions::error;
use hocket_plan::knapsack::{self, Item};
use hocket_plan::schedules::{self, Computation, Limits, Timed};
use hocket_plan::{Piece, PlanError};
use hocket_schedule::Schedule;
use pyo3::prelude::*;

/// Ready, busy by link, profit: in ticks.
type DescribedItem = (u32, Vec<u32>, u32);

/// Forward, backward, busy by link: in seconds.
type DescribedBucket = (f64, f64, Vec<f64>);

/// Ready, head, tail, alone, busy by resource: in seconds.
pub type DescribedPiece = (f64, f64, f64, f64, Vec<f64>);

fn refuse(py: Python<'_>, cause: &PlanError) -> PyErr {
    error(py, "UsageError", &format!("plan: {cause}"))
}

fn piece((start_s, head_s, tail_s, alone_s, busy_s): DescribedPiece) -> Piece {
    Piece { start_s, head_s, tail_s, alone_s, busy_s }
}

/// The most profitable items that links can carry, each link until its end: by item its link, the profit, and what none exceeds.
///
/// Items: when ready, time on each link, profit, in ticks. Links: one to four. `budget`: states that are looked at, at most.
#[pyfunction]
#[pyo3(signature = (items, until, *, budget=knapsack::BUDGET))]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn pack(
    py: Python<'_>,
    items: Vec<DescribedItem>,
    until: Vec<u32>,
    budget: usize,
) -> PyResult<(Vec<Option<usize>>, u64, u64)> {
    let item = |(ready, busy, profit)| Item { ready, busy, profit };
    let items: Vec<Item> = items.into_iter().map(item).collect();
    let packing = py.detach(|| knapsack::pack(&items, &until, budget)).map_err(|cause| refuse(py, &cause))?;
    Ok((packing.links, packing.profit, packing.bound))
}

/// DeFT's Algorithm 1 for items in order of readiness, each link from its begin to its end: by item its link, and the profit.
///
/// It ignores when all but the first item that it keeps are ready, so not all of what it returns may fit.
#[pyfunction]
#[pyo3(signature = (items, *, begins, until))]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn algorithm_1(
    py: Python<'_>,
    items: Vec<DescribedItem>,
    begins: Vec<u32>,
    until: Vec<u32>,
) -> PyResult<(Vec<Option<usize>>, u64)> {
    let item = |(ready, busy, profit)| Item { ready, busy, profit };
    let items: Vec<Item> = items.into_iter().map(item).collect();
    let chosen = py.detach(|| knapsack::recursive(&items, &begins, &until));
    let chosen = chosen.map_err(|cause| refuse(py, &cause))?;
    Ok((chosen.links, chosen.profit))
}

/// DeFT's schedule of buckets, the input side first: seconds of forward, backward, and of transfer on each link, infinite where a
/// bucket cannot travel.
///
/// `UsageError` names a bucket that fits into no window, even `capacity_factor` times as long as computation takes.
#[pyfunction]
#[pyo3(signature = (buckets, *, capacity_factor=1.0))]
pub fn staged_schedule(
    py: Python<'_>,
    buckets: Vec<DescribedBucket>,
    capacity_factor: f64,
) -> PyResult<Told<Schedule>> {
    let timed = |(forward_s, backward_s, busy_s)| Timed { forward_s, backward_s, busy_s };
    let buckets: Vec<Timed> = buckets.into_iter().map(timed).collect();
    let stages = py.detach(|| schedules::stages(&buckets, capacity_factor));
    let stages = stages.map_err(|cause| refuse(py, &cause))?;
    Ok(Told(stages.schedule(buckets.len())))
}

/// Schedules, seconds of an iteration and updates per iteration: no other is better in both of these and in its delay.
///
/// `pieces`, in order of priority. `together`: all buckets have the same turns. `others` are candidates, too. `UsageError` for
/// times or schedules that do not fit.
#[pyfunction]
#[pyo3(signature = (pieces, *, needed_s, backward_end_s, step_s, delay_max, merge_max, gates, together, others=Vec::new()))]
#[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
pub fn schedule_front(
    py: Python<'_>,
    pieces: Vec<DescribedPiece>,
    needed_s: Vec<f64>,
    backward_end_s: f64,
    step_s: f64,
    delay_max: usize,
    merge_max: usize,
    gates: bool,
    together: bool,
    others: Vec<Told<Schedule>>,
) -> PyResult<Vec<(Told<Schedule>, f64, f64)>> {
    let pieces: Vec<Piece> = pieces.into_iter().map(piece).collect();
    let others: Vec<_> = others.into_iter().map(|told| told.0).collect();
    let computation = Computation { needed_s, backward_end_s, step_s };
    let limits = Limits { delay_max, merge_max, gates, together };
    let found = py.detach(|| schedules::front(&computation, &pieces, &limits, &others));
    let found = found.map_err(|cause| refuse(py, &cause))?;
    let candidate = |schedules::Candidate { schedule, steady }| {
        (Told(schedule), steady.iteration_s, steady.updates_per_iteration)
    };
    Ok(found.into_iter().map(candidate).collect())
}

/// Seconds of an iteration with a schedule, and updates per iteration; as `schedule_front` predicts its own.
#[pyfunction]
#[pyo3(signature = (pieces, chosen, *, needed_s, backward_end_s, step_s))]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn schedule_steady(
    py: Python<'_>,
    pieces: Vec<DescribedPiece>,
    chosen: Told<Schedule>,
    needed_s: Vec<f64>,
    backward_end_s: f64,
    step_s: f64,
) -> PyResult<(f64, f64)> {
    let pieces: Vec<Piece> = pieces.into_iter().map(piece).collect();
    let computation = Computation { needed_s, backward_end_s, step_s };
    let steady = py.detach(|| schedules::predicted(&computation, &pieces, &chosen.0));
    let steady = steady.map_err(|cause| refuse(py, &cause))?;
    Ok((steady.iteration_s, steady.updates_per_iteration))
}

/// Every fault of a schedule of so many buckets, in words.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn schedule_faults(schedule: Told<Schedule>, buckets: usize) -> Vec<String> {
    schedule.0.faults(buckets).iter().map(ToString::to_string).collect()
}

/// Copies of each bucket's memory that a sound schedule needs.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn schedule_slots(schedule: Told<Schedule>, buckets: usize) -> Vec<usize> {
    (0..buckets).map(|bucket| schedule.0.slots(bucket)).collect()
}

/// Launches in `count` iterations, as `SimulatedJob.scheduled` numbers them: bucket, and launches of it before.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "made from Python's")]
pub fn schedule_launches(schedule: Told<Schedule>, buckets: usize, count: usize) -> Vec<(usize, usize)> {
    schedule.0.launches(buckets, count).iter().map(|launch| (launch.bucket, launch.before)).collect()
}
