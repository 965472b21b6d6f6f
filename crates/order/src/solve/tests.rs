//! Searches against each other, against enumeration, and against their promises.

use super::*;
use crate::cost::evaluate;
use proptest::prelude::*;

/// Hosts in racks and rows: 20 µs within a rack, 60 within a row, 150 between rows, a quarter of jitter, racks mixed.
fn data_centre(n: usize, rack: usize, seed: u64, bandwidth: bool) -> Pairs {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut places: Vec<usize> = (0..n).collect();
    random.shuffle(&mut places);
    let mut latency_s = vec![0.0; n * n];
    let mut s_per_byte = vec![0.0; n * n];
    for a in 0..n {
        for b in 0..a {
            let (x, y) = (places[a] / rack, places[b] / rack);
            let (far, slow) = if x == y {
                (20e-6, 0.8e-9)
            } else if x / 4 == y / 4 {
                (60e-6, 3e-9)
            } else {
                (150e-6, 8e-9)
            };
            let jitter = 0.75 + 0.5 * random.f64();
            (latency_s[a * n + b], latency_s[b * n + a]) = (far * jitter, far * jitter);
            (s_per_byte[a * n + b], s_per_byte[b * n + a]) = (slow * jitter, slow * jitter);
        }
    }
    Pairs::new(n, latency_s, if bandwidth { s_per_byte } else { Vec::new() }).expect("pairs")
}

fn model(algorithm: Algorithm, bytes: f64) -> Model {
    Model { algorithm, bytes, chunk_bytes: 65_536.0, first: First::Near }
}

fn budget(seed: u64, effort: f64) -> Budget {
    Budget { seed, restarts: 3, effort }
}

fn given(n: usize) -> Vec<u32> {
    (0..n as u32).collect()
}

fn algorithms(n: usize) -> Vec<Algorithm> {
    let half = n as u32 / 2;
    let sizes = if half == 0 { vec![n as u32] } else { vec![half, n as u32 - half] };
    let two_level = Algorithm::TwoLevel { sizes };
    let bcube = Algorithm::Bcube { base: 4 };
    vec![
        Algorithm::Ring,
        Algorithm::HalvingDoubling,
        Algorithm::RecursiveDoubling,
        Algorithm::DoubleBinaryTree,
        bcube,
        two_level,
    ]
}

/// The same hosts, behind trunks that their racks share; or not.
fn sharing(pairs: Pairs, rack: usize, seed: u64, shared: bool) -> Pairs {
    let n = pairs.hosts();
    if shared {
        let network = crate::cost::tests::racks(n, rack, seed, seed.is_multiple_of(2));
        pairs.sharing(&network).expect("of as many hosts")
    } else {
        pairs
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Broken: the order could be none, be worse than the user's, change from run to run, or its gap be wrong.
    #[test]
    fn orders_are_permutations_never_worse_and_repeatable(
        n in 1_usize..40, seed: u64, which in 0_usize..6, bytes in 0.0..1e8, bandwidth: bool, far: bool, shared: bool,
    ) {
        let pairs = sharing(data_centre(n, 5, seed, bandwidth), 5, seed, shared);
        let mut model = model(algorithms(n)[which].clone(), bytes);
        model.first = if far { First::Far } else { First::Near };
        let budget = budget(seed, 0.01);
        let one = solve(&pairs, &model, &given(n), &budget, &NoWatch).expect("it fits");
        let other = solve(&pairs, &model, &given(n), &budget, &NoWatch).expect("it fits");
        prop_assert!(check_order(&one.order, n).is_ok());
        prop_assert_eq!(&one.order, &other.order);
        prop_assert!(one.complete);
        prop_assert!(one.cost_s <= one.given_s);
        prop_assert!(one.bound_s <= one.cost_s * (1.0 + 1e-9), "bound {} of {}", one.bound_s, one.cost_s);
        let whole = evaluate(&pairs, &model, &one.order).expect("it fits");
        prop_assert!((whole - one.cost_s).abs() <= 1e-9 * whole);
    }

    /// Broken: an order that another one beats would be called proven.
    #[test]
    fn few_hosts_get_the_best_order(n in 2_usize..8, seed: u64, which in 0_usize..6, bytes in 0.0..1e6, bandwidth: bool, shared: bool) {
        let pairs = sharing(data_centre(n, 3, seed, bandwidth), 3, seed, shared);
        let model = model(algorithms(n)[which].clone(), bytes);
        let found = solve(&pairs, &model, &given(n), &budget(seed, 0.01), &NoWatch).expect("it fits");
        let best = every(n).into_iter().map(|order| evaluate(&pairs, &model, &order).expect("it fits"));
        let best = best.fold(f64::INFINITY, f64::min);
        prop_assert!(found.proven);
        prop_assert!((found.cost_s - best).abs() <= 1e-9 * best, "{} is not {best}", found.cost_s);
    }

    /// Broken: a bound above the best order would call a good order perfect.
    #[test]
    fn bounds_are_below_the_best_order(n in 2_usize..8, seed: u64, which in 0_usize..6, bytes in 0.0..1e6, bandwidth: bool, shared: bool) {
        let pairs = sharing(data_centre(n, 3, seed, bandwidth), 3, seed, shared);
        let model = model(algorithms(n)[which].clone(), bytes);
        let found = solve(&pairs, &model, &given(n), &budget(seed, 0.01), &NoWatch).expect("it fits");
        let bound = lower_bound(&pairs, &model, found.cost_s).expect("it fits");
        prop_assert!(bound <= found.cost_s * (1.0 + 1e-9), "bound {bound} of {}", found.cost_s);
    }
}

/// All orders.
fn every(n: usize) -> Vec<Vec<u32>> {
    if n == 0 {
        return vec![vec![]];
    }
    let last = n as u32 - 1;
    let shorter = every(n - 1);
    let inserted = |order: Vec<u32>| {
        (0..n).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    shorter.into_iter().flat_map(inserted).collect()
}

/// Broken: a ring of a size that people have would be longer than it must be.
#[test]
fn chained_lin_kernighan_finds_what_dynamic_programming_proves() {
    for seed in 0..20 {
        let n = exact::RING_MAX;
        let pairs = data_centre(n, 4, seed, false);
        let lengths = pairs.messages_s(0.0);
        let exact = exact::shortest_tour(n, &lengths).expect("a tour");
        let bound = crate::one_tree::OneTree::new(n, &lengths, 1.0);
        let candidates = bound.candidates(&lengths, 8);
        let mut search = lin_kernighan::LinKernighan::new(&lengths, &candidates, &given(n));
        search.descend();
        assert!(search.kick(200, &mut fastrand::Rng::with_seed(seed), &NoWatch));
        let cost = |order: &[u32]| evaluate(&pairs, &model(Algorithm::Ring, 0.0), order).expect("it fits");
        assert!(cost(search.order()) <= cost(&exact) * (1.0 + 1e-9), "seed {seed}");
    }
}

/// Broken: a large cluster's ring would be far from the best without a sign of it.
#[test]
fn a_ring_of_many_hosts_comes_near_its_bound() {
    let pairs = data_centre(256, 16, 7, false);
    let found =
        solve(&pairs, &model(Algorithm::Ring, 0.0), &given(256), &budget(1, 0.2), &NoWatch).expect("it fits");
    assert!(found.cost_s <= 1.03 * found.bound_s, "{} against {}", found.cost_s, found.bound_s);
}

/// Broken: racks would be torn apart, so that every round of halving-doubling waits for the links between them.
#[test]
fn halving_doubling_keeps_racks_together() {
    for first in [First::Near, First::Far] {
        let pairs = data_centre(64, 8, 3, false);
        let model = Model { first, ..model(Algorithm::HalvingDoubling, 0.0) };
        let found = solve(&pairs, &model, &given(64), &budget(1, 1.0), &NoWatch).expect("it fits");
        // Three rounds within racks (25 µs at most), two within rows (75), one between (187), there and back.
        assert!(found.cost_s <= 2.0 * (3.0 * 25e-6 + 2.0 * 75e-6 + 187.5e-6), "{}", found.cost_s);
        assert!(found.given_s > 1.5 * found.cost_s);
    }
}

/// Broken: a time limit would end with nothing, or pretend that the search had ended.
#[test]
fn a_stopped_search_gives_what_it_has() {
    struct Now;
    impl Watch for Now {
        fn stops(&self) -> bool {
            true
        }

        fn advances(&self, _steps: u64) {}
    }
    let pairs = data_centre(40, 5, 1, true);
    for algorithm in algorithms(40) {
        let model = model(algorithm, 1e6);
        let found = solve(&pairs, &model, &given(40), &budget(1, 1.0), &Now).expect("it fits");
        assert!(!found.complete && check_order(&found.order, 40).is_ok() && found.cost_s <= found.given_s);
    }
}

/// Broken: rings of more hosts than can be tried would cross trunks more often than they must, and no message would mention that the
/// best order was found.
#[test]
fn a_ring_leaves_each_rack_once() {
    let n = 32;
    let pairs = Pairs::new(n, vec![0.0; n * n], Vec::new()).expect("pairs");
    let pairs = pairs.sharing(&crate::cost::tests::racks(n, 8, 3, false)).expect("of as many hosts");
    let ring = model(Algorithm::Ring, 1e6);
    let found = solve(&pairs, &ring, &given(n), &budget(1, 0.1), &NoWatch).expect("it fits");
    assert!(found.proven, "{} of {}", found.bound_s, found.cost_s);
    assert!(found.given_s > 2.0 * found.cost_s);
}
