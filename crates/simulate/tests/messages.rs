//! Traffic without programs: messages, their dependencies, and the gaps between.

use hocket_network::{Link, Network, Route};
use hocket_simulate::{
    Conditions, Costs, Error, Job, Launch, Outcome, Phase, Timed, from_s, simulate, timed, to_s,
};

const RATE: f64 = 1e6;

fn message(source: u32, destination: u32, bytes: u64, after: &[u32], gap_s: f64) -> Timed {
    Timed { source, destination, bytes, after: after.to_vec(), gap_s }
}

fn run(messages: &[Timed], world: u32) -> Result<Outcome, Error> {
    run_one_after_the_other(&[messages], world, 0.0)
}

/// Traffic that begins each second, on links with queues of this length.
fn run_one_after_the_other(traffic: &[&[Timed]], world: u32, queue_s: f64) -> Result<Outcome, Error> {
    let link = |name: String| Link { queue_s, ..Link::new(name, 8.0 * RATE) };
    let links = (0..2 * world).map(|at| link(format!("link {at}"))).collect();
    let pairs = (0..world).flat_map(|from| (0..world).map(move |to| (from, to))).filter(|(a, b)| a != b);
    let routes: Vec<Route> = pairs
        .map(|(from, to)| Route { from, to, links: vec![2 * from, 2 * to + 1], latency_s: 0.0 })
        .collect();
    let network = Network::new(vec![0; world as usize], links, routes)?;
    let graphs = traffic
        .iter()
        .map(|messages| timed(world, messages, &[], &network, &Costs::NONE))
        .collect::<Result<Vec<_>, _>>()?;
    let launches = (0..graphs.len())
        .map(|graph| Launch { graph, priority: 0, after: vec![from_s(graph as f64)] })
        .collect();
    let job = Job::of_phases(world as usize, &[Phase { launches, ..Phase::default() }])
        .expect("times are for all ranks");
    simulate(&network, &graphs.iter().collect::<Vec<_>>(), &job, true, &Conditions::default(), true)
}

/// Broken: exchanges whose receives come one after the other would seem to lose nothing to full links.
#[test]
fn a_receivers_word_waits_behind_what_its_link_has_not_passed_on() {
    // Rank 0 sends 2 MB at 1 MB/s; after a second, its announcement to rank 1 is behind the remaining megabyte.
    let busy = [message(0, 2, 2_000_000, &[], 0.0)];
    let answered = [message(1, 0, 500_000, &[], 0.0)];
    for (queue_s, end_s) in [(0.0, 1.5), (0.25, 1.75), (0.75, 2.25), (5.0, 2.5)] {
        let outcome = run_one_after_the_other(&[&busy, &answered], 3, queue_s).unwrap();
        let end = outcome.launches[1].end;
        assert!((to_s(end) - end_s).abs() < 1e-9, "{queue_s}: {}", to_s(end));
    }
    // Two senders meet at rank 2: their bytes lie in front of its link, not of their own, which the announcement of one
    // crosses.
    let elsewhere = [message(0, 2, 2_000_000, &[], 0.0), message(3, 2, 2_000_000, &[], 0.0)];
    let outcome = run_one_after_the_other(&[&elsewhere, &answered], 4, 5.0).unwrap();
    assert!((to_s(outcome.launches[1].end) - 1.5).abs() < 1e-9, "{}", to_s(outcome.launches[1].end));
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
