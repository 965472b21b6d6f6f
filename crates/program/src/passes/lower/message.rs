//! What algorithms are written with: a call, and the weaver that pushes both ends of each message.

use crate::{DType, Kernel, Op, Program, RankBuilder, RankProgram, ReduceOp, Slice};
use hocket_ids::{OpId, Rank, SourceId, Tag};
use std::collections::HashMap;

/// One collective, as its members call it.
pub struct Call<'a> {
    /// The same on every member.
    pub slice: Slice,
    /// In the order that the algorithm uses.
    pub members: &'a [Rank],
    /// How elements combine.
    pub op: ReduceOp,
    /// Factor of the result.
    pub scale: f64,
}

impl Call<'_> {
    /// Part `at` of the slice when it is split into `parts` as evenly as elements allow.
    pub fn part(&self, at: usize, parts: usize) -> Slice {
        let len = self.slice.len();
        let edge = |at: usize| self.slice.start + len * at / parts;
        Slice::new(self.slice.buffer, edge(at), edge(at + 1))
    }
}

/// Builds all ranks at once.
pub struct Weaver {
    builders: Vec<RankBuilder>,
    /// By rank: what ops of the current collective come after, and their source.
    context: Vec<(Vec<OpId>, Option<SourceId>)>,
    /// By ordered pair: the next free tag.
    tags: HashMap<(Rank, Rank), u32>,
}

impl Weaver {
    /// Starts from empty builders; tags that `program` uses already stay its own.
    pub fn new(builders: Vec<RankBuilder>, program: &Program) -> Self {
        let mut tags: HashMap<(Rank, Rank), u32> = HashMap::new();
        for (at, rank) in program.ranks.iter().enumerate() {
            for node in &rank.nodes {
                if let Op::Send { peer, tag, .. } = &node.op {
                    let next = tags.entry((Rank::from_index(at), *peer)).or_default();
                    *next = (*next).max(tag.0 + 1);
                }
            }
        }
        let context = builders.iter().map(|_| (Vec::new(), None)).collect();
        Self { builders, context, tags }
    }

    /// The builder of one rank.
    pub fn builder(&mut self, rank: usize) -> &mut RankBuilder {
        &mut self.builders[rank]
    }

    /// What the next ops of `rank` come after, and where they come from.
    pub fn set_context(&mut self, rank: usize, after: Vec<OpId>, source: Option<SourceId>) {
        self.context[rank] = (after, source);
    }

    /// Moves `slice` from one member to another, which overwrites its own or reduces into it.
    pub fn message(&mut self, from: Rank, to: Rank, slice: Slice, reduce: Option<ReduceOp>) {
        if slice.is_empty() {
            return;
        }
        let next = self.tags.entry((from, to)).or_default();
        let tag = Tag(*next);
        *next += 1;
        let wire: DType = self.builders[from.index()].dtype(slice.buffer);
        self.push(from, Op::Send { src: slice, wire, peer: to, tag });
        self.push(to, Op::Recv { dst: slice, wire, reduce, peer: from, tag });
    }

    /// Multiplies a result that is complete, once, on the rank that completed it.
    pub fn scale(&mut self, rank: Rank, slice: Slice, factor: f64) {
        // The neutral factor is exactly representable, so nothing is lost by leaving it out.
        #[expect(clippy::float_cmp)]
        let neutral = factor == 1.0;
        if !neutral && !slice.is_empty() {
            self.push(rank, Op::Apply { kernel: Kernel::Scale(factor), dst: slice });
        }
    }

    /// The finished ranks.
    pub fn finish(self) -> Vec<RankProgram> {
        self.builders.into_iter().map(RankBuilder::finish).collect()
    }

    fn push(&mut self, rank: Rank, op: Op) {
        let (after, source) = &self.context[rank.index()];
        self.builders[rank.index()].push_after(op, after, *source);
    }
}
