//! The closed form by hand, and its speed. `tests/planning/test_closed_form.py` shows that it equals the readable model
//! in Python.

use crate::networks::in_racks;
use crate::{Cost, Exchange, Launch, PlanError, Route, Timeline};
use hocket_algorithms::Algorithm;
use hocket_network::Network;
use std::time::Instant;

/// A rank on each host, with a card out and in; racks of `rack` with a trunk out and in.
fn racks(world: u32, rack: u32, card_bit_per_s: f64, trunk_bit_per_s: f64) -> Network {
    let racks: Vec<u32> = (0..world).map(|rank| rank / rack).collect();
    let trunks = vec![trunk_bit_per_s; world.div_ceil(rack) as usize];
    in_racks(&vec![card_bit_per_s; world as usize], &racks, &trunks, 1e-4)
}

fn route(algorithm: Algorithm, order: impl IntoIterator<Item = u32>) -> Route {
    let order = order.into_iter().collect();
    let exchange = Exchange::AllReduce(algorithm);
    Route { exchange, order, item_bytes: 4.0, chunk_elements: 65_536.0, codec: None }
}

/// Broken: the most usual all-reduce would be predicted by other bytes than it sends.
#[test]
fn a_ring_of_two_sends_everything_once() {
    let network = racks(2, 2, 1e9, 1e9);
    let cost = Cost::new(&network, &[route(Algorithm::Ring, 0..2)]).expect("it fits");
    // A million elements of four bytes at 1 Gbit/s, and the last message's latency.
    let alone_s = cost.alone_s(0, 1e6).expect("a route");
    assert!((alone_s - 32.1e-3).abs() < 1e-9, "{alone_s}");
    let launch = |start_s| Launch { route: 0, elements: 1e6, start_s, factor: 1.0 };
    let step = cost.step(&[launch(0.0), launch(0.01)]).expect("a step");
    assert!((step.done_s - 64.1e-3).abs() < 1e-9, "{}", step.done_s);
    assert_eq!(step.bytes, [8e6, 8e6, 8e6, 8e6, 0.0, 0.0]);
}

/// Broken: a damaged plan would be scored as if it were sound.
#[test]
fn what_does_not_fit_is_refused() {
    let network = racks(4, 2, 1e9, 1e9);
    let refused = |route: Route| Cost::new(&network, &[route]).err();
    let order = vec![0, 1, 1, 2];
    assert_eq!(refused(route(Algorithm::Ring, order.clone())), Some(PlanError::Order { order, world: 4 }));
    assert!(matches!(
        refused(route(Algorithm::TwoLevel { sizes: vec![3] }, 0..4)),
        Some(PlanError::Misfit(_))
    ));
}

/// Broken: a search over plans would take minutes. `cargo test --release -p hocket-plan -- --ignored --nocapture`.
#[test]
#[ignore = "measures time: it needs a core to itself and a release build"]
fn twenty_thousand_plans_a_second() {
    let mut random = fastrand::Rng::with_seed(1);
    let network = racks(64, 16, 10e9, 20e9);
    let alternating = || (0..64).map(|at| at % 4 * 16 + at / 4);
    let routes = [
        route(Algorithm::Ring, 0..64),
        route(Algorithm::Ring, alternating()),
        route(Algorithm::TwoLevel { sizes: vec![16; 4] }, 0..64),
        route(Algorithm::HalvingDoubling, 0..64),
        route(Algorithm::DoubleBinaryTree, alternating()),
        route(Algorithm::Bcube { base: 4 }, 0..64),
        route(Algorithm::ParameterServer { servers: 16 }, 0..64),
        route(Algorithm::Direct, 0..64),
    ];
    let began = Instant::now();
    let cost = Cost::new(&network, &routes).expect("they fit");
    println!("{} routes prepared in {:?}", routes.len(), began.elapsed());
    let plan: Vec<Launch> = (0..200)
        .map(|at| Launch {
            route: at % 8,
            elements: 1e4 * (1.0 + 99.0 * random.f64()),
            start_s: at as f64 * 1e-4,
            factor: 1.0,
        })
        .collect();
    let mut pieces: Vec<_> = plan.iter().map(|launch| cost.piece(launch).expect("a route")).collect();
    let mut timeline = Timeline::new(cost.resources());
    let (began, plans, mut sum_s) = (Instant::now(), 20_000, 0.0);
    for _ in 0..plans {
        // A move of a search: another route for a bucket; the whole plan is scored.
        let at = random.usize(..200);
        let launch = Launch { route: random.usize(..routes.len()), ..plan[at] };
        pieces[at] = cost.piece(&launch).expect("a route");
        sum_s += timeline.run(&pieces, f64::INFINITY).expect("no limit").done_s;
    }
    let rate = f64::from(plans) / began.elapsed().as_secs_f64();
    println!(
        "{rate:.0} plans of 64 ranks and 200 buckets a second, {:.4} s in the mean",
        sum_s / f64::from(plans)
    );
    assert!(rate >= 20_000.0);
}
