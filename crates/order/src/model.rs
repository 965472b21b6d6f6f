//! Describes an all-reduce: its algorithm, its size, and its pieces.

use hocket_algorithms::{Algorithm, LIST};

/// First partners of the rounds of halving-doubling and `BCube`, when most bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Ranks next to each other: Gloo and MPI libraries.
    Near,
    /// Ranks half of the world apart: Hocket's own.
    Far,
}

/// The collective by which an order is judged.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its algorithm, whose cost depends on the order. Ranks are numbered along it; the order assigns hosts to them.
    pub algorithm: Algorithm,
    /// Size of each rank's buffer in bytes.
    pub bytes: f64,
    /// Size of the pieces that chains and trees pass on.
    pub chunk_bytes: f64,
    /// First partners in halving-doubling and `BCube`.
    pub first: First,
}

/// Why a model does not fit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The order names a host twice or not at all.
    #[error("the order is not a permutation of {0} hosts")]
    Order(usize),
    /// Groups of two-level.
    #[error("groups of {sizes:?} do not divide {hosts} hosts")]
    Sizes {
        /// The given groups.
        sizes: Vec<u32>,
        /// The number of ranks.
        hosts: usize,
    },
    /// Base of `BCube`.
    #[error("BCube of base {0}: it must be at least 2")]
    Base(u32),
    /// The algorithm costs the same in every order, or belongs to a library.
    #[error("no order is better than another for `{0}`")]
    Unordered(&'static str),
    /// Bytes or chunk.
    #[error("{what} of {bytes} bytes: {must}")]
    Bytes {
        /// The field.
        what: &'static str,
        /// The given value.
        bytes: f64,
        /// The rule.
        must: &'static str,
    },
}

impl Model {
    /// Whether it is valid for that many hosts.
    pub fn check(&self, hosts: usize) -> Result<(), ModelError> {
        if !(self.bytes.is_finite() && self.bytes >= 0.0) {
            let must = "it must be 0 or more and finite";
            return Err(ModelError::Bytes { what: "a buffer", bytes: self.bytes, must });
        }
        if !(self.chunk_bytes.is_finite() && self.chunk_bytes >= 1.0) {
            let must = "it must be at least 1 and finite";
            return Err(ModelError::Bytes { what: "a chunk", bytes: self.chunk_bytes, must });
        }
        match &self.algorithm {
            Algorithm::Bcube { base } if *base < 2 => Err(ModelError::Base(*base)),
            Algorithm::TwoLevel { sizes } => {
                let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
                if total == hosts as u64 && sizes.iter().all(|&size| size > 0) {
                    return Ok(());
                }
                Err(ModelError::Sizes { sizes: sizes.clone(), hosts })
            }
            other if LIST.iter().any(|entry| entry.ordered && entry.name == other.name()) => Ok(()),
            other => Err(ModelError::Unordered(other.name())),
        }
    }
}

/// Whether an order names each host once.
pub(crate) fn check_order(order: &[u32], hosts: usize) -> Result<(), ModelError> {
    let mut seen = vec![false; hosts];
    let once = |&host: &u32| {
        seen.get_mut(host as usize).is_some_and(|seen: &mut bool| !std::mem::replace(seen, true))
    };
    if order.len() == hosts && order.iter().all(once) { Ok(()) } else { Err(ModelError::Order(hosts)) }
}
