//! A program for memory of a device, which works on the host's twin of it between two copies.

use crate::resize::slices;
use crate::{Algorithm, Buffer, BufferKind, Op, Program, RankBuilder, RankProgram, Slice, Space};
use hocket_ids::{BufferId, OpId};

impl Program {
    /// The same for memory of each rank's device. For each bound buffer there is one of the device, before all others: element `i` of
    /// one is copied from and to element `i` of the other. What ops read is copied to the host first, what they have written is
    /// copied back behind them, in pieces of at most `piece_bytes`, each as soon as what it depends on is done. So pieces come down,
    /// travel and go up at once. What is needed first comes first. Collectives of these `libraries` on bound buffers work on the
    /// device's memory itself; what the host has changed goes up before them.
    ///
    /// Nothing is promised of it, as of [`Program::retained`].
    #[must_use]
    pub fn staged(&self, piece_bytes: usize, libraries: &[&str]) -> Self {
        let mut staged = self.clone();
        for (rank, before) in staged.ranks.iter_mut().zip(&self.ranks) {
            *rank = before.staged(piece_bytes, libraries);
        }
        staged.ensures = Vec::new();
        staged
    }
}

impl RankProgram {
    fn staged(&self, piece_bytes: usize, libraries: &[&str]) -> Self {
        let mut staging = Staging::new(self, piece_bytes);
        let mut from = 0;
        for at in (0..self.nodes.len()).filter(|&at| self.stays(at, libraries)) {
            staging.on_host(from..at);
            staging.on_device(at);
            from = at + 1;
        }
        staging.on_host(from..self.nodes.len());
        staging.finish()
    }

    /// Whether one of the libraries executes an op on the device.
    fn stays(&self, at: usize, libraries: &[&str]) -> bool {
        let op = &self.nodes[at].op;
        let Op::Collective { algorithm: Some(Algorithm::Library { name }), .. } = op else { return false };
        let bound = |slice: &Slice| self.buffers[slice.buffer.index()].kind == BufferKind::Bound;
        libraries.contains(&name.as_str()) && op.reads().iter().chain(&op.writes()).all(bound)
    }

    fn used(&self, buffer: BufferId, ops: std::ops::Range<usize>) -> Used {
        let mut used = Used::default();
        for at in ops {
            let op = &self.nodes[at].op;
            let own = |slice: &&Slice| slice.buffer == buffer && slice.start < slice.stop;
            for slice in op.reads().iter().filter(own) {
                let range = (slice.start, slice.stop);
                if !covers(&used.written, range) {
                    join(&mut used.read, range);
                    used.reads.push((at, range));
                }
            }
            for slice in op.writes().iter().filter(own) {
                join(&mut used.written, (slice.start, slice.stop));
            }
        }
        used
    }
}

/// A bound buffer and its twin, which is the device's buffer of the same number as this one has among them.
struct Twin {
    buffer: usize,
    /// Most elements of a copy.
    piece: usize,
    /// What is newer on the device.
    device: Vec<Range>,
    /// What is newer on the host.
    host: Vec<Range>,
}

/// A staged program as it grows.
struct Staging<'a> {
    own: &'a RankProgram,
    builder: RankBuilder,
    twins: Vec<Twin>,
    /// By op of the program: its number here.
    numbers: Vec<OpId>,
}

impl<'a> Staging<'a> {
    fn new(own: &'a RankProgram, piece_bytes: usize) -> Self {
        let twin = |buffer: usize| {
            let each = &own.buffers[buffer];
            let (piece, whole) = ((piece_bytes / each.dtype.bytes()).max(1), (0, each.len));
            Twin { buffer, piece, device: vec![whole], host: Vec::new() }
        };
        let twins: Vec<Twin> = own.bound().map(twin).collect();
        let on_device = |twin: &Twin| {
            let each = &own.buffers[twin.buffer];
            Buffer { name: format!("{}.device", each.name), space: Space::Device, ..each.clone() }
        };
        let buffers = twins.iter().map(on_device).chain(own.buffers.iter().cloned()).collect();
        let builder = RankBuilder::with_buffers(&RankProgram { buffers, nodes: Vec::new() });
        Self { own, builder, twins, numbers: Vec::new() }
    }

    /// These ops, behind copies of what they read that is newer on the device.
    fn on_host(&mut self, ops: std::ops::Range<usize>) {
        let mut down = Vec::new();
        for (number, twin) in self.twins.iter_mut().enumerate() {
            let used = self.own.used(BufferId::from_index(twin.buffer), ops.clone());
            let read = common(&used.read, &twin.device);
            down.extend(
                pieces(&read, twin.piece, &used.reads).into_iter().map(|(at, range)| (at, number, range)),
            );
            twin.device = without(&without(&twin.device, &read), &used.written);
            used.written.iter().for_each(|&range| join(&mut twin.host, range));
        }
        down.sort_by_key(|(first, ..)| *first);
        for (_, number, range) in down {
            let (src, dst) = self.ends(number, range);
            self.builder.push(Op::Copy { src, dst }, None);
        }
        for at in ops {
            let mut op = self.own.nodes[at].op.clone();
            for slice in slices(&mut op) {
                slice.buffer = BufferId::from_index(slice.buffer.index() + self.twins.len());
            }
            self.push(at, op);
        }
    }

    /// An op on the device, behind copies of what is newer on the host.
    fn on_device(&mut self, at: usize) {
        let mut op = self.own.nodes[at].op.clone();
        for slice in slices(&mut op) {
            let number = self.twins.iter().position(|twin| twin.buffer == slice.buffer.index());
            let number = number.expect("its buffers are bound");
            self.up(number, (slice.start, slice.stop));
            join(&mut self.twins[number].device, (slice.start, slice.stop));
            slice.buffer = BufferId::from_index(number);
        }
        self.push(at, op);
    }

    fn finish(mut self) -> RankProgram {
        for number in 0..self.twins.len() {
            self.up(number, (0, self.own.buffers[self.twins[number].buffer].len));
        }
        self.builder.finish()
    }

    /// Copies what is newer on the host, of this range.
    fn up(&mut self, number: usize, range: Range) {
        let twin = &mut self.twins[number];
        let newer = common(&twin.host, &[range]);
        twin.host = without(&twin.host, &newer);
        for (_, range) in pieces(&newer, twin.piece, &[]) {
            let (dst, src) = self.ends(number, range);
            self.builder.push(Op::Copy { src, dst }, None);
        }
    }

    /// A range on the device and on the host.
    fn ends(&self, number: usize, (start, stop): Range) -> (Slice, Slice) {
        let of = |buffer| Slice::new(BufferId::from_index(buffer), start, stop);
        (of(number), of(self.twins.len() + self.twins[number].buffer))
    }

    fn push(&mut self, at: usize, op: Op) {
        let node = &self.own.nodes[at];
        let after: Vec<OpId> = node.after.iter().map(|before| self.numbers[before.index()]).collect();
        self.numbers.push(self.builder.push_after(op, &after, node.source));
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

/// What is in both.
fn common(ranges: &[Range], others: &[Range]) -> Vec<Range> {
    without(ranges, &without(ranges, others))
}

/// What is in the first alone.
fn without(ranges: &[Range], others: &[Range]) -> Vec<Range> {
    others.iter().fold(ranges.to_vec(), |left, &(start, stop)| {
        let sides = |(from, to): Range| [(from, to.min(start)), (from.max(stop), to)];
        left.into_iter().flat_map(sides).filter(|(from, to)| from < to).collect()
    })
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
    use super::{common, join, without};
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
                let staged = program.staged(400, &[]);
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
        let staged = Program { ranks: vec![builder.finish()], ..Program::default() }.staged(8, &[]);
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
        let staged = Program { ranks: vec![builder.finish()], ..Program::default() }.staged(1 << 20, &[]);
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

    /// A library would be given what the host has changed before that is on the device, or what it made would stay there; or whole
    /// buckets would pass the bus for a part.
    #[test]
    fn a_library_works_on_the_device_and_the_host_on_parts() {
        let group: Vec<Rank> = (0..2).map(Rank::from_index).collect();
        let rank = |own: usize| {
            let mut builder = RankBuilder::new();
            let bucket = builder.buffer("bucket", DType::F32, 8, BufferKind::Bound);
            let collective = |what, name: &str| Op::Collective {
                what,
                slice: Slice::new(bucket, 0, 8),
                group: group.clone(),
                op: ReduceOp::Sum,
                scale: 1.0,
                algorithm: Some(Algorithm::Library { name: name.into() }),
            };
            builder.push(collective(Collective::ReduceScatter, "theirs"), None);
            let dst = Slice::new(bucket, 4 * own, 4 * own + 4);
            builder.push(Op::Apply { kernel: Kernel::Scale(2.0), dst }, None);
            builder.push(collective(Collective::AllGather, "theirs"), None);
            builder.push(collective(Collective::AllReduce, "ours"), None);
            builder.finish()
        };
        let program = Program { ranks: vec![rank(0), rank(1)], ..Program::default() };
        let staged = program.staged(8, &["theirs"]);
        assert_eq!(verify(&staged), []);
        let spaces = |op: &Op| {
            let all = op.reads().into_iter().chain(op.writes());
            all.map(|slice| (slice.buffer.0, slice.start, slice.stop)).collect::<Vec<_>>()
        };
        let found: Vec<_> = staged.ranks[1].nodes.iter().map(|node| spaces(&node.op)).collect();
        let wanted = [
            vec![(0, 0, 8), (0, 0, 8)],
            vec![(0, 4, 6), (1, 4, 6)],
            vec![(0, 6, 8), (1, 6, 8)],
            vec![(1, 4, 8), (1, 4, 8)],
            vec![(1, 4, 6), (0, 4, 6)],
            vec![(1, 6, 8), (0, 6, 8)],
            vec![(0, 0, 8), (0, 0, 8)],
            vec![(0, 0, 2), (1, 0, 2)],
            vec![(0, 2, 4), (1, 2, 4)],
            vec![(0, 4, 6), (1, 4, 6)],
            vec![(0, 6, 8), (1, 6, 8)],
            vec![(1, 0, 8), (1, 0, 8)],
            vec![(1, 0, 2), (0, 0, 2)],
            vec![(1, 2, 4), (0, 2, 4)],
            vec![(1, 4, 6), (0, 4, 6)],
            vec![(1, 6, 8), (0, 6, 8)],
        ];
        assert_eq!(found, wanted);
    }

    /// What the host has would be copied for nothing, or not at all.
    #[test]
    fn ranges_without_others() {
        assert_eq!(without(&[(0, 9)], &[(2, 3), (5, 20)]), [(0, 2), (3, 5)]);
        assert_eq!(without(&[(0, 2), (4, 6)], &[(2, 4)]), [(0, 2), (4, 6)]);
        assert_eq!(common(&[(0, 4), (6, 9)], &[(2, 7)]), [(2, 4), (6, 7)]);
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
