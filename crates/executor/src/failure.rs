//! The job's failure: the rank at fault, its reason, and the place where this rank noticed.
//!
//! Failures are data with a message for people. No code parses the message: an abort frame carries the data to other
//! ranks.

use hocket_ids::Rank;
use hocket_protocol::why::Why;
use std::fmt;

/// A rank and its host's name, which no other host of the job has.
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

/// Place in this rank's programs where the failure was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Program number, the same on all ranks.
    pub program: u32,
    /// Launch count, from 0.
    pub launch: u32,
    /// This rank's instruction; `None` for the program as a whole.
    pub op: Option<u32>,
}

/// Why the job failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// The rank at fault.
    pub who: Who,
    /// What that rank did, or what happened to it.
    pub why: Why,
    /// With which exit code that rank's process has ended, if it left in order and said so.
    pub exit_code: Option<u8>,
    /// Where this rank noticed; `None` if another rank did, or if no program is concerned.
    pub location: Option<Location>,
    /// The message for people, which names the rank; if the rank gave up, only its own message.
    pub what: String,
}
