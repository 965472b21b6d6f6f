//! Whole programs in virtual time: bytes are conserved, runs repeat, faster is never slower, and jobs that cannot end
//! are explained.

mod support;

use hocket_ids::{BufferId, Rank};
use hocket_program::passes;
use hocket_program::{Algorithm, BufferKind, Collective, DType, Op, Program, RankBuilder, ReduceOp, Slice};
use hocket_simulate::{
    Act, CapacityChange, Conditions, Costs, Error, Graph, Job, Launch, Phase, Ring, Started, compile,
    simulate, to_s,
};
use proptest::prelude::*;
use support::{run, star};

fn all_reduce(world: usize, elements: usize, algorithm: &Algorithm, chunk_bytes: usize) -> Program {
    let rank = || {
        let mut builder = RankBuilder::new();
        builder.buffer("bucket", DType::F32, elements, BufferKind::Bound);
        let op = Op::Collective {
            what: Collective::AllReduce,
            slice: Slice::new(BufferId(0), 0, elements),
            group: (0..world).map(Rank::from_index).collect(),
            op: ReduceOp::Sum,
            scale: 1.0 / world as f64,
            algorithm: Some(algorithm.clone()),
        };
        builder.push(op, None);
        builder.finish()
    };
    let ranks = (0..world).map(|_| rank()).collect();
    let program = Program { name: "all_reduce".into(), ranks, ..Program::default() };
    let options = passes::Options { order: None, chunk_bytes, codec: None };
    passes::compile(&program, &options).expect("compiles")
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::Ring),
        Just(Algorithm::Direct),
        Just(Algorithm::HalvingDoubling),
        Just(Algorithm::DoubleBinaryTree),
        Just(Algorithm::ParameterServer { servers: 2 }),
    ]
}

const COSTS: Costs = Costs {
    send_s: 20e-6,
    receive_s: 20e-6,
    reduce_s_per_byte: 0.12e-9,
    cast_s_per_byte: 0.1e-9,
    copy_s_per_byte: 0.1e-9,
    socket_s_per_byte: 0.35e-9,
    rendezvous: true,
    bus: None,
};

fn sent_bytes(program: &Program) -> f64 {
    let nodes = program.ranks.iter().flat_map(|rank| &rank.nodes);
    let bytes = nodes.map(|node| match &node.op {
        Op::Send { src, wire, .. } => src.len() * wire.bytes(),
        _ => 0,
    });
    bytes.sum::<usize>() as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Broken: time would pass without bytes moving, or bytes be lost; the same command would give two results; a
    /// better network would be predicted slower.
    #[test]
    fn bytes_are_conserved_runs_are_equal_and_faster_is_not_slower(
        world in 2_usize..9,
        elements in 1_usize..300_000,
        algorithm in algorithms(),
        rendezvous: bool,
        seed: u64,
    ) {
        let program = all_reduce(world, elements, &algorithm, 65_536);
        let costs = Costs { rendezvous, ..COSTS };
        let go = |bytes_per_s, jitter| {
            let network = star((0..world as u32).collect(), bytes_per_s, 50e-6);
            let graph = compile(&program, &network, &costs).expect("compiles");
            run(&network, &graph, &costs, &Conditions { seed, jitter, ..Conditions::default() }).expect("ends")
        };
        let slow = go(12.5e6, 0.0);
        let crossed: f64 = slow.link_bytes.iter().sum();
        // Each byte crosses the sender's link and the receiver's.
        let sent = sent_bytes(&program);
        prop_assert!((crossed - 2.0 * sent).abs() <= 1e-6 * sent.max(1.0), "{crossed} of {sent}");
        // No link carries more than its rate lets it.
        for bytes in &slow.link_bytes {
            prop_assert!(*bytes <= 12.5e6 * to_s(slow.end) * (1.0 + 1e-9));
        }
        let (jittered, again) = (go(12.5e6, 0.2), go(12.5e6, 0.2));
        prop_assert_eq!(&jittered.phase_ends, &again.phase_ends);
        if matches!(algorithm, Algorithm::Ring) {
            prop_assert!(go(25e6, 0.0).end <= slow.end);
        }
    }
}

/// Broken: the compact form of a ring, which large worlds use, would not be the ring that programs run.
#[test]
fn the_computed_ring_takes_as_long_as_the_lowered_one() {
    let costs = Costs { rendezvous: false, ..Costs::NONE };
    for world in [2, 3, 8] {
        let network = star(vec![0; world as usize], 125e6, 10e-6);
        let program = all_reduce(world as usize, 240_000, &Algorithm::Ring, usize::MAX);
        let listed =
            run(&network, &compile(&program, &network, &costs).unwrap(), &costs, &Conditions::default());
        let ring = Ring::new(world, 960_000, &network, &costs).unwrap();
        let computed = run(&network, &Graph::Ring(ring), &costs, &Conditions::default()).unwrap();
        let listed = listed.unwrap();
        assert_eq!((listed.end, listed.messages), (computed.end, computed.messages));
    }
}

/// Broken: two buckets on one link would each be predicted as if the other did not exist.
#[test]
fn launches_in_flight_share_links_and_urgent_ones_go_first() {
    let network = star(vec![0; 2], 100.0, 0.0);
    let program = one_message();
    let graph = compile(&program, &network, &Costs::NONE).unwrap();
    let launch = |priority, after| Launch { graph: 0, priority, after: vec![after] };
    // A lax one of 10 s starts at once; an urgent one 4 s later overtakes it.
    let launches = vec![launch(1, 0), launch(0, 4_000_000_000_000)];
    let job = Job::of_phases(2, &[Phase { launches, ..Phase::default() }]).expect("times are for all ranks");
    let outcome = simulate(&network, &[&graph], &job, true, &Conditions::default(), true).unwrap();
    let ends: Vec<f64> = outcome.launches.iter().map(|span| to_s(span.end)).collect();
    assert_eq!(ends, [20.0, 14.0]);
    assert_eq!(outcome.records[1].len(), 2);
}

/// Broken: communication that outlasts an iteration could not be predicted, and delays would seem to gain nothing.
#[test]
fn a_launch_may_outlast_its_phase() {
    let network = star(vec![0; 2], 100.0, 0.0);
    let program = one_message();
    let graph = compile(&program, &network, &Costs::NONE).unwrap();
    // Each launch takes 10 s; an iteration computes for 8 s, launches, and waits for the launch before.
    let second = 1_000_000_000_000;
    let mut acts = Vec::new();
    for launch in 0..5_u32 {
        acts.extend([Act::Compute(8 * second), Act::Launch(launch)]);
        acts.extend(launch.checked_sub(1).map(Act::Wait));
        acts.push(Act::End);
    }
    let launches = vec![Started { graph: 0, priority: 0 }; 5];
    let job = Job { world: 2, launches, timelines: vec![acts] };
    let outcome = simulate(&network, &[&graph], &job, true, &Conditions::default(), false).unwrap();
    let ends: Vec<f64> = outcome.phase_ends.iter().map(|ends| to_s(ends[0])).collect();
    assert_eq!(ends, [8.0, 18.0, 28.0, 38.0, 48.0]);
    assert_eq!(outcome.launches[4].end, 58 * second);
}

/// Broken: phases would be another model than the timelines that they stand for, or ranks of their own pace be confused.
#[test]
fn phases_are_timelines() {
    let phase = Phase {
        launches: vec![
            Launch { graph: 0, priority: 1, after: vec![5, 7] },
            Launch { graph: 0, priority: 0, after: vec![3] },
        ],
        busy: vec![4, 9],
        tail: vec![2],
    };
    let job = Job::of_phases(2, &[phase.clone(), phase]).expect("times are for all ranks, or for each");
    let acts = |first: u32, times: [u64; 3]| {
        let [two, one, rest] = times.map(Act::Compute);
        let waits = [Act::Wait(first), Act::Wait(first + 1)];
        let start = [two, Act::Launch(first + 1), one, Act::Launch(first), rest];
        [&start[..], &waits, &[Act::Compute(2), Act::End]].concat()
    };
    assert_eq!(job.timelines[0], [acts(0, [3, 2, 0]), acts(2, [3, 2, 0])].concat());
    assert_eq!(job.timelines[1], [acts(0, [3, 4, 2]), acts(2, [3, 4, 2])].concat());
    assert!(Job::of_phases(3, &[Phase { busy: vec![1, 2], ..Phase::default() }]).is_err());
}

/// Broken: a job that cannot end would run for ever, or end in the middle of a panic.
/// Broken: jobs with ranks that train nothing could not be predicted, or would be as slow as if all trained.
#[test]
fn a_program_may_be_of_the_first_ranks_alone() {
    let [few, all] = [3, 5].map(|world| all_reduce(world, 100_000, &Algorithm::Ring, 1 << 20));
    let network = star(vec![0; 5], 12.5e6, 50e-6);
    let graphs =
        [&few, &all].map(|program| compile(program, &network, &COSTS).expect("all routes are there"));
    let job = |graph| Job {
        world: 5,
        launches: vec![Started { graph, priority: 0 }],
        timelines: vec![vec![Act::Launch(0), Act::Wait(0), Act::End]],
    };
    let graphs: Vec<&Graph> = graphs.iter().collect();
    let go = |job: &Job| {
        simulate(&network, &graphs, job, true, &Conditions::default(), false).expect("the job ends")
    };
    let (found, whole) = (go(&job(0)), go(&job(1)));
    // Those without a part wait for nobody.
    assert_eq!(found.phase_ends[0][3..], [0, 0]);
    assert_eq!((found.messages, whole.messages), (12, 40));
    assert!(found.end > 0 && found.end < whole.end);
    let beyond = Job { world: 4, ..job(1) };
    let refused = simulate(&network, &graphs, &beyond, true, &Conditions::default(), false);
    assert!(matches!(refused, Err(Error::Job { .. })), "{refused:?}");
}

#[test]
fn timelines_that_do_not_fit_are_refused() {
    let network = star(vec![0; 2], 100.0, 0.0);
    let graph = compile(&one_message(), &network, &Costs::NONE).unwrap();
    let refused = |timelines: Vec<Vec<Act>>| {
        let job = Job { world: 2, launches: vec![Started { graph: 0, priority: 0 }], timelines };
        simulate(&network, &[&graph], &job, true, &Conditions::default(), false).unwrap_err().to_string()
    };
    let (start, wait) = (Act::Launch(0), Act::Wait(0));
    assert!(refused(vec![vec![]]).contains("never starts launch 0"));
    assert!(refused(vec![vec![start, start]]).contains("starts launch 0 twice"));
    assert!(refused(vec![vec![start, Act::Launch(1)]]).contains("launch 1"));
    assert!(refused(vec![vec![wait, start]]).contains("has not started"));
    assert!(refused(vec![vec![start]; 3]).contains("3 timelines"));
    assert!(refused(vec![vec![start, Act::End], vec![start]]).contains("rank 1 has 0 phases"));
}

fn one_message() -> Program {
    use hocket_ids::Tag;
    let mut ranks = Vec::new();
    for own in 0..2_u32 {
        let mut builder = RankBuilder::new();
        let buffer = builder.buffer("x", DType::U8, 1000, BufferKind::Bound);
        let (slice, wire, tag) = (Slice::new(buffer, 0, 1000), DType::U8, Tag(0));
        builder.push(
            if own == 0 {
                Op::Send { src: slice, wire, peer: Rank(1), tag, count: None }
            } else {
                Op::Recv { dst: slice, wire, reduce: None, peer: Rank(0), tag, count: None }
            },
            None,
        );
        ranks.push(builder.finish());
    }
    Program { name: "one".into(), ranks, ..Program::default() }
}

/// Broken: a slow rank would not slow the others down.
#[test]
fn stragglers_and_failed_links_show() {
    let network = star(vec![0; 4], 1e9, 10e-6);
    let program = all_reduce(4, 10_000, &Algorithm::Ring, 65_536);
    let go = |conditions: &Conditions| {
        run(&network, &compile(&program, &network, &COSTS).unwrap(), &COSTS, conditions)
    };
    let even = go(&Conditions::default()).unwrap();
    let slow = go(&Conditions { slow: vec![(2, 10.0)], ..Conditions::default() }).unwrap();
    assert!(slow.end > even.end * 2);
    let failed = CapacityChange { at_s: to_s(even.end) / 2.0, link: 4, bit_per_s: 0.0 };
    let stuck = go(&Conditions { changes: vec![failed], ..Conditions::default() });
    let Err(Error::Stuck { ranks, what, .. }) = stuck else { panic!("{stuck:?}") };
    assert!(!ranks.is_empty());
    assert!(what.contains("rank 2's message does not move"), "{what}");
}

/// Broken: a job that hangs for ever would be reported as one that has ended.
#[test]
fn a_circle_of_waits_is_told_with_its_ops() {
    let mut program = one_message();
    // Both ranks now receive first and then send.
    let mut second = one_message();
    second.ranks.swap(0, 1);
    for rank in 0..2_usize {
        let mut builder = RankBuilder::with_buffers(&program.ranks[rank]);
        let mut ops: Vec<Op> =
            [&program, &second].iter().map(|p| p.ranks[rank].nodes[0].op.clone()).collect();
        for op in &mut ops {
            if let Op::Send { peer, .. } | Op::Recv { peer, .. } = op {
                *peer = Rank(1 - rank as u32);
            }
        }
        ops.sort_by_key(|op| matches!(op, Op::Send { .. }));
        let first = builder.push(ops.remove(0), None);
        builder.push_after(ops.remove(0), &[first], None);
        second.ranks[rank] = builder.finish();
    }
    program = second;
    for rendezvous in [true, false] {
        let costs = Costs { rendezvous, ..Costs::NONE };
        let network = star(vec![0; 2], 1e6, 0.0);
        let stuck =
            run(&network, &compile(&program, &network, &costs).unwrap(), &costs, &Conditions::default());
        let Err(Error::Stuck { ranks, what, .. }) = stuck else { panic!("{stuck:?}") };
        assert_eq!(ranks, [0, 1]);
        assert!(what.contains("waits in a circle: rank 0 op 0 of `one` (recv from rank 1)"), "{what}");
    }
}

/// Broken: ranks that disagree about a message would be simulated as if they did not.
#[test]
fn ranks_that_diverge_are_refused_at_the_first_op_that_does() {
    let network = star(vec![0; 2], 1e6, 0.0);
    let told = |change: fn(&mut Program)| {
        let mut program = one_message();
        change(&mut program);
        compile(&program, &network, &Costs::NONE).expect_err("it diverges").to_string()
    };
    let missing = told(|program| program.ranks[0].nodes.clear());
    assert_eq!(missing, "program `one`: rank 1 op 0: receives tag 0 from rank 0, which never sends it");
    let sizes = told(|program| {
        if let Op::Send { src, .. } = &mut program.ranks[0].nodes[0].op {
            src.stop = 500;
        }
    });
    assert_eq!(
        sizes,
        "program `one`: rank 0 op 0: rank 0 sends 500 bytes, rank 1 receives 1000 (tag 0) (and 1 more)"
    );
    let unknown = told(|program| {
        for rank in &mut program.ranks {
            rank.nodes[0].op = Op::Collective {
                what: Collective::AllReduce,
                slice: Slice::new(BufferId(0), 0, 1000),
                group: vec![Rank(0), Rank(1)],
                op: ReduceOp::Sum,
                scale: 1.0,
                algorithm: None,
            };
        }
    });
    assert_eq!(
        unknown,
        "program `one`: rank 0 op 0: collective `all_reduce` is unknown to the simulator: it has no algorithm"
    );
}
