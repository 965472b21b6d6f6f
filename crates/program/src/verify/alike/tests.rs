//! One fault in one rank of a program that resembles a proven one is found as if nothing were shared.

use super::*;
use crate::verify::verify;
use crate::{Algorithm, BufferKind, Collective, DType, Kernel, RankBuilder, Record, ReduceOp, Space, passes};
use hocket_ids::{BufferId, Rank, Tag};
use proptest::prelude::*;

fn all_reduce(world: usize, elements: usize, algorithm: &Algorithm, chunk_bytes: usize) -> Arc<Program> {
    let group: Vec<Rank> = (0..world).map(Rank::from_index).collect();
    let slice = Slice::new(BufferId(0), 0, elements);
    let (op, scale) = (ReduceOp::Sum, 0.5);
    let rank = || {
        let mut builder = RankBuilder::new();
        builder.buffer("bucket", DType::F32, elements, BufferKind::Bound);
        builder.push(Op::Record { what: Record::NonFinite, src: slice }, None);
        let (group, algorithm) = (group.clone(), Some(algorithm.clone()));
        builder
            .push(Op::Collective { what: Collective::AllReduce, slice, group, op, scale, algorithm }, None);
        builder.finish()
    };
    let ensures = vec![Contract::AllReduce { buffer: BufferId(0), group: group.clone(), op, scale }];
    let ranks = (0..world).map(|_| rank()).collect();
    let program = Program { name: "all_reduce".into(), ranks, ensures, ..Program::default() };
    let options = passes::Options { order: None, chunk_bytes, codec: None };
    Arc::new(passes::compile(&program, &options).expect("compiles"))
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let named = ["ring", "halving_doubling", "double_binary_tree", "direct"];
    prop::sample::select(named.to_vec()).prop_map(|name| Algorithm::new(name, Vec::new()).expect("is listed"))
}

/// Breaks one thing of one op of one rank, or of the whole; the result may still be right.
fn broken(program: &Program, rank: usize, op: usize, how: usize) -> Program {
    let mut broken = program.clone();
    let rank = rank % broken.world();
    let op = op % broken.ranks[rank].nodes.len();
    let world = broken.world() as u32;
    let (node, buffers) = {
        let ops = &mut broken.ranks[rank];
        (&mut ops.nodes[op], &mut ops.buffers)
    };
    match (how % 10, &mut node.op) {
        (0, _) => {
            node.after.pop();
        }
        (1, Op::Send { src: slice, .. } | Op::Recv { dst: slice, .. } | Op::Apply { dst: slice, .. }) => {
            slice.start += usize::from(slice.start < slice.stop);
        }
        (2, Op::Send { src: slice, .. } | Op::Recv { dst: slice, .. } | Op::Apply { dst: slice, .. }) => {
            slice.stop -= usize::from(slice.start < slice.stop);
        }
        (3, Op::Send { tag, .. } | Op::Recv { tag, .. }) => *tag = Tag(tag.0 + 1),
        (4, Op::Send { peer, .. } | Op::Recv { peer, .. }) => *peer = Rank((peer.0 + 1) % world),
        (5, Op::Recv { reduce, .. }) => *reduce = reduce.is_none().then_some(ReduceOp::Sum),
        (5, Op::Apply { kernel, .. }) => *kernel = Kernel::Scale(0.25),
        (6, Op::Send { wire, .. } | Op::Recv { wire, .. }) => *wire = DType::F16,
        (7, op) => *op = Op::Record { what: Record::NonFinite, src: Slice::new(BufferId(0), 0, 0) },
        (8, _) => buffers[0].kind = BufferKind::Scratch,
        (9, _) => buffers[0].space = Space::Device,
        _ => broken.ensures = vec![],
    }
    broken
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A bucket of another length, or one that an injected fault broke on one rank, would run unproven.
    #[test]
    fn sharing_finds_what_the_verifier_finds(
        world in 2usize..6,
        lens in (1usize..120, 1usize..120),
        algorithms in (algorithms(), algorithms()),
        chunks in (prop::sample::select(vec![16usize, 64, 1024]), prop::sample::select(vec![16usize, 64, 1024])),
        fault in prop::option::of((0usize..8, 0usize..64, 0usize..10)),
        near in any::<bool>(),
    ) {
        let proven = all_reduce(world, lens.0, &algorithms.0, chunks.0);
        // Near: equal but for the length, and one rank's fault.
        let (algorithm, chunk) = if near { (&algorithms.0, chunks.0) } else { (&algorithms.1, chunks.1) };
        let other = all_reduce(world, lens.1, algorithm, chunk);
        let other = fault.map_or(other.clone(), |(rank, op, how)| Arc::new(broken(&other, rank, op, how)));
        let mut proofs = Proofs::default();
        prop_assert_eq!(proofs.verify(&proven), vec![]);
        prop_assert_eq!(proofs.verify(&other), verify(&other));
        // A shared proof is not taken for a proof of its own; a refused program is refused again.
        prop_assert_eq!(proofs.verify(&other), verify(&other));
    }
}

/// Nothing would be shared, and buckets would be verified one by one.
#[test]
fn buckets_of_other_lengths_share_a_proof() {
    let mut proofs = Proofs::default();
    for elements in 64..80 {
        assert_eq!(proofs.verify(&all_reduce(4, elements, &Algorithm::Ring, 1024)), vec![]);
    }
    assert_eq!(proofs.shared, 15);
}

/// Lengths at which edges coincide in one program alone are other programs: parts are empty.
#[test]
fn a_bucket_with_fewer_elements_than_ranks_is_proven_by_itself() {
    let mut proofs = Proofs::default();
    for elements in [3, 64] {
        assert_eq!(proofs.verify(&all_reduce(4, elements, &Algorithm::Ring, 1024)), vec![]);
    }
    assert_eq!(proofs.shared, 0);
}

/// Values that move to other positions, or parts that no op names, would be taken for those of the other length.
#[test]
fn what_is_not_pointwise_is_proven_by_itself() {
    let moving = |elements: usize| {
        let mut builder = RankBuilder::new();
        let (from, to) = (Slice::new(BufferId(0), 0, elements), Slice::new(BufferId(1), 1, elements + 1));
        builder.buffer("from", DType::F32, elements, BufferKind::Bound);
        builder.buffer("to", DType::F32, elements + 1, BufferKind::Bound);
        builder.push(Op::Copy { src: from, dst: to }, None);
        Arc::new(Program { ranks: vec![builder.finish()], ..Program::default() })
    };
    let in_place = |elements: usize| all_reduce(2, elements, &Algorithm::InPlace, 1024);
    let mut proofs = Proofs::default();
    for program in [moving(8), moving(9), in_place(8), in_place(9)] {
        assert_eq!(proofs.verify(&program), vec![]);
    }
    assert_eq!(proofs.shared, 0);
}
