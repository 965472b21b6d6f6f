//! When buckets travel and are applied over many iterations: DeFT's own schedules, ours, and the result of either.
//!
//! A schedule fixes which gradients travel together and in which order; links never idle beside work. Times are not
//! fixed, so the results of training depend on the schedule and not on arrival times.

mod periods;
mod stages;
mod steady;

pub use periods::{Candidate, Limits, front, predicted, ratio_below};
pub use stages::{Case, Generation, Sending, Staged, Stages, Timed, stages};
pub use steady::{Computation, Steady, steady};

#[cfg(test)]
mod tests;
