//! Networks and jobs that several tests need.

use hocket_network::{Link, Network, Route};
use hocket_simulate::{Conditions, Costs, Error, Graph, Job, Launch, Outcome, Phase, simulate};

/// Ranks on these hosts, each with its own link out and in, at `bytes_per_s`; any rank to any other.
pub fn star(hosts: Vec<u32>, bytes_per_s: f64, latency_s: f64) -> Network {
    let ranks = hosts.len() as u32;
    let link = |name: String| Link::new(name, 8.0 * bytes_per_s);
    let links = (0..ranks).flat_map(|rank| [link(format!("{rank} out")), link(format!("{rank} in"))]);
    let pairs = (0..ranks).flat_map(|a| (0..ranks).filter(move |b| *b != a).map(move |b| (a, b)));
    let route = |(from, to)| Route { from, to, links: vec![2 * from, 2 * to + 1], latency_s };
    Network::new(hosts, links.collect(), pairs.map(route).collect()).expect("a star is sound")
}

/// One graph alone.
pub fn run(
    network: &Network,
    graph: &Graph,
    costs: &Costs,
    conditions: &Conditions,
) -> Result<Outcome, Error> {
    let launches = vec![Launch { graph: 0, priority: 0, after: vec![0] }];
    let job = Job::of_phases(graph.world(), &[Phase { launches, ..Phase::default() }])
        .expect("times are for all ranks");
    simulate(network, &[graph], &job, costs.rendezvous, conditions, false)
}
