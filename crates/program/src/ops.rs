//! The op table: every op, its operands and its effects, and the program that holds them.
//!
//! Knows nothing of how ops are executed, lowered or printed. Before adding an op, show that a
//! composition of these cannot do it.

use crate::{Contract, Space};
use hocket_algorithms::{Algorithm, Kind};
use hocket_ids::{BufferId, DType, KernelId, OpId, Rank, ReduceOp, SourceId, Tag};
use smallvec::{SmallVec, smallvec};

/// Where a buffer's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    /// Given by the caller when the program is loaded; holds the inputs and, at the end, the results.
    Bound,
    /// Allocated by the executor; undefined until written.
    Scratch,
    /// Allocated by the executor, zero when the program is loaded; keeps its contents from launch to launch.
    State,
    /// The same, and proven to hold the same bits on all ranks that have a buffer of this kind and name.
    SharedState,
}

/// A linear array of elements that ops read and write slices of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// A name for people; unique within a rank.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// The origin of its memory.
    pub kind: BufferKind,
    /// The memory space.
    pub space: Space,
}

/// Elements `start..stop` of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The buffer.
    pub buffer: BufferId,
    /// First element.
    pub start: usize,
    /// One past the last element.
    pub stop: usize,
}

impl Slice {
    /// `start..stop` of `buffer`.
    pub const fn new(buffer: BufferId, start: usize, stop: usize) -> Self {
        Self { buffer, start, stop }
    }

    /// Number of elements.
    pub const fn len(&self) -> usize {
        self.stop - self.start
    }

    /// Whether it holds no element.
    pub const fn is_empty(&self) -> bool {
        self.stop == self.start
    }

    /// Whether the two share an element.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.start < other.stop && other.start < self.stop
    }

    /// Whether every element of `other` is in this slice.
    pub fn covers(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.start <= other.start && other.stop <= self.stop
    }
}

/// Slices of one op: few, except for calls of kernels.
pub type Slices = SmallVec<[Slice; 2]>;

/// An elementwise function of [`Op::Apply`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// Times a constant.
    Scale(f64),
    /// Rounded to the nearest value of the given type, kept in the buffer's own type. A rank applies to its own copy
    /// what a lossy codec does to the copies that others receive.
    Round(DType),
}

/// What [`Op::Record`] notes about a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// Whether any element is NaN or infinite, and the first such position.
    NonFinite,
}

/// A function of whole slices that [`Op::Call`] runs: a built-in by name, or one of the user's.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSpec {
    /// Its name for the executor.
    pub name: String,
    /// Element `i` of each output depends only on element `i` of each input; all have the same length.
    pub elementwise: bool,
    /// Outputs are read before they are written.
    pub updates: bool,
    /// An elementwise kernel of several inputs whose result is this reduction of them, up to rounding.
    pub joins: Option<ReduceOp>,
    /// Constants of every call.
    pub parameters: Vec<f64>,
}

impl KernelSpec {
    /// Whether it adds its inputs to those elements of its outputs that they name: it takes as long as the inputs have bytes,
    /// whatever the length of the outputs.
    pub fn scatters(&self) -> bool {
        self.updates && self.name.starts_with("scatter_add")
    }
}

/// A collective on the slices of its group. Part `i` of `n` of a slice of `len` elements is `len·i/n .. len·(i+1)/n`
/// and belongs to member `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "variants say what their fields are")]
pub enum Collective {
    /// `slice = scale · ⊕ over the group of slice`, on every member.
    AllReduce,
    /// As all-reduce, of each member's own part; the other parts are undefined after.
    ReduceScatter,
    /// Each member's own part to all.
    AllGather,
    /// The root's slice to all.
    Broadcast { root: Rank },
    /// As all-reduce, on the root; the others' slices are undefined after.
    Reduce { root: Rank },
    /// Each member's own part to the root.
    Gather { root: Rank },
    /// The root's parts to their members.
    Scatter { root: Rank },
    /// Part `j` of member `i` becomes part `i` of `dst` of member `j`.
    AllToAll {
        /// On this rank.
        dst: Slice,
    },
}

impl Collective {
    /// Its kind, without its operands.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::AllReduce => Kind::AllReduce,
            Self::ReduceScatter => Kind::ReduceScatter,
            Self::AllGather => Kind::AllGather,
            Self::Broadcast { .. } => Kind::Broadcast,
            Self::Reduce { .. } => Kind::Reduce,
            Self::Gather { .. } => Kind::Gather,
            Self::Scatter { .. } => Kind::Scatter,
            Self::AllToAll { .. } => Kind::AllToAll,
        }
    }

    /// Whether values are combined.
    pub const fn reduces(&self) -> bool {
        self.kind().reduces()
    }

    /// The name in the text form.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// The root, which has or gets the whole.
    pub const fn root(&self) -> Option<Rank> {
        match self {
            Self::Broadcast { root }
            | Self::Reduce { root }
            | Self::Gather { root }
            | Self::Scatter { root } => Some(*root),
            Self::AllReduce | Self::ReduceScatter | Self::AllGather | Self::AllToAll { .. } => None,
        }
    }
}

/// One operation of one rank. `wire` is the element type that crosses to the peer: where it differs
/// from the slice's own, the executor casts while it sends or receives.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "variants say what their fields are")]
pub enum Op {
    /// `dst = src`, same type.
    Copy { src: Slice, dst: Slice },
    /// `dst = src` converted to the type of `dst`, rounded to nearest even.
    Cast { src: Slice, dst: Slice },
    /// `dst = dst ⊕ src`; a `src` of another floating type is converted to that of `dst` first.
    Reduce { op: ReduceOp, src: Slice, dst: Slice },
    /// `dst = kernel(dst)`, element by element.
    Apply { kernel: Kernel, dst: Slice },
    /// Sends `src` to `peer`. Complete when `src` may be overwritten.
    Send {
        src: Slice,
        /// Element type on the wire.
        wire: DType,
        peer: Rank,
        tag: Tag,
        /// One i64 with the number of elements that move, read when the op starts; `None`: all. Both ends hold the same.
        count: Option<Slice>,
    },
    /// Receives from `peer` into `dst`: overwrites, or reduces into what is there.
    Recv {
        dst: Slice,
        /// Element type on the wire.
        wire: DType,
        /// `None` overwrites.
        reduce: Option<ReduceOp>,
        peer: Rank,
        tag: Tag,
        /// As for the send; elements beyond it keep their values.
        count: Option<Slice>,
    },
    /// Records a property of `src`; changes nothing.
    Record { what: Record, src: Slice },
    /// `outputs = kernel(inputs)`.
    Call {
        kernel: KernelId,
        inputs: Vec<Slice>,
        /// Also read when the kernel updates them.
        outputs: Vec<Slice>,
    },
    /// A collective; lowered before it runs, unless a library executes it.
    Collective {
        what: Collective,
        /// Of the same length on all members.
        slice: Slice,
        /// Members in the order of their parts, which is the order that algorithms use.
        group: Vec<Rank>,
        op: ReduceOp,
        /// Factor applied to a reduction; `1.0` for a sum, `1/n` for a mean.
        scale: f64,
        /// How to lower it; `None` until planned.
        algorithm: Option<Algorithm>,
    },
}

impl Op {
    /// Slices that the op reads. A call's outputs count only as writes, even if the kernel updates them.
    pub fn reads(&self) -> Slices {
        match self {
            Self::Copy { src, .. }
            | Self::Cast { src, .. }
            | Self::Record { src, .. }
            | Self::Send { src, count: None, .. } => smallvec![*src],
            Self::Send { src, count: Some(count), .. } => smallvec![*src, *count],
            Self::Reduce { src, dst, .. } => smallvec![*src, *dst],
            Self::Apply { dst, .. } | Self::Recv { dst, reduce: Some(_), count: None, .. } => smallvec![*dst],
            Self::Recv { reduce: None, count: None, .. } => Slices::new(),
            Self::Recv { dst, reduce, count, .. } => reduce.map(|_| *dst).into_iter().chain(*count).collect(),
            Self::Call { inputs, .. } => inputs.iter().copied().collect(),
            Self::Collective { slice, .. } => smallvec![*slice],
        }
    }

    /// The slices that the op writes.
    pub fn writes(&self) -> Slices {
        match self {
            Self::Copy { dst, .. }
            | Self::Cast { dst, .. }
            | Self::Reduce { dst, .. }
            | Self::Apply { dst, .. }
            | Self::Recv { dst, .. }
            | Self::Collective { what: Collective::AllToAll { dst }, .. } => smallvec![*dst],
            Self::Call { outputs, .. } => outputs.iter().copied().collect(),
            Self::Collective { slice, .. } => smallvec![*slice],
            Self::Send { .. } | Self::Record { .. } => Slices::new(),
        }
    }

    /// Whether memory orders the two: they overlap, and one of them writes.
    pub fn conflicts(&self, other: &Self) -> bool {
        let (reads, writes) = (self.reads(), self.writes());
        let (reads2, writes2) = (other.reads(), other.writes());
        let meet = |some: &Slices, others: &Slices| some.iter().any(|a| others.iter().any(|b| a.overlaps(b)));
        meet(&writes, &reads2) || meet(&writes, &writes2) || meet(&writes2, &reads)
    }
}

/// Ops that one comes after: few, and there are many ops.
pub type After = SmallVec<[OpId; 4]>;

/// An op with its dependencies and the line of the user's Python that made it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Ops of the same rank that complete before this one starts; ascending, all smaller than its own id.
    pub after: After,
    /// The user's line.
    pub source: Option<SourceId>,
}

/// One rank's part of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankProgram {
    /// Indexed by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// Indexed by [`OpId`], in an order that respects `after`.
    pub nodes: Vec<Node>,
}

/// A line of the user's source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// File as Python names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The ops of all ranks that move and combine some buffers: a dataflow graph per rank, joined by messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Its purpose, for people: `all_reduce.ring`.
    pub name: String,
    /// Indexed by [`Rank`]; its length is the world size.
    pub ranks: Vec<RankProgram>,
    /// The contract at the end.
    pub ensures: Vec<Contract>,
    /// Indexed by [`SourceId`].
    pub sources: Vec<Source>,
    /// Indexed by [`KernelId`].
    pub kernels: Vec<KernelSpec>,
}

impl Program {
    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.ranks.len()
    }

    /// The same program with other ops, as most passes make.
    #[must_use]
    pub fn with_ranks(&self, ranks: Vec<RankProgram>) -> Self {
        Self {
            name: self.name.clone(),
            ranks,
            ensures: self.ensures.clone(),
            sources: self.sources.clone(),
            kernels: self.kernels.clone(),
        }
    }
}
