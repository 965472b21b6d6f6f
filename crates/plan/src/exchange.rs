//! How a bucket's gradients reach everybody: the messages between the members of a route.

use crate::network::{Network, PlanError};
use hocket_algorithms::{Algorithm, Counts, Kind, Owned};
use std::sync::Arc;

/// Bytes of the number of a row, which travels with it.
const ROW_NUMBER_BYTES: f64 = 8.0;

/// What the members of a route do together.
#[derive(Clone, Debug, PartialEq)]
pub enum Exchange {
    /// Everyone ends with the mean.
    AllReduce(Algorithm),
    /// Some members own a part each, which all others push to. They send back the mean, or the values that they have updated: as
    /// many bytes.
    Owned(Owned),
    /// Rows of a sparse gradient: everyone gets those of all others.
    Gathered(Gathered),
}

/// Rows that a worker's batch has touched.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered {
    /// How they are gathered.
    pub algorithm: Algorithm,
    /// Of all rows, those that one worker has touched.
    pub density: f64,
    /// Of a row.
    pub row_bytes: f64,
}

/// What an exchange sends: the flows, and what the shares of their elements are multiplied with.
pub struct Sent {
    pub counts: Arc<Counts>,
    pub scale: f64,
    /// Whether every element that arrives is added to something.
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
