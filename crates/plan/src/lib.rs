//! What a plan costs: a closed form that takes microseconds, so that a search can ask it for every candidate.
//!
//! Pure: numbers in, numbers out. It takes what is sent from [`hocket_algorithms::Counts`], and knows no algorithm.
#![forbid(unsafe_code)]

mod constants;
mod cost;
mod delays;
mod network;
mod route;

pub use constants::{BUCKET_S, CAST_S_PER_BYTE, MESSAGE_S, REDUCE_S_PER_BYTE, TCP_S_PER_BYTE};
pub use cost::{Cost, Launch, Step};
pub use network::{Network, PlanError};
pub use route::{Codec, Route};

#[cfg(test)]
mod tests;
