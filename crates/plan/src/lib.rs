//! What a plan costs, a closed form that takes microseconds; the search for the fastest plan, and a bound that none can beat.
//!
//! Pure: numbers in, numbers out; no clock, and a seed and a budget give the same plan on every machine. It takes what is sent from [`hocket_algorithms::Counts`], and knows no algorithm.
#![forbid(unsafe_code)]

mod bound;
mod by_links;
mod by_rates;
mod constants;
mod cost;
mod counted;
mod delays;
mod error;
mod exchange;
mod fair;
mod forest;
mod found;
pub mod knapsack;
mod moves;
mod packing;
mod partition;
mod prepared;
mod problem;
mod proposal;
mod proposals;
mod route;
pub mod schedules;
mod search;
mod seeds;
mod shape;
mod timeline;
mod volume;

pub use constants::{
    BUCKET_S, CAST_S_PER_BYTE, COPY_S_PER_BYTE, MESSAGE_S, REDUCE_S_PER_BYTE, TCP_S_PER_BYTE,
};
pub use cost::{Cost, Launch, Step};
pub use error::PlanError;
pub use exchange::{Counted, Exchange, Gathered, Rows};
pub use forest::{Forest, forest};
pub use hocket_algorithms::{Owned, Via};
pub use partition::{Rule, partition};
pub use problem::{Factors, Model, PART_ELEMENTS_MIN, Problem, Variable};
pub use proposal::{Class, Order, Proposal, Setting};
pub use route::{Codec, Route};
pub use search::{Budget, Built, Chosen, SPLIT_WORTH, Solution, score, solve};
pub use seeds::{BUCKET_BYTES, BUILDERS};
pub use timeline::{Outcome, Piece, Timeline};

#[cfg(test)]
mod exhaustive_tests;
#[cfg(test)]
mod networks;
#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod tests;
