//! Rank orders: the cost of a collective when hosts take its ranks in some order, and searches for cheap orders.
//!
//! Numbers in, numbers out: no I/O, no clock; a [`Watch`] adds a time limit or progress. An order is `order[rank] =
//! host`. Input and seed alone determine the result, unless a watch stops the search early.
//!
//! The cost of an order is the time of its pairs alone, or of the busiest link that several pairs share, whichever is
//! more. The former, per algorithm, is that of "Cloud Collectives: Towards Cloud-aware Collectives for ML Workloads
//! with Rank Reordering" (Luo, Nelson, Krishnamurthy and Ceze 2021), with message sizes and pipelining in addition to
//! latency.
#![forbid(unsafe_code)]

mod bound;
mod cost;
mod model;
mod one_tree;
mod pairs;
mod solve;

pub use bound::lower_bound;
pub use cost::{Evaluator, evaluate};
pub use hocket_algorithms::Algorithm;
pub use model::{First, Model, ModelError};
pub use pairs::{Pairs, PairsError};
pub use solve::{Budget, NoWatch, Solution, Watch, amount, solve};
