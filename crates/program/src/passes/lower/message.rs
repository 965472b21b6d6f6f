//! What algorithms are written with: a call, and the weaver that pushes both ends of each message.

use crate::{DType, Kernel, Op, Program, RankBuilder, RankProgram, ReduceOp, Slice};
use hocket_ids::{OpId, Rank, SourceId, Tag};
use std::collections::HashMap;
use std::ops::Range;

/// One collective, as its members call it. Algorithms speak of members by their position in the group.
#[derive(Clone)]
pub struct Call {
    /// By member; equally long.
    pub slices: Vec<Slice>,
    /// In the order that the algorithm uses.
    pub members: Vec<Rank>,
    /// How elements combine.
    pub op: ReduceOp,
    /// Factor of the result.
    pub scale: f64,
}

impl Call {
    /// Number of members.
    pub fn n(&self) -> usize {
        self.members.len()
    }

    /// All elements, counted from each slice's start.
    pub fn whole(&self) -> Range<usize> {
        0..self.slices[0].len()
    }

    /// Part `at` when the slice is split into `parts` as evenly as elements allow.
    pub fn part(&self, at: usize, parts: usize) -> Range<usize> {
        self.parts(at..at + 1, parts)
    }

    /// Consecutive parts together.
    pub fn parts(&self, at: Range<usize>, parts: usize) -> Range<usize> {
        let len = self.slices[0].len();
        len * at.start / parts..len * at.end / parts
    }

    /// The same call among some members only.
    pub fn among(&self, members: &[usize]) -> Self {
        Self {
            slices: members.iter().map(|&member| self.slices[member]).collect(),
            members: members.iter().map(|&member| self.members[member]).collect(),
            ..*self
        }
    }

    /// The same call of a part of each slice.
    pub fn within(&self, part: &Range<usize>) -> Self {
        Self {
            slices: (0..self.n()).map(|member| self.slice(member, part)).collect(),
            members: self.members.clone(),
            ..*self
        }
    }

    /// Elements of a member's slice.
    pub fn slice(&self, member: usize, part: &Range<usize>) -> Slice {
        let own = self.slices[member];
        Slice::new(own.buffer, own.start + part.start, own.start + part.end)
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

    /// Moves a part from one member to another, which overwrites its own or reduces into it.
    pub fn message(&mut self, call: &Call, from: usize, to: usize, part: &Range<usize>, reduces: bool) {
        let (src, dst) = (call.slice(from, part), call.slice(to, part));
        self.transfer(call.members[from], src, call.members[to], dst, reduces.then_some(call.op));
    }

    /// Moves a slice of one rank to one of another.
    pub fn transfer(&mut self, from: Rank, src: Slice, to: Rank, dst: Slice, reduce: Option<ReduceOp>) {
        if src.is_empty() {
            return;
        }
        let next = self.tags.entry((from, to)).or_default();
        let tag = Tag(*next);
        *next += 1;
        let wire: DType = self.builders[from.index()].dtype(src.buffer);
        self.push(from, Op::Send { src, wire, peer: to, tag, count: None });
        self.push(to, Op::Recv { dst, wire, reduce, peer: from, tag, count: None });
    }

    /// Multiplies a result that is complete, once, on the member that completed it.
    pub fn scale(&mut self, call: &Call, member: usize, part: &Range<usize>) {
        // The neutral factor is exactly representable, so nothing is lost by leaving it out.
        #[expect(clippy::float_cmp)]
        let neutral = call.scale == 1.0;
        if !neutral && !part.is_empty() {
            let dst = call.slice(member, part);
            self.push(call.members[member], Op::Apply { kernel: Kernel::Scale(call.scale), dst });
        }
    }

    /// A local op of the collective.
    pub fn push(&mut self, rank: Rank, op: Op) {
        let (after, source) = &self.context[rank.index()];
        self.builders[rank.index()].push_after(op, after, *source);
    }

    /// The finished ranks.
    pub fn finish(self) -> Vec<RankProgram> {
        self.builders.into_iter().map(RankBuilder::finish).collect()
    }
}
