//! Passes: pure functions from program to program, one file each, which `pipeline` lists in order.

mod chunk;
mod encode;
mod fuse;
mod lower;
mod pass;
mod pipeline;
mod relabel;

pub(crate) use lower::{Expansion, Weaver};
pub use pass::{Codec, Options, Pass, Site};
pub use pipeline::{PIPELINE, compile, stages};

use crate::verify::Diagnostic;

/// Why a pass refuses a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    /// Ranks of one group call collectives in different orders, or not at all.
    #[error("rank {rank}: the collective at op {op} is not called by all ranks of its group")]
    Unmatched {
        /// A rank that waits.
        rank: u32,
        /// Its op.
        op: usize,
    },
    /// The collective has no algorithm.
    #[error("rank {rank}: the collective at op {op} has no algorithm: plan it first")]
    Unplanned {
        /// The rank.
        rank: u32,
        /// Its op.
        op: usize,
    },
    /// The collective's algorithm does not fit it.
    #[error(transparent)]
    Misfit(#[from] hocket_algorithms::Misfit),
    /// The order is no permutation of the ranks.
    #[error("rank order {order:?} is not a permutation of {world} ranks")]
    Order {
        /// The given order.
        order: Vec<u32>,
        /// Number of ranks.
        world: usize,
    },
    /// The codec's type is no smaller float.
    #[error("codec {0}: only f16 and bf16 are codecs of f32")]
    Codec(&'static str),
    /// Violations of a pass's spec: a fault of Hocket's own.
    #[error("pass `{pass}` leaves what must not be there:\n{}", lines(findings))]
    Spec {
        /// Its title.
        pass: &'static str,
        /// The ops.
        findings: Vec<Diagnostic>,
    },
}

fn lines(findings: &[Diagnostic]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
