//! Why an algorithm cannot serve a request.

use crate::Kind;

/// A collective, a group and an algorithm that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// No such algorithm for that collective, or not for this many members.
    #[error("{collective} by {algorithm}: not for this group; `ring` and `direct` are for any")]
    Unsupported { collective: &'static str, algorithm: String },
    /// More servers than members, or none.
    #[error("parameter_server: {servers} servers among {members} ranks")]
    Servers { servers: usize, members: usize },
    /// Owners, workers or stations that are not members.
    #[error("owners: {0}")]
    Owners(&'static str),
    /// Sizes of a two-level algorithm do not add up.
    #[error("two_level: groups of {sizes:?} for {members} ranks")]
    Sizes { sizes: Vec<u32>, members: usize },
    /// Shares that are not those of the members.
    #[error("collect_spread: shares {shares:?} for {members} ranks: {what}")]
    Shares { what: &'static str, shares: Vec<u32>, members: usize },
    /// Trees that do not reach all members.
    #[error("trees for {members} ranks: {what}")]
    Trees { what: &'static str, members: usize },
    /// The base of `BCube`.
    #[error("bcube of base {0}: it must be at least 2")]
    Base(u32),
    /// The list has no such name.
    #[error("there is no algorithm `{0}`")]
    Unknown(String),
    /// Too many or too few numbers behind the name.
    #[error("{algorithm}: it takes {takes}, not {numbers:?}")]
    Numbers { algorithm: &'static str, takes: &'static str, numbers: Vec<u32> },
}

impl Misfit {
    pub(crate) fn unsupported(kind: Kind, algorithm: &str) -> Self {
        Self::Unsupported { collective: kind.name(), algorithm: algorithm.into() }
    }
}
