//! ASTRA-sim's analytical backend on a ring (its regression configuration), which ours must agree with.
//!
//! What it computes, found from its figures and exact for all four: 1 MiB in 4 parts one after the other (its
//! `preferred-dataset-splits`), each a ring all-reduce of messages of m = 2²⁰ / 4n bytes; a message takes the link's 500 ns, m over
//! 50 GiB/s, and 10 ns at its endpoint; one that is reduced also three passes over memory at 50 GB/s; each part 10 ns more. All are
//! whole nanoseconds:
//!
//! T = 4 · (2(n − 1) · (500 + ⌊m / 53.687⌋ + 10) + (n − 1) · 3 · ⌊m / 50⌋ + 10)

use hocket_network::{Link, Network, Route};
use hocket_simulate::{Conditions, Costs, Graph, Job, Launch, Phase, Ring, simulate, to_s};

const BYTES: u64 = 1 << 20;
const SPLITS: u64 = 4;

fn ring_network(n: u32) -> Network {
    let links = (0..n).map(|rank| Link::new(format!("{rank}"), 400.0 * (1_u64 << 30) as f64));
    let route = |rank| Route { from: rank, to: (rank + 1) % n, links: vec![rank], latency_s: 510e-9 };
    Network::new((0..n).collect(), links.collect(), (0..n).map(route).collect()).expect("a ring is sound")
}

fn formula_ns(n: u64) -> u64 {
    let message = BYTES / SPLITS / n;
    let sent = 500 + (message as f64 / 53.687_091_2) as u64 + 10;
    SPLITS * (2 * (n - 1) * sent + (n - 1) * 3 * (message / 50) + 10)
}

/// Broken: predictions for large rings would differ from the field's reference.
#[test]
fn rings_take_as_long_as_astra_sim_says() {
    for (n, told_ns) in [(8, 117_780), (64, 356_620), (256, 1_140_400), (1024, 4_267_996)] {
        assert_eq!(formula_ns(u64::from(n)), told_ns);
        let network = ring_network(n);
        let costs = Costs { reduce_s_per_byte: 3.0 / 50e9, rendezvous: false, ..Costs::NONE };
        let ring = Ring::new(n, BYTES / SPLITS, &network, &costs).unwrap();
        let phase =
            Phase { launches: vec![Launch { graph: 0, priority: 0, after: vec![0] }], ..Phase::default() };
        let job = Job::of_phases(n as usize, &vec![phase; SPLITS as usize]).expect("times are for all ranks");
        let outcome =
            simulate(&network, &[&Graph::Ring(ring)], &job, false, &Conditions::default(), false).unwrap();
        let ours_ns = to_s(outcome.end) * 1e9;
        let off = ours_ns / told_ns as f64 - 1.0;
        assert!(off.abs() < 0.005, "{n} ranks: {ours_ns} ns, {off:+.4}");
        assert_eq!(outcome.messages, SPLITS * 2 * u64::from(n - 1) * u64::from(n));
    }
}
