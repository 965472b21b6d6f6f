//! How a bucket's gradients reach all ranks: the messages between the members of a route.

use crate::constants::{COPY_S_PER_BYTE, REDUCE_S_PER_BYTE};
use crate::counted;
use crate::error::PlanError;
use hocket_algorithms::{Algorithm, Counts, Flow, Kind, Owned};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Bytes of a row's number, which travels with it.
const ROW_NUMBER_BYTES: f64 = 8.0;

/// The joint operation of a route's members.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Exchange {
    /// Everyone ends with the mean.
    AllReduce(Algorithm),
    /// Some members own a part each, which all others push to. They send back the mean, or the updated values, of equal
    /// size.
    Owned(Owned),
    /// Rows of a gradient: every member gets those of all others.
    Gathered(Gathered),
    /// The messages of a program, such as a policy's.
    Counted(Counted),
}

/// What a program does for a bucket, counted for one number of elements; with others it is in proportion.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Its messages, in bytes on the wire: the length is that of the bucket.
    #[serde(flatten)]
    pub counts: Arc<Counts>,
    /// Bytes that a member's engine reads or writes beside them, for each of the bucket.
    pub beside: f64,
}

/// Rows of all members, by an algorithm of all-gathers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Gathered {
    /// How they are gathered.
    #[serde(flatten)]
    pub algorithm: Algorithm,
    /// What is gathered.
    #[serde(flatten)]
    pub rows: Rows,
}

/// Rows of a gradient that a worker's batch has touched.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Rows {
    /// The share of all rows that one worker has touched.
    pub density: f64,
    /// Bytes of a row.
    pub row_bytes: f64,
    /// Whether the gradient is dense: every member zeroes it, and adds all rows to it.
    pub table: bool,
}

/// The traffic of an exchange: the flows, and the factor on their elements' shares.
pub struct Sent {
    pub counts: Arc<Counts>,
    pub scale: f64,
}

impl Exchange {
    /// The messages among `n` members.
    pub fn sent(&self, n: usize) -> Result<Sent, PlanError> {
        match self {
            Self::AllReduce(algorithm) => {
                let counts = counted::counts(algorithm, Kind::AllReduce, n)?;
                Ok(Sent { counts, scale: 1.0 })
            }
            Self::Owned(owned) => {
                if owned.shares.len() != n {
                    return Err(PlanError::Exchange("owners are not among the members of its order"));
                }
                let counts = Arc::new(Counts::of_owned(owned, owned.even_elements())?);
                Ok(Sent { counts, scale: 1.0 })
            }
            Self::Gathered(Gathered { algorithm, rows }) => {
                rows.check()?;
                let counts = counted::counts(algorithm, Kind::AllGather, n)?;
                let scale = n as f64 * rows.density * (1.0 + ROW_NUMBER_BYTES / rows.row_bytes);
                Ok(Sent { counts, scale })
            }
            Self::Counted(counted) => {
                let outside = |flow: &Flow| flow.from >= n || flow.to >= n || flow.messages == 0;
                if counted.counts.elements == 0 || counted.counts.flows.iter().any(outside) {
                    return Err(PlanError::Exchange("messages are not among the members of its order"));
                }
                Ok(Sent { counts: Arc::clone(&counted.counts), scale: 1.0 })
            }
        }
    }

    /// Whether a member looks through its gradient for what is not finite.
    pub fn inspects(&self, member: usize) -> bool {
        match self {
            Self::AllReduce(_) | Self::Counted(_) => true,
            Self::Owned(owned) => member < owned.workers,
            Self::Gathered(_) => false,
        }
    }

    /// Engine seconds of each of `n` members for a byte of the bucket, before the first message and after the last.
    pub fn beside_s_per_byte(&self, n: usize) -> f64 {
        match self {
            Self::Gathered(Gathered { rows, .. }) if rows.table => {
                COPY_S_PER_BYTE + n as f64 * rows.density * REDUCE_S_PER_BYTE
            }
            Self::Counted(counted) => counted.beside * COPY_S_PER_BYTE,
            _ => 0.0,
        }
    }
}

impl Rows {
    fn check(&self) -> Result<(), PlanError> {
        if !(self.density > 0.0 && self.density <= 1.0 && self.row_bytes >= 1.0) {
            return Err(PlanError::Exchange("rows are no share of a tensor's"));
        }
        Ok(())
    }
}
