//! A program's promise for the final contents of its buffers.

use crate::ReduceOp;
use hocket_ids::{BufferId, Rank};

/// A program's promise for its results; the verifier proves it.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "variants say what their fields are")]
pub enum Contract {
    /// After the program, `buffer` of each rank of `group` holds `scale · ⊕` of what all of them held
    /// there before, each exactly once, and all hold the same bits.
    AllReduce {
        /// The bound buffer, with the same id and length on all ranks of the group.
        buffer: BufferId,
        group: Vec<Rank>,
        op: ReduceOp,
        scale: f64,
    },
    /// After the program, `buffer` of each rank of `group` holds in its i-th equal part what the i-th of them held there
    /// before.
    AllGather {
        /// As above; its length is a multiple of the group's.
        buffer: BufferId,
        group: Vec<Rank>,
    },
    /// After the program, each owner holds in its share of `buffer` `scale · ⊕` of what all of `group` held there
    /// before, each exactly once. With [`Contract::FromOwners`] of the same shares, the owners' result reaches all
    /// ranks.
    ToOwners {
        /// As above; owners have it, too.
        buffer: BufferId,
        group: Vec<Rank>,
        op: ReduceOp,
        scale: f64,
        /// In order, none empty; together they are the buffer.
        shares: Vec<Share>,
    },
    /// After the program, `buffer` of each rank of `group` holds in each share what its owner held there before: the same bits.
    FromOwners {
        /// As above; owners have it, too.
        buffer: BufferId,
        group: Vec<Rank>,
        /// As above.
        shares: Vec<Share>,
    },
    /// After the program, `buffer` of each rank of `group` holds the same bits, which depend on what every one of them
    /// held there before, as with lossy compression.
    Same {
        /// As above.
        buffer: BufferId,
        group: Vec<Rank>,
    },
}

/// Elements that a rank owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The owner.
    pub owner: Rank,
    /// The first element.
    pub start: usize,
    /// One past the last element.
    pub stop: usize,
}

impl Contract {
    /// The shares, if the contract has any.
    pub fn shares(&self) -> &[Share] {
        match self {
            Self::ToOwners { shares, .. } | Self::FromOwners { shares, .. } => shares,
            Self::AllReduce { .. } | Self::AllGather { .. } | Self::Same { .. } => &[],
        }
    }

    /// The buffer and the ranks that it covers.
    pub const fn subject(&self) -> (BufferId, &Vec<Rank>) {
        match self {
            Self::AllReduce { buffer, group, .. }
            | Self::AllGather { buffer, group }
            | Self::ToOwners { buffer, group, .. }
            | Self::FromOwners { buffer, group, .. }
            | Self::Same { buffer, group } => (*buffer, group),
        }
    }
}
