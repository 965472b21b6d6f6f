//! Lets messages convert and reduce directly, without a scratch buffer between.
//!
//! Before: `cast %0[0:8] to %1[0:8]`, `send %1[0:8] as f16`; at the other end `recv %1[0:8] as f16 store`, `cast %1[0:8] to
//! %2[0:8]`, `reduce sum %2[0:8] into %0[0:8]`. After: `send %0[0:8] as f16`; `recv %0[0:8] as f16 reduce sum`. Gain: a value
//! is read and written once per message, and a policy's own ring is as fast as the engine's.
//!
//! A buffer in between may prevent two ranks from waiting for one another (both send what they will overwrite), so a
//! fused program that deadlocks is discarded for the previous one.

use super::Pass;
use crate::verify::deadlocks;
use crate::{BufferKind, Op, Program, RankBuilder, RankProgram, Slice, Slices};
use hocket_ids::{BufferId, OpId};

pub const PASS: Pass = Pass { title: "fuse", run: |program, _| Ok(fuse(program)), spec: |_, _| None };

/// `program` with as few scratch buffers between messages and local ops as its dataflow allows; `None` if it needs them
/// all.
fn fuse(program: &Program) -> Option<Program> {
    let scratch = |rank: &RankProgram| rank.buffers.iter().any(|buffer| buffer.kind == BufferKind::Scratch);
    if !program.ranks.iter().any(scratch) {
        return None;
    }
    let fused = program.with_ranks(program.ranks.iter().map(fused).collect());
    (!deadlocks(&fused)).then_some(fused)
}

/// Remaining ops, each at the position of the last one that it combines.
struct Ops<'a> {
    rank: &'a RankProgram,
    left: Vec<Option<Op>>,
    /// By buffer: ops that access it, ascending.
    touching: Vec<Vec<usize>>,
    /// Whether an op is ordered for a reason other than memory.
    controlled: Vec<bool>,
}

fn fused(rank: &RankProgram) -> RankProgram {
    let mut ops = Ops::new(rank);
    for at in 0..ops.left.len() {
        ops.forward_send(at);
    }
    for at in 0..ops.left.len() {
        ops.land_directly(at);
    }
    ops.build()
}

impl<'a> Ops<'a> {
    fn new(rank: &'a RankProgram) -> Self {
        let mut touching = vec![Vec::new(); rank.buffers.len()];
        let mut controlled = vec![false; rank.nodes.len()];
        for (at, node) in rank.nodes.iter().enumerate() {
            for slice in node.op.reads().into_iter().chain(node.op.writes()) {
                if touching[slice.buffer.index()].last() != Some(&at) {
                    touching[slice.buffer.index()].push(at);
                }
            }
            for before in node.after.iter().map(|before| before.index()) {
                if !rank.nodes[before].op.conflicts(&node.op) {
                    controlled[before] = true;
                    controlled[at] = true;
                }
            }
        }
        let left = rank.nodes.iter().map(|node| Some(node.op.clone())).collect();
        Self { rank, left, touching, controlled }
    }

    fn is_scratch(&self, buffer: BufferId) -> bool {
        self.rank.buffers[buffer.index()].kind == BufferKind::Scratch
    }

    /// Ops after `at` that read exactly `slice` until it is overwritten; `None` when an op accesses part of it.
    fn readers(&self, at: usize, slice: &Slice) -> Option<Vec<usize>> {
        let mut readers = Vec::new();
        let touching = &self.touching[slice.buffer.index()];
        for &later in &touching[touching.partition_point(|&op| op <= at)..] {
            let Some(op) = &self.left[later] else { continue };
            let reads: Slices = op.reads().into_iter().filter(|read| read.overlaps(slice)).collect();
            let writes: Slices = op.writes().into_iter().filter(|write| write.overlaps(slice)).collect();
            if reads.iter().any(|read| read != slice) || !reads.is_empty() && !writes.is_empty() {
                return None;
            }
            if !reads.is_empty() {
                readers.push(later);
            } else if let Some(write) = writes.first() {
                // A kernel that updates its outputs reads them.
                let overwrites = write.covers(slice) && !matches!(op, Op::Call { .. });
                return overwrites.then_some(readers);
            }
        }
        Some(readers)
    }

    /// Whether an op between `from` and `to` writes into `slice`.
    fn overwritten(&self, from: usize, to: usize, slice: &Slice) -> bool {
        let touching = &self.touching[slice.buffer.index()];
        let first = touching.partition_point(|&op| op <= from);
        touching[first..]
            .iter()
            .take_while(|&&op| op < to)
            .filter_map(|&op| self.left[op].as_ref())
            .any(|op| op.writes().iter().any(|other| other.overlaps(slice)))
    }

    /// `cast a to t`, `send t` … → `send a as the type of t` …
    fn forward_send(&mut self, at: usize) {
        let Some(Op::Cast { src, dst } | Op::Copy { src, dst }) = self.left[at].clone() else { return };
        if !self.is_scratch(dst.buffer) || self.controlled[at] || !self.same_space(&src, &dst) {
            return;
        }
        let Some(readers) = self.readers(at, &dst) else { return };
        let wire = self.rank.buffers[dst.buffer.index()].dtype;
        let sends = readers.iter().all(|&reader| {
            matches!(&self.left[reader], Some(Op::Send { wire: own, count: None, .. }) if *own == wire)
                && !self.overwritten(at, reader, &src)
        });
        if readers.is_empty() || !sends {
            return;
        }
        for reader in readers {
            if let Some(Op::Send { src: own, .. }) = &mut self.left[reader] {
                *own = src;
            }
            self.touch(src.buffer, reader);
        }
        self.left[at] = None;
    }

    /// `recv t store`, then `cast t to d`, `copy t to d` or `reduce t into d` → `recv d`; repeated on the result.
    fn land_directly(&mut self, at: usize) {
        let mut at = at;
        loop {
            let Some(Op::Recv { dst: between, wire, reduce: None, peer, tag, count: None }) =
                self.left[at].clone()
            else {
                return;
            };
            if !self.is_scratch(between.buffer) || self.controlled[at] {
                return;
            }
            let Some([reader]) =
                self.readers(at, &between).map(TryInto::<[usize; 1]>::try_into).and_then(Result::ok)
            else {
                return;
            };
            if self.controlled[reader] {
                return;
            }
            // Rounded to the buffer's own type in between, the value would differ.
            let exact = self.rank.buffers[between.buffer.index()].dtype == wire;
            let (dst, reduce) = match &self.left[reader] {
                Some(Op::Cast { dst, .. } | Op::Copy { dst, .. }) if exact => (*dst, None),
                Some(Op::Copy { dst, .. }) => (*dst, None),
                Some(Op::Reduce { op, dst, .. }) if exact || self.same_type(&between, dst) => {
                    (*dst, Some(*op))
                }
                _ => return,
            };
            if !self.same_space(&between, &dst)
                || reduce.is_some() && self.would_wait(at, &between, reader, &dst)
            {
                return;
            }
            self.left[reader] = Some(Op::Recv { dst, wire, reduce, peer, tag, count: None });
            self.left[at] = None;
            at = reader;
        }
    }

    /// Whether a receive that now may land at once, into memory that nothing else uses before it, would wait for another one to be
    /// added up first.
    fn would_wait(&self, at: usize, between: &Slice, reader: usize, dst: &Slice) -> bool {
        let before = |buffer: BufferId, end: usize| {
            self.touching[buffer.index()]
                .iter()
                .take_while(move |&&op| op < end)
                .filter_map(|&op| self.left[op].as_ref())
        };
        let writes = |op: &Op, slice: &Slice| op.writes().iter().any(|other| other.overlaps(slice));
        let reused = before(between.buffer, at)
            .any(|op| op.reads().iter().chain(&op.writes()).any(|other| other.overlaps(between)));
        let sums = |op: &Op| matches!(op, Op::Recv { .. } | Op::Reduce { .. });
        !reused && before(dst.buffer, reader).any(|op| sums(op) && writes(op, dst))
    }

    fn same_type(&self, left: &Slice, right: &Slice) -> bool {
        let dtype = |slice: &Slice| self.rank.buffers[slice.buffer.index()].dtype;
        dtype(left) == dtype(right)
    }

    /// A message in place of a copy between spaces would be one that no link moves.
    fn same_space(&self, left: &Slice, right: &Slice) -> bool {
        let space = |slice: &Slice| self.rank.buffers[slice.buffer.index()].space;
        space(left) == space(right)
    }

    fn touch(&mut self, buffer: BufferId, op: usize) {
        let touching = &mut self.touching[buffer.index()];
        if let Err(place) = touching.binary_search(&op) {
            touching.insert(place, op);
        }
    }

    fn build(self) -> RankProgram {
        let mut builder = RankBuilder::with_buffers(self.rank);
        let mut became: Vec<Option<OpId>> = Vec::with_capacity(self.left.len());
        let mut used = vec![false; self.rank.buffers.len()];
        for (op, node) in self.left.iter().zip(&self.rank.nodes) {
            let Some(op) = op else {
                became.push(None);
                continue;
            };
            for slice in op.reads().into_iter().chain(op.writes()) {
                used[slice.buffer.index()] = true;
            }
            let control: Vec<OpId> = node
                .after
                .iter()
                .filter(|before| !self.rank.nodes[before.index()].op.conflicts(&node.op))
                .filter_map(|before| became[before.index()])
                .collect();
            became.push(Some(builder.push_after(op.clone(), &control, node.source)));
        }
        let mut rank = builder.finish();
        for (buffer, used) in rank.buffers.iter_mut().zip(used) {
            if !used && buffer.kind == BufferKind::Scratch {
                buffer.len = 0;
            }
        }
        rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferKind::{Bound, Scratch};
    use hocket_ids::{DType, Rank, ReduceOp::Sum, Tag};

    /// Three values that are received into scratch and added to one place; `own`: each has scratch of its own.
    fn sums(own: bool) -> RankProgram {
        let mut builder = RankBuilder::new();
        let sum = builder.buffer("sum", DType::F32, 4, Bound);
        let mut scratch = || builder.buffer("got", DType::F32, 4, Scratch);
        let first = scratch();
        let got = [first, if own { scratch() } else { first }, if own { scratch() } else { first }];
        let whole = |buffer| Slice::new(buffer, 0, 4);
        for (peer, buffer) in [1, 2, 3].into_iter().zip(got) {
            let (dst, wire, tag) = (whole(buffer), DType::F32, Tag(0));
            builder.push(Op::Recv { dst, wire, reduce: None, peer: Rank(peer), tag, count: None }, None);
            builder.push(Op::Reduce { op: Sum, src: dst, dst: whole(sum) }, None);
        }
        builder.finish()
    }

    /// Broken: values that may arrive at once would be asked for one after the other; or scratch that lets nothing arrive sooner
    /// would be kept.
    #[test]
    fn values_that_may_arrive_at_once_keep_their_scratch() {
        for (own, left) in [(true, 5), (false, 4)] {
            assert_eq!(fused(&sums(own)).nodes.len(), left, "scratch of its own: {own}");
        }
    }
}
