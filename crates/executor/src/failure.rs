//! The job's failure: which rank, what it did, where that showed.
//!
//! Failures are data with a sentence for people. Nobody reads the sentence: ranks that are told take the data from the frame.

use hocket_ids::Rank;
use hocket_protocol::why::Why;
use std::fmt;

/// A rank, and the name of its host, which no other host of the job has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The rank.
    pub rank: Rank,
    /// Its host.
    pub host: String,
}

impl fmt::Display for Who {
    /// `rank 2 on b0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} on {}", self.rank, self.host)
    }
}

/// Where in this rank's programs something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Program number, the same on all ranks.
    pub program: u32,
    /// Launch count, from 0.
    pub launch: u32,
    /// This rank's instruction; `None`: the program as a whole.
    pub op: Option<u32>,
}

/// Why the job failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// Whose fault it is.
    pub who: Who,
    /// What that rank did, or what became of it.
    pub why: Why,
    /// Where that shows here; `None` where another rank found out, or no program is concerned.
    pub location: Option<Location>,
    /// The sentence for people, which names the rank; of a rank that gives up, its own words alone.
    pub what: String,
}
