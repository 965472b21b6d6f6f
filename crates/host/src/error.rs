//! What can go wrong in a collective of one host. After any of these the group is out of step and refuses all further calls.

use hocket_ids::Rank;

/// Why a collective did not happen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Some ranks did not come.
    #[error("{what}: not complete within the timeout of {timeout_s} s; {} did not come", ranks(.absent))]
    Absent {
        /// What we call.
        what: String,
        /// The rank that this one waits for.
        absent: Vec<Rank>,
        /// How long.
        timeout_s: f64,
    },
    /// Another rank calls something else.
    #[error(
        "rank {own} calls {ours}, but rank {other} calls {theirs}\nhint: all ranks of a group call the same collectives in the same order"
    )]
    Mismatch {
        /// We.
        own: Rank,
        /// What we call.
        ours: String,
        /// The rank whose call differs.
        other: Rank,
        /// What it calls.
        theirs: String,
    },
    /// The caller's watch ended the wait.
    #[error("{what}: given up: {why}")]
    GivenUp {
        /// What we call.
        what: String,
        /// The watch's reason.
        why: String,
    },
    /// An earlier collective failed.
    #[error("the group is out of step since: {0}")]
    Broken(String),
    /// The caller's mistake.
    #[error("{0}")]
    Usage(String),
    /// The system refused something that every Linux has.
    #[error("{what}: {why}")]
    System {
        /// What we call.
        what: String,
        /// The system's error.
        why: String,
    },
}

fn ranks(absent: &[Rank]) -> String {
    let names: Vec<String> = absent.iter().map(ToString::to_string).collect();
    format!("rank{} {}", if names.len() > 1 { "s" } else { "" }, names.join(", "))
}
