//! Traffic without programs: messages, what they wait for, and the gaps between.

use hocket_simulate::{
    Conditions, Costs, Error, Job, Launch, Link, Network, Outcome, Phase, Route, Timed, simulate, timed, to_s,
};

const RATE: f64 = 1e6;

fn message(source: u32, destination: u32, bytes: u64, after: &[u32], gap_s: f64) -> Timed {
    Timed { source, destination, bytes, after: after.to_vec(), gap_s }
}

fn run(messages: &[Timed], world: u32) -> Result<Outcome, Error> {
    let link = |name: String| Link { name, bytes_per_s: RATE, burst_bytes: 0.0, incast: 1.0 };
    let links = (0..2 * world).map(|at| link(format!("link {at}"))).collect();
    let pairs = (0..world).flat_map(|from| (0..world).map(move |to| (from, to))).filter(|(a, b)| a != b);
    let routes: Vec<Route> = pairs
        .map(|(source, destination)| Route {
            source,
            destination,
            links: vec![2 * source, 2 * destination + 1],
            latency_s: 0.0,
        })
        .collect();
    let network = Network::new(links, &routes)?;
    let graph = timed(world, messages, &[], &network, &Costs::NONE)?;
    let launches = vec![Launch { graph: 0, priority: 0, after: vec![] }];
    let job = Job { world: world as usize, phases: vec![Phase { launches, ..Phase::default() }] };
    simulate(&network, &[&graph], &job, true, &Conditions::default(), true)
}

/// Broken: the gaps of a trace would add up where they passed at the same time, or not at all.
#[test]
fn gaps_and_bytes_take_their_time() {
    // 0.5 s, 1 MB at 1 MB/s, then an answer a quarter of a second later, and beside it a gap that ends at 2 s.
    let messages = [
        message(0, 1, 1_000_000, &[], 0.5),
        message(1, 0, 1_000_000, &[0], 0.25),
        message(1, 1, 0, &[], 2.0),
        message(1, 0, 500_000, &[2, 1], 0.0),
    ];
    let outcome = run(&messages, 2).unwrap();
    let ends: Vec<u64> = outcome.records[0]
        .iter()
        .filter(|record| record.kind == hocket_trace::Kind::Recv)
        .map(|record| record.end_ns)
        .collect();
    // Message 3 departs when message 1 has, at 1.75 s, and the moment has come, at 2 s; both share the wire until each is through.
    assert_eq!(ends, [2_750_000_000, 3_250_000_000]);
    assert!((to_s(outcome.end) - 3.25).abs() < 1e-9);
    assert_eq!(outcome.messages, 3);
}

/// Broken: a trace whose messages wait for each other in a circle would have an iteration time.
#[test]
fn circles_and_nonsense_are_refused() {
    let circle = [message(0, 1, 1, &[1], 0.0), message(1, 0, 1, &[0], 0.0)];
    assert!(matches!(run(&circle, 2), Err(Error::Stuck { .. })));
    for (wrong, said) in [
        (message(0, 2, 1, &[], 0.0), "goes from rank 0 to rank 2 of 2"),
        (message(0, 1, 1, &[], -1.0), "has a gap of -1 s"),
        (message(0, 1, 1, &[7], 0.0), "message 7, which does not exist"),
    ] {
        let told = run(&[wrong], 2).unwrap_err().to_string();
        assert!(told.contains(said), "{told}");
    }
    let foreign = [message(1, 2, 1, &[], 0.0), message(0, 1, 1, &[0], 0.0)];
    assert!(run(&foreign, 3).unwrap_err().to_string().contains("rank 0 knows nothing"));
}
