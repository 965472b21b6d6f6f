//! The op table: every op, its operands and its effects, and the program that holds them.
//!
//! Knows nothing of how ops are executed, lowered or printed. Before adding an op, show that a
//! composition of these cannot do it.

use hocket_ids::{BufferId, OpId, Rank, SourceId, Tag};

/// Element type of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the definition")]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I8,
    U8,
}

impl DType {
    /// Every element type, in the order of the enum.
    pub const ALL: [Self; 8] =
        [Self::F64, Self::F32, Self::F16, Self::BF16, Self::I64, Self::I32, Self::I8, Self::U8];

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }

    /// The name in the text form and in Python.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I8 => "i8",
            Self::U8 => "u8",
        }
    }

    /// The type of that name, if there is one.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Whether elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::BF16)
    }
}

/// Where a buffer's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    /// Given by the caller when the program is loaded; holds the inputs and, at the end, the results.
    Bound,
    /// Allocated by the executor; undefined until written.
    Scratch,
}

/// A linear array of elements that ops read and write slices of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// For people; unique within a rank.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Elements.
    pub len: usize,
    /// Where its memory comes from.
    pub kind: BufferKind,
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

    /// Elements.
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

/// How two elements become one. Commutative; floating-point sums are taken in program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the definition")]
pub enum ReduceOp {
    Sum,
    Min,
    Max,
}

/// An elementwise function of [`Op::Apply`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// Times a constant.
    Scale(f64),
    /// Rounded to the nearest value that the given type holds, kept in the buffer's own type. What a
    /// lossy codec does to the copy that others receive is done to one's own copy with this.
    Round(DType),
}

/// What [`Op::Record`] notes about a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// Whether any element is NaN or infinite, and the first such position.
    NonFinite,
}

/// How a collective is lowered to sends and receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Reduce-scatter and all-gather around the group in its order (Patarasuk and Yuan 2009).
    Ring,
    /// Each rank reduces its share out of all the others' memory, and all copy it from there.
    Direct,
    /// Chain-reduce to the leader of each group of ranks, ring among the leaders, broadcast within;
    /// groups are positions of consecutive members in the collective's group, given by their sizes.
    TwoLevel {
        /// Members of each group, in order; their sum is the size of the collective's group.
        sizes: Vec<u32>,
    },
}

/// One operation of one rank. `wire` is the element type that crosses to the peer: where it differs
/// from the slice's own, the executor casts while it sends or receives.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `dst = src`, same type.
    Copy {
        #[expect(missing_docs)]
        src: Slice,
        #[expect(missing_docs)]
        dst: Slice,
    },
    /// `dst = src` converted to the type of `dst`, rounded to nearest even.
    Cast {
        #[expect(missing_docs)]
        src: Slice,
        #[expect(missing_docs)]
        dst: Slice,
    },
    /// `dst = dst ⊕ src`; a `src` of another floating type is converted to that of `dst` first.
    Reduce {
        #[expect(missing_docs)]
        op: ReduceOp,
        #[expect(missing_docs)]
        src: Slice,
        #[expect(missing_docs)]
        dst: Slice,
    },
    /// `dst = kernel(dst)`, element by element.
    Apply {
        #[expect(missing_docs)]
        kernel: Kernel,
        #[expect(missing_docs)]
        dst: Slice,
    },
    /// Sends `src` to `peer`. Complete when `src` may be written again.
    Send {
        #[expect(missing_docs)]
        src: Slice,
        /// Element type on the wire.
        wire: DType,
        #[expect(missing_docs)]
        peer: Rank,
        #[expect(missing_docs)]
        tag: Tag,
    },
    /// Receives from `peer` into `dst`: overwrites, or reduces into what is there.
    Recv {
        #[expect(missing_docs)]
        dst: Slice,
        /// Element type on the wire.
        wire: DType,
        /// `None` overwrites.
        reduce: Option<ReduceOp>,
        #[expect(missing_docs)]
        peer: Rank,
        #[expect(missing_docs)]
        tag: Tag,
    },
    /// Notes something about `src` in the run's record; changes nothing.
    Record {
        #[expect(missing_docs)]
        what: Record,
        #[expect(missing_docs)]
        src: Slice,
    },
    /// `slice = scale · ⊕ over group of slice`, on every rank of the group; lowered before it is run.
    AllReduce {
        #[expect(missing_docs)]
        slice: Slice,
        /// Members in the order that algorithms use.
        group: Vec<Rank>,
        #[expect(missing_docs)]
        op: ReduceOp,
        /// Factor applied to the result; `1.0` for a sum, `1/n` for a mean.
        scale: f64,
        /// How to lower it; `None` until planned.
        algorithm: Option<Algorithm>,
    },
}

impl Op {
    /// Slices that the op reads.
    pub fn reads(&self) -> Vec<Slice> {
        match self {
            Self::Copy { src, .. }
            | Self::Cast { src, .. }
            | Self::Send { src, .. }
            | Self::Record { src, .. } => {
                vec![*src]
            }
            Self::Reduce { src, dst, .. } => vec![*src, *dst],
            Self::Apply { dst, .. } => vec![*dst],
            Self::Recv { dst, reduce, .. } => reduce.map(|_| *dst).into_iter().collect(),
            Self::AllReduce { slice, .. } => vec![*slice],
        }
    }

    /// The slice that the op writes, if any.
    pub fn writes(&self) -> Option<Slice> {
        match self {
            Self::Copy { dst, .. }
            | Self::Cast { dst, .. }
            | Self::Reduce { dst, .. }
            | Self::Apply { dst, .. }
            | Self::Recv { dst, .. } => Some(*dst),
            Self::AllReduce { slice, .. } => Some(*slice),
            Self::Send { .. } | Self::Record { .. } => None,
        }
    }
}

/// An op in its place: what it waits for and which line of the user's Python made it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Ops of the same rank that complete before this one starts; ascending, all smaller than its own id.
    pub after: Vec<OpId>,
    /// Where it comes from.
    pub source: Option<SourceId>,
}

/// What one rank does.
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
}

/// What all ranks do to move and combine some buffers: a dataflow graph per rank, joined by messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// For people: what it is for, `all_reduce.ring`.
    pub name: String,
    /// Indexed by [`Rank`]; its length is the world size.
    pub ranks: Vec<RankProgram>,
    /// What holds at the end.
    pub ensures: Vec<Contract>,
    /// Indexed by [`SourceId`].
    pub sources: Vec<Source>,
}

impl Program {
    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.ranks.len()
    }
}
