//! The result of a simulation: times, bytes, and, on request, a record of every op.

use crate::time::Picos;
use hocket_trace::Record;

/// One launch over all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchSpan {
    /// When the first rank started it.
    pub start: Picos,
    /// When the last rank ended it.
    pub end: Picos,
}

/// The whole job, in virtual time.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// When the last rank ended.
    pub end: Picos,
    /// By phase, then by rank: its end.
    pub phase_ends: Vec<Vec<Picos>>,
    /// In the order of the job.
    pub launches: Vec<LaunchSpan>,
    /// By link: bytes that crossed it.
    pub link_bytes: Vec<f64>,
    /// Messages received.
    pub messages: u64,
    /// Number of events.
    pub events: u64,
    /// Number of solves of rates.
    pub solves: u64,
    /// Flows inspected for it, over all solves: the cost of simulating shared links.
    pub looked_at: u64,
    /// By rank, in the order of their ends; empty unless recorded.
    pub records: Vec<Vec<Record>>,
}
