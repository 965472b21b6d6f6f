//! A program for a buffer of another length.

use crate::{Collective, Op, Program, Slice};
use hocket_ids::BufferId;

impl Program {
    /// The same, with `len` elements in `buffer` of each rank. `None` if an op accesses part of it, whose place in a
    /// buffer of another length is unknown, or if there is no such buffer or one of the two is empty.
    pub fn resized(&self, buffer: BufferId, len: usize) -> Option<Self> {
        let mut resized = self.clone();
        for rank in &mut resized.ranks {
            let whole = rank.buffers.get_mut(buffer.index())?;
            let before = std::mem::replace(&mut whole.len, len);
            if before == 0 || len == 0 {
                return None;
            }
            for node in &mut rank.nodes {
                for slice in slices(&mut node.op).into_iter().filter(|slice| slice.buffer == buffer) {
                    if (slice.start, slice.stop) != (0, before) {
                        return None;
                    }
                    slice.stop = len;
                }
            }
        }
        Some(resized)
    }
}

pub(crate) fn slices(op: &mut Op) -> Vec<&mut Slice> {
    match op {
        Op::Copy { src, dst } | Op::Cast { src, dst } | Op::Reduce { src, dst, .. } => vec![src, dst],
        Op::Apply { dst, .. } => vec![dst],
        Op::Send { src, count, .. } => std::iter::once(src).chain(count).collect(),
        Op::Recv { dst, count, .. } => std::iter::once(dst).chain(count).collect(),
        Op::Record { src, .. } => vec![src],
        Op::Call { inputs, outputs, .. } => inputs.iter_mut().chain(outputs).collect(),
        Op::Collective { what: Collective::AllToAll { dst }, slice, .. } => vec![slice, dst],
        Op::Collective { slice, .. } => vec![slice],
    }
}

#[cfg(test)]
mod tests {
    use crate::{BufferKind, DType, Kernel, Op, Program, RankBuilder, Slice};

    fn scaled(stop: usize) -> Program {
        let mut builder = RankBuilder::new();
        let buffer = builder.buffer("bucket", DType::F32, 8, BufferKind::Bound);
        builder.push(Op::Apply { kernel: Kernel::Scale(2.0), dst: Slice::new(buffer, 0, stop) }, None);
        Program { ranks: vec![builder.finish()], ..Program::default() }
    }

    /// A bucket of another length would lose elements, or read beyond its end.
    #[test]
    fn whole_buffers_grow_and_parts_are_refused() {
        let buffer = hocket_ids::BufferId(0);
        let resized = scaled(8).resized(buffer, 12).unwrap();
        assert_eq!(resized.ranks[0].buffers[0].len, 12);
        assert_eq!(resized.ranks[0].nodes[0].op.writes()[0], Slice::new(buffer, 0, 12));
        assert!(scaled(7).resized(buffer, 12).is_none());
        assert!(scaled(8).resized(buffer, 0).is_none());
        assert!(scaled(8).resized(hocket_ids::BufferId(1), 12).is_none());
    }
}
