//! How a member ends.

use super::super::Ending;
use std::time::Duration;

/// Why a process takes no further part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exit {
    /// It left in order.
    #[error("left the job")]
    Left,
    /// The job goes on without it.
    #[error("evicted in epoch {epoch}: {why}")]
    Evicted {
        /// Since when.
        epoch: u64,
        /// For people.
        why: String,
    },
    /// It cannot go on alone, and the coordinator is not there to decide.
    #[error("the coordinator was not heard for {waited:?}, and this member cannot go on without a decision")]
    CoordinatorLost {
        /// How long.
        waited: Duration,
    },
    /// The coordinator ended the job.
    #[error("the job ends: {0}")]
    Ended(Ending),
    /// Something that only a fault of ours, or a forged message, can do.
    #[error("the membership contradicts itself: {what}")]
    Contradiction {
        /// For people.
        what: String,
    },
}
