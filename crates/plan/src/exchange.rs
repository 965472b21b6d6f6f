//! How a bucket's gradients reach all ranks: the messages between the members of a route.

use crate::network::{Network, PlanError};
use hocket_algorithms::{Algorithm, Counts, Kind, Owned};
use std::sync::Arc;

/// Bytes of a row's number, which travels with it.
const ROW_NUMBER_BYTES: f64 = 8.0;

/// The joint operation of a route's members.
#[derive(Clone, Debug, PartialEq)]
pub enum Exchange {
    /// Everyone ends with the mean.
    AllReduce(Algorithm),
    /// Some members own a part each, which all others push to. They send back the mean, or the updated values, of equal
    /// size.
    Owned(Owned),
    /// Rows of a sparse gradient: every member gets those of all others.
    Gathered(Gathered),
}

/// Rows that a worker's batch has touched.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered {
    /// How they are gathered.
    pub algorithm: Algorithm,
    /// The share of all rows that one worker has touched.
    pub density: f64,
    /// Elements of a row.
    pub row_bytes: f64,
}

/// The traffic of an exchange: the flows, and the factor on their elements' shares.
pub struct Sent {
    pub counts: Arc<Counts>,
    pub scale: f64,
    /// Whether every arriving element is added to another.
    pub adds: bool,
}

impl Exchange {
    /// The messages among `n` members.
    pub fn sent(&self, n: usize, network: &Network) -> Result<Sent, PlanError> {
        match self {
            Self::AllReduce(algorithm) => {
                let counts = network.counts(algorithm, Kind::AllReduce, n)?;
                Ok(Sent { counts, scale: 1.0, adds: false })
            }
            Self::Owned(owned) => {
                if owned.shares.len() != n {
                    return Err(PlanError::Exchange("owners are not among the members of its order"));
                }
                Ok(Sent {
                    counts: Arc::new(Counts::of_owned(owned, owned.even_elements())?),
                    scale: 1.0,
                    adds: false,
                })
            }
            Self::Gathered(rows) => {
                rows.check()?;
                let counts = network.counts(&rows.algorithm, Kind::AllGather, n)?;
                let scale = n as f64 * rows.density * (1.0 + ROW_NUMBER_BYTES / rows.row_bytes);
                Ok(Sent { counts, scale, adds: true })
            }
        }
    }
}

impl Gathered {
    fn check(&self) -> Result<(), PlanError> {
        if !(self.density > 0.0 && self.density <= 1.0 && self.row_bytes >= 1.0) {
            return Err(PlanError::Exchange("rows are no share of a tensor's"));
        }
        Ok(())
    }
}
