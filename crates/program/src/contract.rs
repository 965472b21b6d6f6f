//! What a program promises of the buffers that it ends with.

use crate::ReduceOp;
use hocket_ids::{BufferId, Rank};

/// What a program promises of its results; the verifier proves it.
#[derive(Clone, Debug, PartialEq)]
pub enum Contract {
    /// After the program, `buffer` of each rank of `group` holds `scale · ⊕` of what all of them held
    /// there before, each exactly once, and all hold the same bits.
    AllReduce {
        /// The bound buffer, with the same id and length on all ranks of the group.
        buffer: BufferId,
        #[expect(missing_docs)]
        group: Vec<Rank>,
        #[expect(missing_docs)]
        op: ReduceOp,
        #[expect(missing_docs)]
        scale: f64,
    },
    /// After the program, `buffer` of each rank of `group` holds in its i-th equal part what the i-th of them held there
    /// before.
    AllGather {
        /// As above; its length is a multiple of the group's.
        buffer: BufferId,
        #[expect(missing_docs)]
        group: Vec<Rank>,
    },
    /// After the program, `buffer` of each rank of `group` holds the same bits, which depend on what every one of them held
    /// there before: what lossy compression can promise.
    Same {
        /// As above.
        buffer: BufferId,
        #[expect(missing_docs)]
        group: Vec<Rank>,
    },
}

impl Contract {
    /// The buffer and the ranks that it speaks of.
    pub const fn subject(&self) -> (BufferId, &Vec<Rank>) {
        match self {
            Self::AllReduce { buffer, group, .. }
            | Self::AllGather { buffer, group }
            | Self::Same { buffer, group } => (*buffer, group),
        }
    }
}
