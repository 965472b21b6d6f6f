//! The call of a rank, published to others: detects that two ranks call different collectives before an element is
//! used.

use crate::area::CALL_WORDS;
use hocket_kernels::{DType, ReduceOp};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Barrier,
    Broadcast,
    AllGather,
    Gather,
    Scatter,
    AllToAll,
    AllReduce,
    Reduce,
    ReduceScatter,
}

/// In the order of the enum: a number on the wire is the position here.
const WHATS: [What; 9] = [
    What::Barrier,
    What::Broadcast,
    What::AllGather,
    What::Gather,
    What::Scatter,
    What::AllToAll,
    What::AllReduce,
    What::Reduce,
    What::ReduceScatter,
];

/// Element type and reduction; every member must use the same ones.
pub type Reduction = (ReduceOp, DType);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub what: What,
    pub reduction: Option<Reduction>,
    /// The root's position in the group.
    pub root: Option<usize>,
    /// Bytes that this member contributes: of its largest piece if there are several.
    pub bytes: usize,
    /// Their offset in its arena, if they lie there.
    pub offset: Option<u64>,
    /// Their address in its process, or [`NOWHERE`] if others may not access them there.
    pub address: u64,
}

/// No memory has this address.
pub const NOWHERE: u64 = 0;

/// Stands for an absent value.
const NONE: u64 = u64::MAX;

impl Call {
    pub fn encode(&self) -> [u64; CALL_WORDS] {
        let reduction = self.reduction.map_or(NONE >> 32, |(op, dtype)| (op as u64) << 8 | dtype as u64);
        [
            (self.what as u64) << 32 | reduction,
            self.root.map_or(NONE, |root| root as u64),
            self.bytes as u64,
            self.offset.unwrap_or(NONE),
            self.address,
        ]
    }

    /// Whether another member's words describe the same call as ours. Lengths may differ where the collective allows
    /// it.
    pub fn agrees_with(&self, words: &[u64; CALL_WORDS]) -> bool {
        let own = self.encode();
        let same_bytes = match self.what {
            What::Barrier | What::AllReduce | What::Reduce | What::ReduceScatter => true,
            What::Broadcast | What::AllGather | What::Gather | What::Scatter | What::AllToAll => false,
        };
        own[..2] == words[..2] && (!same_bytes || own[2] == words[2])
    }
}

/// Descriptions for error messages: of our own call, and of another's words.
pub fn describe(words: &[u64; CALL_WORDS]) -> String {
    let what = WHATS.get((words[0] >> 32) as usize);
    let what = what.map_or_else(|| "something unknown".to_owned(), ToString::to_string);
    let root = if words[1] == NONE { String::new() } else { format!(" with root {}", words[1]) };
    format!("{what}{} of {} bytes{root}", describe_reduction(words[0] as u32), words[2])
}

fn describe_reduction(word: u32) -> String {
    if word == NONE as u32 {
        return String::new();
    }
    let op = ReduceOp::ALL
        .into_iter()
        .find(|op| *op as u32 == word >> 8)
        .map_or("another reduction", ReduceOp::name);
    let dtype = DType::ALL.into_iter().find(|each| *each as u32 == word & 0xff);
    format!(" ({op}, {})", dtype.map_or("", DType::name))
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::AllGather => "all_gather",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all_to_all",
            Self::AllReduce => "all_reduce",
            Self::Reduce => "reduce",
            Self::ReduceScatter => "reduce_scatter",
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&describe(&self.encode()))
    }
}
