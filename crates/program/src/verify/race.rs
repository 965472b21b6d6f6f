//! Two ops of a rank that access the same elements, one of them writing, must be ordered by `after`.

use super::Findings;
use crate::{Program, RankProgram, Slice};

pub fn check(program: &Program, found: &mut Findings<'_>) {
    for (rank, ops) in program.ranks.iter().enumerate() {
        let order = Order::of(ops);
        for (earlier, later, slice) in conflicts(ops) {
            if !order.before(earlier, later) {
                let (buffer, start, stop) = (slice.buffer, slice.start, slice.stop);
                let what = format!(
                    "races with op {earlier} for %{buffer}[{start}:{stop}]: nothing orders them, and one of them writes"
                );
                found.between(rank, later, &[(rank, earlier)], what);
            }
        }
    }
}

/// Pairs of conflicting ops, by a sweep over each buffer's accesses in order of their start.
fn conflicts(ops: &RankProgram) -> Vec<(usize, usize, Slice)> {
    let mut accesses: Vec<(Slice, usize, bool)> = Vec::new();
    for (at, node) in ops.nodes.iter().enumerate() {
        accesses.extend(node.op.reads().into_iter().map(|slice| (slice, at, false)));
        accesses.extend(node.op.writes().into_iter().map(|slice| (slice, at, true)));
    }
    accesses.retain(|(slice, ..)| !slice.is_empty());
    accesses.sort_unstable_by_key(|(slice, at, _)| (slice.buffer, slice.start, *at));
    let mut pairs = Vec::new();
    let mut open: Vec<(Slice, usize, bool)> = Vec::new();
    for (slice, at, writes) in accesses {
        open.retain(|(other, ..)| other.buffer == slice.buffer && other.stop > slice.start);
        for &(other, before, wrote) in &open {
            if before != at && (writes || wrote) {
                let common = Slice::new(slice.buffer, slice.start, slice.stop.min(other.stop));
                pairs.push((at.min(before), at.max(before), common));
            }
        }
        open.push((slice, at, writes));
    }
    pairs.sort_unstable_by_key(|(earlier, later, slice)| (*later, *earlier, slice.start));
    pairs.dedup_by_key(|(earlier, later, _)| (*earlier, *later));
    pairs
}

/// Which ops come before which, by transitive closure as bit sets.
struct Order {
    words: usize,
    before: Vec<u64>,
}

impl Order {
    fn of(ops: &RankProgram) -> Self {
        let words = ops.nodes.len().div_ceil(64);
        let mut before = vec![0u64; words * ops.nodes.len()];
        for (at, node) in ops.nodes.iter().enumerate() {
            for dependency in &node.after {
                let dependency = dependency.index();
                let (known, own) = before.split_at_mut(at * words);
                for (own, known) in own.iter_mut().zip(&known[dependency * words..(dependency + 1) * words]) {
                    *own |= known;
                }
                own[dependency / 64] |= 1 << (dependency % 64);
            }
        }
        Self { words, before }
    }

    fn before(&self, earlier: usize, later: usize) -> bool {
        self.before[later * self.words + earlier / 64] >> (earlier % 64) & 1 == 1
    }
}
