//! Messages per second of one core: `cargo run --release --example speed`.
#![expect(clippy::print_stdout, reason = "an example's output")]

use hocket_network::{Link, Network, Route};
use hocket_simulate::{Conditions, Costs, Graph, Job, Launch, Phase, Ring, simulate, to_s};
use std::time::Instant;

fn main() {
    for (n, jitter) in [(256, 0.0), (1024, 0.0), (256, 0.1), (1024, 0.1)] {
        let links = (0..n).map(|r| Link::new(format!("{r}"), 400.0 * f64::from(1 << 30)));
        let route = |r| Route { from: r, to: (r + 1) % n, links: vec![r], latency_s: 510e-9 };
        let network =
            Network::new((0..n).collect(), links.collect(), (0..n).map(route).collect()).expect("sound");
        let costs = Costs { reduce_s_per_byte: 3.0 / 50e9, rendezvous: false, ..Costs::NONE };
        let ring = Ring::new(n, 1 << 18, &network, &costs).expect("sound");
        let phase =
            Phase { launches: vec![Launch { graph: 0, priority: 0, after: vec![0] }], ..Phase::default() };
        let job = Job::of_phases(n as usize, &vec![phase; 4]).expect("times are for all ranks");
        let conditions = Conditions { jitter, ..Conditions::default() };
        let began = Instant::now();
        let outcome =
            simulate(&network, &[&Graph::Ring(ring)], &job, false, &conditions, false).expect("ends");
        let took = began.elapsed().as_secs_f64();
        println!(
            "{n} ranks, jitter {jitter}: {} messages, {} events, {:.0} ns virtual, {took:.3} s, {:.2} M messages/s",
            outcome.messages,
            outcome.events,
            to_s(outcome.end) * 1e9,
            outcome.messages as f64 / took / 1e6
        );
    }
}
