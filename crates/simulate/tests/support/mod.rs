//! Networks and jobs that several tests need.

use hocket_simulate::{
    Conditions, Costs, Error, Graph, Job, Launch, Link, Network, Outcome, Phase, Route, simulate,
};

/// Each rank's own link out and in, at `bytes_per_s`; any rank to any other.
pub fn star(ranks: u32, bytes_per_s: f64, latency_s: f64) -> Network {
    let link = |name: String| Link::new(name, bytes_per_s);
    let links = (0..ranks).flat_map(|rank| [link(format!("{rank} out")), link(format!("{rank} in"))]);
    let pairs = (0..ranks).flat_map(|a| (0..ranks).filter(move |b| *b != a).map(move |b| (a, b)));
    let route = |(a, b)| Route { source: a, destination: b, links: vec![2 * a, 2 * b + 1], latency_s };
    Network::new(links.collect(), &pairs.map(route).collect::<Vec<_>>()).expect("a star is sound")
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
