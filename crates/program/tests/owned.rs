//! Programs over owners: proven for any shares, stations and ranks that do not train, and refused when anything is
//! missing.

#![expect(clippy::expect_used, reason = "a test")]

use hocket_ids::Rank;
use hocket_program::passes::{Codec, Options, compile};
use hocket_program::verify::{Proofs, halves, verify};
use hocket_program::{Contract, DType, Direction, Exchanged, Op, Owned, Program, ReduceOp, Via};
use proptest::prelude::*;
use std::sync::Arc;

fn what(elements: usize) -> Exchanged {
    Exchanged { elements, dtype: DType::F32, op: ReduceOp::Sum, scale: 0.25 }
}

/// Stations of workers, ranks that only own, ranks with no part in it, the direction and shares.
fn routes() -> impl Strategy<Value = (Owned, usize)> {
    let stations = prop::collection::vec(1_u32..4, 1..4);
    let units = prop::collection::vec(0_u32..4, 12);
    (stations, 0_usize..3, 0_usize..2, 0_usize..3, units).prop_map(|(sizes, helpers, idle, via, units)| {
        let workers = sizes.iter().sum::<u32>() as usize;
        let (via, helpers) = match via {
            0 => (Via::Direct, helpers),
            1 => (Via::Stations(sizes), helpers),
            _ => (Via::Ring, 0),
        };
        let share = |member: usize| if via == Via::Ring { 2 } else { units[member] };
        let mut shares: Vec<u32> = (0..workers + helpers).map(share).collect();
        if shares.iter().all(|&share| share == 0) {
            shares[0] = 1;
        }
        let world = shares.len() + idle;
        (Owned { shares, workers, via }, world)
    })
}

fn program(owned: &Owned, world: usize, direction: Direction, elements: usize, options: &Options) -> Program {
    let built = Program::owned("bucket".into(), world, owned, direction, what(elements)).expect("it fits");
    compile(&built, options).expect("it compiles")
}

/// Physical ranks in another order than logical ones, and chunks.
fn options(world: usize, chunk_bytes: usize) -> Options {
    let order = (0..world).map(|rank| Rank::from_index((rank + 1) % world)).collect();
    Options { order: Some(order), chunk_bytes, codec: None }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Broken: a bucket over owners would lose or double a gradient, deadlock, or leave replicas that differ.
    #[test]
    fn both_directions_and_each_half_are_proven((owned, world) in routes(), elements in 0_usize..40, chunk_bytes in 4_usize..64) {
        let options = options(world, chunk_bytes);
        let program = |direction| program(&owned, world, direction, elements, &options);
        prop_assert_eq!(verify(&program(Direction::Both)), vec![]);
        let (to, from) = (program(Direction::ToOwners), program(Direction::FromOwners));
        prop_assert_eq!(verify(&to), vec![]);
        prop_assert_eq!(verify(&from), vec![]);
        prop_assert_eq!(halves(&to, &from), vec![]);
    }

    /// Broken: a lost message, or a rank that adds an owner's uninitialised memory, would not be found.
    #[test]
    fn what_is_missing_or_too_much_is_found((owned, world) in routes(), direction in 0_usize..3, at in any::<prop::sample::Index>()) {
        let direction = [Direction::Both, Direction::ToOwners, Direction::FromOwners][direction];
        let mut program = program(&owned, world, direction, 24, &options(world, 1 << 20));
        let receives: Vec<(usize, usize)> = program.ranks.iter().enumerate().flat_map(|(rank, ops)| {
            let ops = ops.nodes.iter().enumerate();
            ops.filter(|(_, node)| matches!(node.op, Op::Recv { .. })).map(move |(op, _)| (rank, op))
        }).collect();
        prop_assume!(!receives.is_empty());
        let (rank, op) = receives[at.index(receives.len())];
        if let Op::Recv { reduce, .. } = &mut program.ranks[rank].nodes[op].op {
            *reduce = if reduce.is_some() { None } else { Some(ReduceOp::Sum) };
        }
        prop_assert!(!verify(&program).is_empty());
    }

    /// Broken: every bucket of a job would be proven by itself: seconds at the start.
    #[test]
    fn buckets_of_other_lengths_share_a_proof((owned, world) in routes(), times in 2_usize..9) {
        // Lengths that shares divide: all edges stay in their order.
        let even = owned.even_elements();
        for direction in [Direction::Both, Direction::ToOwners, Direction::FromOwners] {
            let mut proofs = Proofs::default();
            for elements in [even * 12, even * 12 * times] {
                let program = program(&owned, world, direction, elements, &options(world, 1 << 20));
                prop_assert_eq!(proofs.verify(&Arc::new(program)), vec![]);
            }
            prop_assert_eq!(proofs.shared, 1);
        }
    }

    /// Broken: a half that is rounded on links would leave owners with sums that differ from their contract.
    #[test]
    fn gradients_may_be_rounded_on_their_way((owned, world) in routes(), elements in 1_usize..40) {
        let links = (0..world as u32).flat_map(|from| (0..world as u32).map(move |to| (Rank(from), Rank(to)))).collect();
        let options = Options { codec: Some(Codec { dtype: DType::F16, links }), ..options(world, 1 << 20) };
        prop_assert_eq!(verify(&program(&owned, world, Direction::Both, elements, &options)), vec![]);
        prop_assert_eq!(verify(&program(&owned, world, Direction::ToOwners, elements, &options)), vec![]);
    }
}

/// Broken: owners would send values of parts whose gradients they never received.
#[test]
fn halves_of_other_owners_do_not_fit() {
    let options = options(3, 64);
    let half = |shares: &[u32], direction, elements| {
        let owned = Owned { shares: shares.to_vec(), workers: 2, via: Via::Direct };
        program(&owned, 3, direction, elements, &options)
    };
    let to = half(&[1, 1, 0], Direction::ToOwners, 8);
    let says = |from: &Program| halves(&to, from).first().map(|found| found.what.clone()).unwrap_or_default();
    assert_eq!(says(&half(&[1, 1, 0], Direction::FromOwners, 8)), "");
    let other = says(&half(&[1, 3, 0], Direction::FromOwners, 8));
    assert!(other.ends_with("rank 1 is brought elements 0..4, and 0..2 are taken from rank 1"), "{other}");
    assert!(says(&half(&[1, 1, 0], Direction::FromOwners, 10)).contains("elements 0..4, and 0..5"));
    assert!(says(&half(&[1, 1, 0], Direction::Both, 8)).contains("does not promise what owners have"));
}

/// Broken: a contract that leaves elements without an owner would hold of a program that loses them.
#[test]
fn every_element_has_one_owner() {
    let owned = Owned { shares: vec![1, 1], workers: 2, via: Via::Direct };
    let mut program = program(&owned, 2, Direction::ToOwners, 8, &options(2, 64));
    if let Contract::ToOwners { shares, .. } = &mut program.ensures[0] {
        shares[1].stop = 7;
    }
    let found = verify(&program);
    assert!(found[0].what.contains("the owner of element 7 is not known"), "{found:?}");
}
