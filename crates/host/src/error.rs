//! Errors of a collective of one host. After any of them, the group is out of step and refuses all further calls.

use hocket_ids::Rank;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// Some ranks did not arrive.
    #[error("{what}: not complete within the timeout of {timeout_s} s; {} did not come", ranks(.absent))]
    Absent { what: String, absent: Vec<Rank>, timeout_s: f64 },
    /// Another rank makes a different call.
    #[error(
        "rank {own} calls {ours}, but rank {other} calls {theirs}\nhint: all ranks of a group call the same collectives in the same order"
    )]
    Mismatch { own: Rank, ours: String, other: Rank, theirs: String },
    /// The caller's watch ended the wait.
    #[error("{what}: given up: {why}")]
    GivenUp { what: String, why: String },
    #[error("the group is out of step since: {0}")]
    Broken(String),
    /// The caller's mistake.
    #[error("{0}")]
    Usage(String),
    /// The system refused something that every Linux has.
    #[error("{what}: {why}")]
    System { what: String, why: String },
}

fn ranks(absent: &[Rank]) -> String {
    let names: Vec<String> = absent.iter().map(ToString::to_string).collect();
    format!("rank{} {}", if names.len() > 1 { "s" } else { "" }, names.join(", "))
}
