//! Why a simulation is impossible, or did not end.

use hocket_network::NetworkError;
use thiserror::Error;

/// All errors.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Error {
    /// The links or routes contradict themselves, or lack what a program needs.
    #[error("network: {0}")]
    Network(#[from] NetworkError),
    /// A program that cannot run; the first op, in program order, at which ranks diverge, and how many more do.
    #[error("program `{name}`: rank {rank} op {op}: {what}{}", more(*others))]
    Program {
        name: String,
        rank: u32,
        op: u32,
        what: String,
        /// Findings besides this one.
        others: usize,
    },
    /// The job or its conditions contradict themselves.
    #[error("{what}")]
    Job { what: String },
    /// Nothing happens any more, and some ranks have not ended.
    #[error("nothing moves after {at_s:.9} s: {what}")]
    Stuck {
        /// Virtual time of the last event.
        at_s: f64,
        /// The stuck ranks, and the chain of waits.
        what: String,
        /// All of them.
        ranks: Vec<u32>,
    },
}

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    }
}
