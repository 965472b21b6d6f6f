//! Errors of a collective of one host. After any of them, the group is out of step and refuses all further calls.

use hocket_ids::Rank;

/// Why a collective failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Some ranks did not arrive.
    #[error("{what}: not complete within the timeout of {timeout_s} s; {} did not come", ranks(.absent))]
    Absent {
        /// Our call.
        what: String,
        /// A missing rank.
        absent: Vec<Rank>,
        /// The time waited.
        timeout_s: f64,
    },
    /// Another rank makes a different call.
    #[error(
        "rank {own} calls {ours}, but rank {other} calls {theirs}\nhint: all ranks of a group call the same collectives in the same order"
    )]
    Mismatch {
        /// Our rank.
        own: Rank,
        /// Our call.
        ours: String,
        /// The other rank.
        other: Rank,
        /// Its call.
        theirs: String,
    },
    /// The caller's watch ended the wait.
    #[error("{what}: given up: {why}")]
    GivenUp {
        /// Our call.
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
        /// Our call.
        what: String,
        /// The system's error.
        why: String,
    },
}

fn ranks(absent: &[Rank]) -> String {
    let names: Vec<String> = absent.iter().map(ToString::to_string).collect();
    format!("rank{} {}", if names.len() > 1 { "s" } else { "" }, names.join(", "))
}
