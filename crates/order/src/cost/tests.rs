//! Costs against the textbook, and incremental against whole.

use super::rounds::Round;
use super::*;
use crate::model::First;
use hocket_network::{Link, Network, Route};
use proptest::prelude::*;

fn pairs(n: usize, seed: u64, bandwidth: bool) -> Pairs {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut matrix = |scale: f64| {
        let mut entries = vec![0.0; n * n];
        for a in 0..n {
            for b in 0..a {
                let entry = scale * (0.1 + random.f64());
                (entries[a * n + b], entries[b * n + a]) = (entry, entry);
            }
        }
        entries
    };
    let latency_s = matrix(1e-4);
    let s_per_byte = if bandwidth { matrix(1e-8) } else { Vec::new() };
    Pairs::new(n, latency_s, s_per_byte).expect("pairs")
}

fn model(algorithm: Algorithm, bytes: f64) -> Model {
    Model { algorithm, bytes, chunk_bytes: 65_536.0, first: First::Near }
}

/// Every algorithm that `n` ranks can run.
fn algorithms(n: usize) -> Vec<Algorithm> {
    let half = n as u32 / 2;
    let sizes = if half == 0 { vec![n as u32] } else { vec![half, n as u32 - half] };
    vec![
        Algorithm::Ring,
        Algorithm::HalvingDoubling,
        Algorithm::RecursiveDoubling,
        Algorithm::DoubleBinaryTree,
        Algorithm::Bcube { base: 2 },
        Algorithm::Bcube { base: 4 },
        Algorithm::TwoLevel { sizes },
    ]
}

/// Hosts in racks of `rack`, each with a card out and in, each rack with a trunk out and in.
pub fn racks(n: usize, rack: usize, seed: u64, beside: bool) -> Network {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = n.div_ceil(rack);
    let mut place: Vec<u32> = (0..n).map(|host| (host / rack) as u32).collect();
    random.shuffle(&mut place);
    let mut link =
        |beside_bit_per_s: f64| Link { beside_bit_per_s, ..Link::new("", 8e7 * (0.2 + random.f64())) };
    let cards: Vec<Link> = (0..2 * n).map(|_| link(0.0)).collect();
    let trunks: Vec<Link> = (0..2 * count).map(|_| link(if beside { 1.6e7 } else { 0.0 })).collect();
    network(&place, [cards, trunks].concat())
}

/// Hosts in these racks: of each host a card out and in, then of each rack a trunk out and in.
fn network(racks: &[u32], links: Vec<Link>) -> Network {
    let n = racks.len() as u32;
    let pairs = (0..n).flat_map(|from| (0..n).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let route = |(from, to)| {
        let mut links = vec![2 * from, 2 * to + 1];
        let (out, into) = (racks[from as usize], racks[to as usize]);
        if out != into {
            links.extend([2 * (n + out), 2 * (n + into) + 1]);
        }
        Route { from, to, links, latency_s: 0.0 }
    };
    Network::new((0..n).collect(), links, pairs.map(route).collect()).expect("a network")
}

proptest! {
    /// Broken: a search would rely on a cost that the order does not have.
    #[test]
    fn incremental_is_whole(
        n in 1_usize..40, seed: u64, bandwidth: bool, bytes in 0.0..1e8, swaps in prop::collection::vec((0_usize..40, 0_usize..40), 1..30),
        which in 0_usize..7, far: bool, shared: bool, beside: bool,
    ) {
        let mut pairs = pairs(n, seed, bandwidth);
        if shared {
            pairs = pairs.sharing(&racks(n, 4, seed, beside)).expect("of as many hosts");
        }
        let mut model = model(algorithms(n)[which].clone(), bytes);
        model.first = if far { First::Far } else { First::Near };
        let mut order: Vec<u32> = (0..n as u32).collect();
        let mut evaluator = Evaluator::new(&pairs, &model).expect("it fits");
        evaluator.rebuild(&order);
        for (a, b) in swaps {
            let (a, b) = (a % n, b % n);
            order.swap(a, b);
            let changed = if a == b { vec![] } else { vec![a as u32, b as u32] };
            evaluator.follow(&order, &changed);
            let whole = evaluate(&pairs, &model, &order).expect("it fits");
            prop_assert!((evaluator.cost() - whole).abs() <= 1e-9 * whole, "{} is not {whole}", evaluator.cost());
        }
    }

    /// Broken: relabelling hosts would change what an order costs.
    #[test]
    fn a_ring_may_be_turned_and_mirrored(n in 2_usize..20, seed: u64, turn in 0_usize..20, bytes in 0.0..1e8) {
        let pairs = pairs(n, seed, true);
        let model = model(Algorithm::Ring, bytes);
        let order: Vec<u32> = (0..n as u32).collect();
        let mut turned = order.clone();
        turned.rotate_left(turn % n);
        turned.reverse();
        let (one, other) = (evaluate(&pairs, &model, &order), evaluate(&pairs, &model, &turned));
        let (one, other) = (one.expect("it fits"), other.expect("it fits"));
        prop_assert!((one - other).abs() <= 1e-9 * one);
    }
}

/// Bytes by ordered pair of ranks.
type Traffic = std::collections::BTreeMap<(u32, u32), f64>;

proptest! {
    /// Broken: orders would be judged by traffic that programs do not send.
    #[test]
    fn flows_are_those_of_the_algorithm(n in 2_usize..20, which in 0_usize..7, bytes in 1.0..1e8) {
        let algorithm = algorithms(n)[which].clone();
        prop_assume!(algorithm != Algorithm::RecursiveDoubling);
        let counts = hocket_algorithms::Counts::of_all_reduce(&algorithm, n).expect("it fits");
        let (mut counted, mut loaded) = (Traffic::new(), Traffic::new());
        for flow in counts.flows {
            let moved = flow.elements as f64 / counts.elements as f64 * bytes;
            *counted.entry((flow.from as u32, flow.to as u32)).or_default() += moved;
        }
        for phase in phases(&Model { first: First::Far, ..model(algorithm, bytes) }, n) {
            phase.flows.iter().for_each(|&pair| *loaded.entry(pair).or_default() += phase.bytes);
        }
        prop_assert!(counted.keys().eq(loaded.keys()));
        prop_assert!(counted.values().zip(loaded.values()).all(|(a, b)| (a - b).abs() <= 1e-9 * bytes));
    }
}

/// Latencies of four hosts: 1 between 0 and 1 and between 2 and 3, otherwise 10.
fn two_pairs() -> Pairs {
    let latency_s = [0., 1., 10., 10., 1., 0., 10., 10., 10., 10., 0., 1., 10., 10., 1., 0.];
    Pairs::new(4, latency_s.to_vec(), Vec::new()).expect("pairs")
}

fn cost(pairs: &Pairs, algorithm: Algorithm, order: &[u32]) -> f64 {
    evaluate(pairs, &model(algorithm, 0.0), order).expect("it fits")
}

/// Broken: the numbers would not be those of the definitions in the documentation.
#[test]
fn costs_are_the_definitions() {
    let pairs = two_pairs();
    let (near, mixed) = ([0, 1, 2, 3], [0, 2, 3, 1]);
    // Six steps, each the mean of the four links: 22 / 4 and 31 / 4.
    assert!((cost(&pairs, Algorithm::Ring, &near) - 33.0).abs() < 1e-9);
    assert!((cost(&pairs, Algorithm::Ring, &mixed) - (6.0 * 22.0 / 4.0)).abs() < 1e-9);
    // Rounds with the neighbour and with the one beyond, there and back.
    assert!((cost(&pairs, Algorithm::HalvingDoubling, &near) - 22.0).abs() < 1e-9);
    assert!((cost(&pairs, Algorithm::HalvingDoubling, &mixed) - 40.0).abs() < 1e-9);
    assert!((cost(&pairs, Algorithm::RecursiveDoubling, &near) - 11.0).abs() < 1e-9);
    assert!((cost(&pairs, Algorithm::Bcube { base: 4 }, &near) - 20.0).abs() < 1e-9);
    // Chains within pairs, a ring of two leaders: 2 · 1 + 2 · 1 · 10.
    assert!((cost(&pairs, Algorithm::TwoLevel { sizes: vec![2, 2] }, &near) - 22.0).abs() < 1e-9);
    // Trees 0 ← 2 ← {1, 3} and its mirror: up 11, down 11.
    assert!((cost(&pairs, Algorithm::DoubleBinaryTree, &near) - 40.0).abs() < 1e-9);
}

/// Broken: large messages would be judged by latency.
#[test]
fn the_slowest_link_bounds_a_ring_of_large_messages() {
    let s_per_byte = vec![0., 1e-9, 1e-6, 1e-9, 0., 1e-9, 1e-6, 1e-9, 0.];
    let pairs = Pairs::new(3, vec![0.0; 9], s_per_byte).expect("pairs");
    let seconds = evaluate(&pairs, &model(Algorithm::Ring, 3e6), &[0, 1, 2]).expect("it fits");
    assert!((seconds - 4.0).abs() < 1e-9); // four shares of 1 MB over 1 MB/s
}

/// Broken: halving-doubling would be judged by partners that no library uses, or by too many bytes.
#[test]
fn rounds_have_each_pair_once_and_halve() {
    let model = Model { first: First::Far, ..model(Algorithm::HalvingDoubling, 16.0) };
    let found = rounds(&model, 6);
    assert_eq!(found[0], Round { bytes: 8.0, times: 2.0, carried_bytes: 16.0, pairs: vec![(0, 4), (2, 5)] });
    assert_eq!(found[1], Round { bytes: 4.0, times: 2.0, carried_bytes: 8.0, pairs: vec![(0, 2), (4, 5)] });
    assert_eq!(found[2], Round { bytes: 16.0, times: 2.0, carried_bytes: 16.0, pairs: vec![(0, 1), (2, 3)] });
}

/// Two racks of two, hosts in turns, over trunks of 1 MB/s each way; cards of 8 MB/s.
fn two_racks() -> Pairs {
    let links = [vec![Link::new("", 64e6); 8], vec![Link::new("", 8e6); 4]].concat();
    let pairs = Pairs::new(4, vec![0.0; 16], Vec::new()).expect("pairs");
    pairs.sharing(&network(&[0, 1, 0, 1], links)).expect("of as many hosts")
}

/// Broken: orders that cross a trunk with several pairs at once would cost as much as those that cross it once.
#[test]
fn pairs_that_share_a_trunk_wait_for_it() {
    let pairs = two_racks();
    let (mixed, near) = ([0, 1, 2, 3], [0, 2, 1, 3]);
    let cost = |algorithm, order: &[u32]| {
        evaluate(&pairs, &Model { first: First::Far, ..model(algorithm, 8e6) }, order).expect("it fits")
    };
    // Two flows of 12 MB out of each rack, or one.
    assert!((cost(Algorithm::Ring, &mixed) - 24.0).abs() < 1e-9);
    assert!((cost(Algorithm::Ring, &near) - 12.0).abs() < 1e-9);
    // Far first: 4 MB there and back to the rank two further, then 2 MB to the neighbour.
    assert!((cost(Algorithm::HalvingDoubling, &near) - 16.0).abs() < 1e-9);
    assert!((cost(Algorithm::HalvingDoubling, &mixed) - 8.0).abs() < 1e-9);
    // Three partners, 2 MB there and back each: two of them are in the other rack, in any order.
    assert!((cost(Algorithm::Bcube { base: 4 }, &near) - 16.0).abs() < 1e-9);
    // Chains within racks and the leaders' ring between them; or both chains from rack to rack.
    let groups = || Algorithm::TwoLevel { sizes: vec![2, 2] };
    assert!((cost(groups(), &near) - 8.0).abs() < 1e-9);
    assert!((cost(groups(), &mixed) - 16.0).abs() < 1e-9);
    // Trees 0 ← 2 ← {1, 3} and its mirror, half of the bytes up and down.
    assert!((cost(Algorithm::DoubleBinaryTree, &near) - 16.0).abs() < 1e-9);
}
