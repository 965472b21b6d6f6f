//! A program for a buffer whose elements lie in several places.

use crate::{Buffer, BufferKind, Contract, Op, Program, Share, Slice};
use hocket_ids::BufferId;

impl Program {
    /// The same, where the elements of the bound buffer 0 lie in bound buffers of these lengths, one after the other: they are copied
    /// together first, and apart at the end. Other buffers come after these, in their order. What owners have of it, they have of
    /// each part. `None` where the lengths are not those of buffer 0, or where something of other parts of it is promised.
    pub fn packed(&self, lengths: &[usize]) -> Option<Self> {
        let mut packed = self.clone();
        for (rank, before) in packed.ranks.iter_mut().zip(&self.ranks) {
            // Of a program that was read in part, the other ranks are empty.
            let Some(whole) = before.buffers.first() else { continue };
            if whole.kind != BufferKind::Bound || whole.len != lengths.iter().sum::<usize>() {
                return None;
            }
            let part = |(at, &len): (usize, &usize)| Buffer {
                name: format!("{}.{at}", whole.name),
                len,
                kind: BufferKind::Bound,
                ..whole.clone()
            };
            let together = places(lengths).map(|(src, dst)| Op::Copy { src, dst }).collect();
            let apart = places(lengths).map(|(dst, src)| Op::Copy { src, dst }).collect();
            let mut inner = before.clone();
            inner.buffers[0].kind = BufferKind::Scratch;
            *rank = inner.wrapped(lengths.iter().enumerate().map(part).collect(), together, apart);
        }
        packed.ensures = Vec::new();
        for contract in &self.ensures {
            if contract.subject().0 != BufferId(0) {
                packed.ensures.push(with_buffer(contract, moved(contract.subject().0, lengths)));
                continue;
            }
            if matches!(contract, Contract::AllGather { .. }) {
                return None;
            }
            packed.ensures.extend(places(lengths).map(|(part, whole)| {
                let mut of_part = with_buffer(contract, part.buffer);
                if let Contract::ToOwners { shares, .. } | Contract::FromOwners { shares, .. } = &mut of_part
                {
                    *shares = within(shares, whole.start, whole.stop);
                }
                of_part
            }));
        }
        Some(packed)
    }
}

/// Each part, and where it is in the whole.
fn places(lengths: &[usize]) -> impl Iterator<Item = (Slice, Slice)> {
    let whole = BufferId::from_index(lengths.len());
    let mut start = 0;
    lengths.iter().enumerate().filter_map(move |(at, &len)| {
        let from = start;
        start += len;
        let part = Slice::new(BufferId::from_index(at), 0, len);
        (len > 0).then(|| (part, Slice::new(whole, from, from + len)))
    })
}

fn moved(buffer: BufferId, lengths: &[usize]) -> BufferId {
    BufferId::from_index(buffer.index() + lengths.len())
}

fn with_buffer(contract: &Contract, now: BufferId) -> Contract {
    let mut contract = contract.clone();
    let (Contract::AllReduce { buffer, .. }
    | Contract::AllGather { buffer, .. }
    | Contract::ToOwners { buffer, .. }
    | Contract::FromOwners { buffer, .. }
    | Contract::Same { buffer, .. }) = &mut contract;
    *buffer = now;
    contract
}

/// What owners have of elements `first..last`, which become `0..last - first`.
fn within(shares: &[Share], first: usize, last: usize) -> Vec<Share> {
    let clipped = shares.iter().map(|share| Share {
        owner: share.owner,
        start: share.start.clamp(first, last) - first,
        stop: share.stop.clamp(first, last) - first,
    });
    clipped.filter(|share| share.start < share.stop).collect()
}

#[cfg(test)]
mod tests {
    use super::within;
    use crate::{BufferKind, DType, Kernel, Op, Program, RankBuilder, Share, Slice};
    use hocket_ids::{BufferId, Rank};

    /// Parts of a gradient would be left out, or land in another's place.
    #[test]
    fn parts_are_copied_together_and_apart() {
        let mut builder = RankBuilder::new();
        let bucket = builder.buffer("bucket", DType::F32, 8, BufferKind::Bound);
        builder.push(Op::Apply { kernel: Kernel::Scale(2.0), dst: Slice::new(bucket, 2, 6) }, None);
        let program = Program { ranks: vec![builder.finish()], ..Program::default() };
        let packed = program.packed(&[3, 0, 5]).unwrap();
        let rank = &packed.ranks[0];
        let kinds: Vec<_> = rank.buffers.iter().map(|each| (each.len, each.kind)).collect();
        assert_eq!(
            kinds,
            [
                (3, BufferKind::Bound),
                (0, BufferKind::Bound),
                (5, BufferKind::Bound),
                (8, BufferKind::Scratch)
            ]
        );
        let whole = BufferId(3);
        let written: Vec<_> = rank.nodes.iter().map(|node| node.op.writes()[0]).collect();
        assert_eq!(
            written,
            [
                Slice::new(whole, 0, 3),
                Slice::new(whole, 3, 8),
                Slice::new(whole, 2, 6),
                Slice::new(BufferId(0), 0, 3),
                Slice::new(BufferId(2), 0, 5)
            ]
        );
        assert_eq!(rank.nodes[2].after.len(), 2);
        assert!(program.packed(&[3, 4]).is_none());
    }

    /// A part's element would be taken from a rank that has another one.
    #[test]
    fn owners_own_of_each_part_what_they_own_of_the_whole() {
        let share = |owner, start, stop| Share { owner: Rank::from_index(owner), start, stop };
        let shares = [share(2, 0, 4), share(0, 4, 9)];
        assert_eq!(within(&shares, 0, 3), [share(2, 0, 3)]);
        assert_eq!(within(&shares, 3, 9), [share(2, 0, 1), share(0, 1, 6)]);
        assert_eq!(within(&shares, 4, 4), []);
    }
}
