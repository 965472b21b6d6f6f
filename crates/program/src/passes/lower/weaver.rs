//! The implementer of `Weave` that builds ops: both ends of each message, and the scaling of complete results.

use crate::{BufferKind, Kernel, Op, Program, RankBuilder, RankProgram, ReduceOp, Slice};
use hocket_algorithms::Weave;
use hocket_ids::{OpId, Rank, SourceId, Tag};
use std::collections::BTreeMap;
use std::ops::Range;

/// Builds all ranks at once.
pub struct Weaver {
    builders: Vec<RankBuilder>,
    /// By rank: predecessors of the current collective's ops, and their source line.
    context: Vec<(Vec<OpId>, Option<SourceId>)>,
    /// By sender, by receiver: the next free tag. Most ranks send to few.
    tags: Vec<BTreeMap<Rank, u32>>,
}

impl Weaver {
    /// Starts from empty builders; tags already used by `program` stay reserved.
    pub fn new(builders: Vec<RankBuilder>, program: &Program) -> Self {
        let mut tags = vec![BTreeMap::new(); builders.len()];
        for (tags, rank) in tags.iter_mut().zip(&program.ranks) {
            for node in &rank.nodes {
                if let Op::Send { peer, tag, .. } = &node.op {
                    let next: &mut u32 = tags.entry(*peer).or_default();
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

    /// Predecessors and source line of the next ops of `rank`.
    pub fn set_context(&mut self, rank: usize, after: Vec<OpId>, source: Option<SourceId>) {
        self.context[rank] = (after, source);
    }

    /// The finished ranks.
    pub fn finish(self) -> Vec<RankProgram> {
        self.builders.into_iter().map(RankBuilder::finish).collect()
    }

    /// Moves a slice of one rank to one of another.
    fn transfer(&mut self, from: Rank, src: Slice, to: Rank, dst: Slice, reduce: Option<ReduceOp>) {
        let tag = self.tag(from, to);
        let wire = self.builders[from.index()].dtype(src.buffer);
        self.push(from, Op::Send { src, wire, peer: to, tag, count: None });
        self.push(to, Op::Recv { dst, wire, reduce, peer: from, tag, count: None });
    }

    /// Moves the first elements of a slice to the same place of another rank, as many as the count says, which both have.
    pub fn counted(&mut self, from: Rank, to: Rank, slice: Slice, count: Slice) {
        let (tag, count) = (self.tag(from, to), Some(count));
        let wire = self.builders[from.index()].dtype(slice.buffer);
        self.push(from, Op::Send { src: slice, wire, peer: to, tag, count });
        self.push(to, Op::Recv { dst: slice, wire, reduce: None, peer: from, tag, count });
    }

    fn tag(&mut self, from: Rank, to: Rank) -> Tag {
        let next = self.tags[from.index()].entry(to).or_default();
        *next += 1;
        Tag(*next - 1)
    }

    fn push(&mut self, rank: Rank, op: Op) {
        let (after, source) = &self.context[rank.index()];
        self.builders[rank.index()].push_after(op, after, *source);
    }
}

/// One collective that is turned into ops.
pub struct Expansion<'a> {
    /// Receives the ops.
    pub weaver: &'a mut Weaver,
    /// By position in the group.
    pub members: &'a [Rank],
    /// By member; of equal lengths.
    pub slices: Vec<Slice>,
    /// By member: destination of an all-to-all; empty for others.
    pub dsts: Vec<Slice>,
    /// How elements combine.
    pub op: ReduceOp,
    /// Factor of the result.
    pub scale: f64,
}

fn within(slice: Slice, part: &Range<usize>) -> Slice {
    Slice::new(slice.buffer, slice.start + part.start, slice.start + part.end)
}

impl Weave for Expansion<'_> {
    fn message(&mut self, from: usize, to: usize, part: &Range<usize>, reduces: bool) {
        let (src, dst) = (within(self.slices[from], part), within(self.slices[to], part));
        self.weaver.transfer(self.members[from], src, self.members[to], dst, reduces.then_some(self.op));
    }

    fn aside(&mut self, from: usize, to: usize, part: &Range<usize>) {
        let (src, dst) = (within(self.slices[from], part), within(self.slices[to], part));
        let rank = self.members[to];
        let builder = self.weaver.builder(rank.index());
        let dtype = builder.dtype(dst.buffer);
        let scratch = builder.buffer("aside", dtype, part.len(), BufferKind::Scratch);
        let between = Slice::new(scratch, 0, part.len());
        self.weaver.transfer(self.members[from], src, rank, between, None);
        self.weaver.push(rank, Op::Reduce { op: self.op, src: between, dst });
    }

    fn complete(&mut self, member: usize, part: &Range<usize>) {
        // The neutral factor is exactly representable, so omitting it loses nothing.
        #[expect(clippy::float_cmp)]
        let neutral = self.scale == 1.0;
        if !neutral {
            let dst = within(self.slices[member], part);
            self.weaver.push(self.members[member], Op::Apply { kernel: Kernel::Scale(self.scale), dst });
        }
    }

    fn exchange(&mut self, from: usize, part: &Range<usize>, to: usize, landed: &Range<usize>) {
        let (src, dst) = (within(self.slices[from], part), within(self.dsts[to], landed));
        if from == to {
            self.weaver.push(self.members[from], Op::Copy { src, dst });
        } else {
            self.weaver.transfer(self.members[from], src, self.members[to], dst, None);
        }
    }
}
