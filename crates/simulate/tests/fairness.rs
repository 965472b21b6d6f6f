//! Rates are max-min fair after any sequence of changes, whatever part of the network was inspected.

use hocket_network::{Link, Network, Route};
use hocket_simulate::Shares;
use proptest::prelude::*;

const SAME: f64 = 1e-6;

#[derive(Clone, Debug)]
enum Change {
    /// Adds a flow if it is absent, and removes it otherwise.
    Toggle(usize),
    Capacity(usize, f64),
    Solve,
}

fn network() -> impl Strategy<Value = Network> {
    let links = prop::collection::vec(1.0_f64..100.0, 2..12);
    links.prop_flat_map(|capacities| {
        let count = capacities.len();
        let path = prop::sample::subsequence((0..count as u32).collect::<Vec<_>>(), 1..=count.min(4));
        prop::collection::vec(path, 1..24).prop_map(move |paths| {
            let links = capacities.iter().enumerate();
            let links = links.map(|(at, &bytes_per_s)| Link {
                incast: if at.is_multiple_of(2) { 0.9 } else { 1.0 },
                ..Link::new(format!("{at}"), 8.0 * bytes_per_s)
            });
            let routes = paths.into_iter().enumerate().map(|(at, links)| Route {
                from: at as u32,
                to: at as u32 + 24,
                links,
                latency_s: 0.0,
            });
            Network::new(vec![0; 48], links.collect(), routes.collect()).expect("drawn soundly")
        })
    })
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        6 => any::<prop::sample::Index>().prop_map(|index| Change::Toggle(index.index(1 << 20))),
        1 => (any::<prop::sample::Index>(), 0.0_f64..100.0).prop_map(|(i, c)| Change::Capacity(i.index(1 << 20), c)),
        3 => Just(Change::Solve),
    ];
    prop::collection::vec(change, 1..80)
}

/// Every flow has a bottleneck: a full link on which no flow is faster; no link exceeds its rate.
fn check(network: &Network, shares: &Shares, active: &[bool], capacity: &[f64]) {
    let on = |link: u32| {
        (0..active.len() as u32).filter(move |&r| active[r as usize] && network.crossed(r).contains(&link))
    };
    // Half of the links lose where flows come together.
    let usable = |link: usize| {
        let flows = on(link as u32).count().max(1) as f64;
        capacity[link] * if link.is_multiple_of(2) { 0.9_f64.powf(flows.log2()) } else { 1.0 }
    };
    let load: Vec<f64> =
        (0..capacity.len() as u32).map(|link| on(link).map(|r| shares.rate(r)).sum()).collect();
    for (link, &sum) in load.iter().enumerate() {
        assert!(sum <= usable(link) * (1.0 + SAME) + SAME, "link {link} carries {sum} of {}", capacity[link]);
    }
    for route in (0..active.len() as u32).filter(|&route| active[route as usize]) {
        let has_bottleneck = network.crossed(route).iter().any(|&link| {
            let full = load[link as usize] >= usable(link as usize) * (1.0 - SAME) - SAME;
            full && on(link).all(|other| shares.rate(other) <= shares.rate(route) * (1.0 + SAME) + SAME)
        });
        assert!(has_bottleneck, "flow {route} at {} could be faster", shares.rate(route));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Broken: some flow would get more than its share of a link, and predictions would be wrong without a sign.
    #[test]
    fn rates_are_max_min_fair_after_any_changes(network in network(), changes in changes()) {
        let mut shares = Shares::new(&network);
        let mut active = vec![false; network.routes()];
        let links = (0..network.routes() as u32).flat_map(|r| network.crossed(r)).max().map_or(0, |&l| l as usize + 1);
        let mut capacity: Vec<f64> = (0..links).map(|link| network.link(link as u32).bytes_per_s()).collect();
        let mut rates = vec![0.0; network.routes()];
        let mut changed = Vec::new();
        for change in changes.iter().chain([&Change::Solve]) {
            match *change {
                Change::Toggle(at) => {
                    let route = at % active.len();
                    active[route] = !active[route];
                    if active[route] {
                        if shares.add(&network, route as u32) {
                            rates[route] = shares.rate(route as u32);
                        }
                    } else {
                        shares.remove(&network, route as u32);
                        rates[route] = 0.0;
                    }
                }
                Change::Capacity(at, bytes_per_s) => {
                    capacity[at % links] = bytes_per_s;
                    shares.set_capacity((at % links) as u32, bytes_per_s);
                }
                Change::Solve => {
                    shares.solve(&network, &mut changed);
                    for route in changed.drain(..) {
                        rates[route as usize] = shares.rate(route);
                    }
                    check(&network, &shares, &active, &capacity);
                    // Following `changed` gives all rates.
                    for (route, &rate) in rates.iter().enumerate().filter(|(route, _)| active[*route]) {
                        prop_assert!((rate - shares.rate(route as u32)).abs() <= SAME * rate.max(1.0));
                    }
                }
            }
        }
    }
}
