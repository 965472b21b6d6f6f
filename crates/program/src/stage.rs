//! A program for memory of a device, which works on the host's twin of it between two copies.

use crate::{Buffer, Op, Program, RankProgram, Slice, Space};
use hocket_ids::BufferId;

impl Program {
    /// The same for memory of each rank's device. For each bound buffer there is one of the device, before all others: element `i` of
    /// one is copied from and to element `i` of the other. What ops read is copied to the host first, what they have written is
    /// copied back behind them, in pieces of at most `piece_bytes`, each as soon as what it depends on is done. So pieces come down,
    /// travel and go up at once. What is needed first comes first.
    ///
    /// Nothing is promised of it, as of [`Program::retained`].
    #[must_use]
    pub fn staged(&self, piece_bytes: usize) -> Self {
        let mut staged = self.clone();
        for (rank, before) in staged.ranks.iter_mut().zip(&self.ranks) {
            *rank = before.staged(piece_bytes);
        }
        staged.ensures = Vec::new();
        staged
    }
}

impl RankProgram {
    fn staged(&self, piece_bytes: usize) -> Self {
        let bound: Vec<usize> = self.bound().collect();
        let on_device = |&at: &usize| {
            let each = &self.buffers[at];
            Buffer { name: format!("{}.device", each.name), space: Space::Device, ..each.clone() }
        };
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for (device, &at) in bound.iter().enumerate() {
            let piece = (piece_bytes / self.buffers[at].dtype.bytes()).max(1);
            let twins = |(start, stop)| {
                let of = |buffer| Slice::new(BufferId::from_index(buffer), start, stop);
                (of(device), of(bound.len() + at))
            };
            let used = self.used(BufferId::from_index(at));
            for (first, range) in pieces(&used.read, piece, &used.reads) {
                let (src, dst) = twins(range);
                down.push((first, Op::Copy { src, dst }));
            }
            for (_, range) in pieces(&used.written, piece, &[]) {
                let (dst, src) = twins(range);
                up.push(Op::Copy { src, dst });
            }
        }
        down.sort_by_key(|(first, _)| *first);
        let down = down.into_iter().map(|(_, op)| op).collect();
        self.wrapped(bound.iter().map(on_device).collect(), down, up)
    }

    fn used(&self, buffer: BufferId) -> Used {
        let mut used = Used::default();
        for (at, node) in self.nodes.iter().enumerate() {
            let own = |slice: &&Slice| slice.buffer == buffer && slice.start < slice.stop;
            for slice in node.op.reads().iter().filter(own) {
                let range = (slice.start, slice.stop);
                if !covers(&used.written, range) {
                    join(&mut used.read, range);
                    used.reads.push((at, range));
                }
            }
            for slice in node.op.writes().iter().filter(own) {
                join(&mut used.written, (slice.start, slice.stop));
            }
        }
        used
    }
}

type Range = (usize, usize);

/// Elements of a buffer that ops use. Ranges are apart, and ascend.
#[derive(Default)]
struct Used {
    /// What is read before it is written.
    read: Vec<Range>,
    written: Vec<Range>,
    /// Reads by the number of their op.
    reads: Vec<(usize, Range)>,
}

fn covers(ranges: &[Range], (start, stop): Range) -> bool {
    ranges.iter().any(|&(first, end)| first <= start && stop <= end)
}

/// Adds a range; those that touch become one.
fn join(ranges: &mut Vec<Range>, (mut start, mut stop): Range) {
    ranges.retain(|&(first, end)| {
        let apart = end < start || stop < first;
        if !apart {
            (start, stop) = (start.min(first), stop.max(end));
        }
        apart
    });
    let at = ranges.partition_point(|&(first, _)| first < start);
    ranges.insert(at, (start, stop));
}

/// Pieces of the ranges, each with the number of the first op that reads any of it.
fn pieces(ranges: &[Range], piece: usize, reads: &[(usize, Range)]) -> Vec<(usize, Range)> {
    let cut =
        |&(start, stop): &Range| (start..stop).step_by(piece).map(move |from| (from, stop.min(from + piece)));
    let first = |(start, stop): Range| {
        let reader = reads.iter().find(|(_, (from, to))| *from < stop && start < *to);
        (reader.map_or(0, |(at, _)| *at), (start, stop))
    };
    ranges.iter().flat_map(cut).map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::join;
    use crate::passes::{Options, compile};
    use crate::verify::verify;
    use crate::{
        Algorithm, BufferKind, Collective, DType, Kernel, Op, Program, RankBuilder, ReduceOp, Slice, Space,
    };
    use hocket_ids::{BufferId, Rank};

    fn all_reduce(algorithm: &Algorithm) -> Program {
        let group: Vec<Rank> = (0..3).map(Rank::from_index).collect();
        let rank = || {
            let mut builder = RankBuilder::new();
            builder.buffer("bucket", DType::F32, 1000, BufferKind::Bound);
            let (what, slice) = (Collective::AllReduce, Slice::new(BufferId(0), 0, 1000));
            let (group, algorithm) = (group.clone(), Some(algorithm.clone()));
            builder
                .push(Op::Collective { what, slice, group, op: ReduceOp::Sum, scale: 0.5, algorithm }, None);
            builder.finish()
        };
        let logical = Program { ranks: group.iter().map(|_| rank()).collect(), ..Program::default() };
        compile(&logical, &Options { order: None, chunk_bytes: 256, codec: None }).unwrap()
    }

    /// An op would read what is not down yet, or a piece would go up before its last sum.
    #[test]
    fn a_sound_program_stays_sound() {
        for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::InPlace] {
            for program in [all_reduce(&algorithm), all_reduce(&algorithm).retained()] {
                let staged = program.staged(400);
                assert_eq!(verify(&staged), [], "{algorithm:?}");
                for rank in &staged.ranks {
                    let device = |slice: &Slice| rank.buffers[slice.buffer.index()].space == Space::Device;
                    for node in &rank.nodes {
                        let mut all = node.op.reads().into_iter().chain(node.op.writes());
                        assert!(matches!(node.op, Op::Copy { .. }) || !all.any(|slice| device(&slice)));
                    }
                }
            }
        }
    }

    /// A piece that the first message needs would wait for all others to come down.
    #[test]
    fn pieces_come_down_in_the_order_in_which_they_are_needed() {
        let mut builder = RankBuilder::new();
        let bucket = builder.buffer("bucket", DType::F32, 8, BufferKind::Bound);
        for (start, stop) in [(4, 8), (0, 4)] {
            builder
                .push(Op::Apply { kernel: Kernel::Scale(2.0), dst: Slice::new(bucket, start, stop) }, None);
        }
        let staged = Program { ranks: vec![builder.finish()], ..Program::default() }.staged(8);
        let down: Vec<_> = staged.ranks[0].nodes[..4].iter().map(|node| node.op.writes()[0].start).collect();
        assert_eq!(down, [4, 6, 0, 2]);
    }

    /// What an op overwrites would be copied for nothing, and what no op writes would overwrite the device's own.
    #[test]
    fn only_what_is_read_comes_down_and_only_what_is_written_goes_up() {
        let mut builder = RankBuilder::new();
        let [one, other] =
            ["one", "other"].map(|name| builder.buffer(name, DType::F32, 8, BufferKind::Bound));
        builder.push(Op::Copy { src: Slice::new(one, 0, 4), dst: Slice::new(other, 2, 6) }, None);
        builder.push(Op::Apply { kernel: Kernel::Scale(2.0), dst: Slice::new(other, 3, 5) }, None);
        let staged = Program { ranks: vec![builder.finish()], ..Program::default() }.staged(1 << 20);
        let copied: Vec<_> = staged.ranks[0]
            .nodes
            .iter()
            .filter_map(|node| match node.op {
                Op::Copy { src, dst } => Some((src, dst)),
                _ => None,
            })
            .collect();
        let [one, other] = [BufferId(2), BufferId(3)];
        assert_eq!(
            copied,
            [
                (Slice::new(BufferId(0), 0, 4), Slice::new(one, 0, 4)),
                (Slice::new(one, 0, 4), Slice::new(other, 2, 6)),
                (Slice::new(other, 2, 6), Slice::new(BufferId(1), 2, 6)),
            ]
        );
    }

    /// Pieces would overlap, or leave elements out.
    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = Vec::new();
        for range in [(4, 6), (0, 1), (8, 9), (6, 8), (2, 3)] {
            join(&mut ranges, range);
        }
        assert_eq!(ranges, [(0, 1), (2, 3), (4, 9)]);
    }
}
