//! What an adapter needs whose framework runs compiled functions: XLA, TensorFlow. Its runtime gives each gradient (a
//! *leaf*) on a thread of its own, takes the mean back later, and is told when it is there; no Python runs between.
//!
//! Two calls per leaf, because a runtime may call and await one function after the other: were each leaf's call to await
//! its mean, the first leaf of a bucket would wait for the others, which would never be made. So giving never waits for
//! another leaf, and no mean is taken back before all are given. Then this rank has launched everything, and so will the
//! others: nobody waits in a circle.
//!
//! A [`Group`] is a model's leaves, laid into buckets. Each execution of the function is a *turn*, whose number comes with
//! every leaf: two executions may be in flight, and start their leaves in another order on each rank. The last leaf of a
//! bucket launches its program, by the executor's [`Readiness`](hocket_executor::readiness). Turns are reduced one after
//! the other; what comes early waits in the framework's memory.
//!
//! Knows no framework and opens no socket.
#![forbid(unsafe_code)]

mod code;
mod group;
mod groups;
mod loan;
mod programs;
#[cfg(test)]
mod tests;
mod turns;

pub use code::{ABORTED, DEADLINE_EXCEEDED, FAILED_PRECONDITION, INTERNAL, code};
pub use group::{Given, Group, Placed};
pub use groups::{Begin, EngineGroup, NOT_DISTRIBUTED, Refusal, answer_begin, begin, find, forget, register};
pub use loan::{Lent, Loan};
pub use programs::Programs;
