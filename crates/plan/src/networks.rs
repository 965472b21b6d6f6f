//! Networks of the tests, with a rank on each host.

use hocket_network::{Link, Network, Route};

/// Links with these rates, and a path for each ordered pair.
pub fn network(world: u32, rates: &[f64], latency_s: f64, path: impl Fn(u32, u32) -> Vec<u32>) -> Network {
    let links = rates.iter().map(|&rate| Link::new("", rate)).collect();
    let pairs = (0..world).flat_map(|from| (0..world).map(move |to| (from, to)));
    let route = |(from, to)| Route { from, to, links: path(from, to), latency_s };
    let routes = pairs.filter(|(from, to)| from != to).map(route).collect();
    Network::new((0..world).collect(), links, routes).expect("a network")
}

/// Each host's card, out and in, and each rack's trunk, out and in.
pub fn in_racks(cards: &[f64], racks: &[u32], trunks: &[f64], latency_s: f64) -> Network {
    let world = cards.len() as u32;
    let rates: Vec<f64> = cards.iter().chain(trunks).flat_map(|&rate| [rate, rate]).collect();
    network(world, &rates, latency_s, |from, to| {
        let (out, into) = (racks[from as usize], racks[to as usize]);
        let mut path = vec![2 * from];
        if out != into {
            path.extend([2 * (world + out), 2 * (world + into) + 1]);
        }
        path.push(2 * to + 1);
        path
    })
}
