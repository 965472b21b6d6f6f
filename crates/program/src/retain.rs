//! A program that leaves what it is given as it is, so that it can be run again.

use crate::{Buffer, BufferKind, Node, Op, Program, RankProgram, Slice};
use hocket_ids::BufferId;

impl Program {
    /// The same, with a second bound buffer for each one, from which it is filled first, and which nothing writes. The given buffers
    /// come before all others, in the order of those that they fill.
    ///
    /// So an aborted launch is repeated with the same contributions, whatever has become of the sums by then. Nothing is promised of
    /// it: promises are about buffers that are read and written. It is made of a program whose promise is proven already.
    /// [`RankProgram::given`] tells these buffers.
    #[must_use]
    pub fn retained(&self) -> Self {
        let mut retained = self.clone();
        for (rank, before) in retained.ranks.iter_mut().zip(&self.ranks) {
            let bound: Vec<usize> = before.bound().collect();
            let given = |&at: &usize| {
                let each = &before.buffers[at];
                Buffer { name: format!("{}.given", each.name), ..each.clone() }
            };
            let fill = |(given, &at): (usize, &usize)| {
                let len = before.buffers[at].len;
                let src = Slice::new(BufferId::from_index(given), 0, len);
                let dst = Slice::new(BufferId::from_index(bound.len() + at), 0, len);
                (len > 0).then_some(Op::Copy { src, dst })
            };
            let fills = bound.iter().enumerate().filter_map(fill).collect();
            *rank = before.wrapped(bound.iter().map(given).collect(), fills, Vec::new());
        }
        retained.ensures = Vec::new();
        retained
    }
}

impl RankProgram {
    /// Numbers of the bound buffers.
    pub(crate) fn bound(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.buffers.len()).filter(|&at| self.buffers[at].kind == BufferKind::Bound)
    }

    /// Bound buffers that are only copied, each as a whole into a bound buffer of the same length before anything else happens
    /// there: by number, which one they fill. What a launch multiplies its elements with is for what they fill.
    #[must_use]
    pub fn given(&self) -> Vec<(BufferId, BufferId)> {
        let bound = |slice: &Slice| {
            let buffer = &self.buffers[slice.buffer.index()];
            buffer.kind == BufferKind::Bound && (slice.start, slice.len()) == (0, buffer.len)
        };
        let fills = |node: &Node| match &node.op {
            Op::Copy { src, dst } if node.after.is_empty() && bound(src) && bound(dst) => {
                Some((src.buffer, dst.buffer))
            }
            _ => None,
        };
        let uses = |buffer: BufferId| {
            let of = |node: &&Node| {
                node.op.reads().iter().chain(&node.op.writes()).any(|slice| slice.buffer == buffer)
            };
            self.nodes.iter().filter(of).count()
        };
        self.nodes.iter().filter_map(fills).filter(|&(src, _)| uses(src) == 1).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::passes::{Options, compile};
    use crate::{
        Algorithm, BufferKind, Collective, DType, Kernel, Op, Program, RankBuilder, ReduceOp, Slice,
    };
    use hocket_ids::{BufferId, Rank};

    /// A step that is reduced again would start from sums, and count contributions twice.
    #[test]
    fn what_is_given_is_copied_first_and_never_written() {
        let mut builder = RankBuilder::new();
        let scratch = builder.buffer("scratch", DType::F32, 4, BufferKind::Scratch);
        let bucket = builder.buffer("bucket", DType::F32, 8, BufferKind::Bound);
        builder.push(Op::Apply { kernel: Kernel::Scale(2.0), dst: Slice::new(bucket, 2, 6) }, None);
        builder.push(Op::Copy { src: Slice::new(bucket, 0, 4), dst: Slice::new(scratch, 0, 4) }, None);
        let program = Program { ranks: vec![builder.finish()], ..Program::default() };
        let retained = program.retained();
        let rank = &retained.ranks[0];
        let names: Vec<_> = rank.buffers.iter().map(|each| each.name.as_str()).collect();
        assert_eq!(names, ["bucket.given", "scratch", "bucket"]);
        let written: Vec<_> = rank.nodes.iter().map(|node| node.op.writes()[0]).collect();
        assert_eq!(
            written,
            [Slice::new(BufferId(2), 0, 8), Slice::new(BufferId(2), 2, 6), Slice::new(BufferId(1), 0, 4)]
        );
        assert_eq!(rank.nodes[1].after.len(), 1);
        assert!(rank.nodes.iter().all(|node| node.op.writes().iter().all(|slice| slice.buffer.0 > 0)));
        assert_eq!(rank.given(), [(BufferId(0), BufferId(2))]);
        assert_eq!(program.ranks[0].given(), []);
    }

    /// The factor of a launch would be applied to what a buffer gives, or to a part of what is reduced.
    #[test]
    fn a_buffer_that_is_read_twice_or_copied_in_part_is_not_given() {
        for (len, twice) in [(8, false), (7, false), (8, true)] {
            let mut builder = RankBuilder::new();
            let [one, other] =
                ["one", "other"].map(|name| builder.buffer(name, DType::F32, 8, BufferKind::Bound));
            let slice = |buffer| Slice::new(buffer, 0, len);
            builder.push(Op::Copy { src: slice(one), dst: slice(other) }, None);
            if twice {
                let (op, src, dst) = (ReduceOp::Sum, slice(one), slice(other));
                builder.push(Op::Reduce { op, src, dst }, None);
            }
            let expected: &[_] = if len == 8 && !twice { &[(one, other)] } else { &[] };
            assert_eq!(builder.finish().given(), expected, "{len} {twice}");
        }
    }

    /// The copy would race with what a neighbour writes, or an op would run before its buffer is filled.
    #[test]
    fn a_sound_program_stays_sound() {
        for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling, Algorithm::InPlace] {
            let group: Vec<Rank> = (0..3).map(Rank::from_index).collect();
            let rank = || {
                let mut builder = RankBuilder::new();
                builder.buffer("bucket", DType::F32, 1000, BufferKind::Bound);
                let (group, algorithm) = (group.clone(), Some(algorithm.clone()));
                let (what, slice) = (Collective::AllReduce, Slice::new(BufferId(0), 0, 1000));
                builder.push(
                    Op::Collective { what, slice, group, op: ReduceOp::Sum, scale: 0.5, algorithm },
                    None,
                );
                builder.finish()
            };
            let logical = Program { ranks: group.iter().map(|_| rank()).collect(), ..Program::default() };
            let options = Options { order: None, chunk_bytes: 256, codec: None };
            let retained = compile(&logical, &options).unwrap().retained();
            assert_eq!(crate::verify::verify(&retained), [], "{algorithm:?}");
            let given = BufferId(0);
            let nodes = retained.ranks.iter().flat_map(|rank| &rank.nodes);
            assert!(nodes.flat_map(|node| node.op.writes()).all(|slice| slice.buffer != given));
        }
    }
}
