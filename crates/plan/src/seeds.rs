//! Plans that a search begins with: every route for all buckets at several sizes, hand-written builders, the bound's shares.

use crate::bound::Bound;
use crate::exchange::Exchange;
use crate::partition::{Rule, partition};
use crate::problem::{CUT_ELEMENTS, PART_ELEMENTS_MIN, Part, Placed, Problem, Variable};
use crate::timeline::Timeline;
use hocket_algorithms::{Algorithm, Via};
use std::rc::Rc;

/// Sizes of buckets that are tried, in bytes; none: the whole model.
pub const BUCKET_BYTES: [Option<u64>; 4] = [Some(1 << 20), Some(4 << 20), Some(16 << 20), None];
/// A size that would make more buckets is not tried.
const BUCKETS_MAX: usize = 1024;
/// Variables in a group of `AutoDist`'s `AllReduce` builder.
const GROUP: u32 = 128;
/// Buckets of a plan whose routes are chosen one after the other.
const GREEDY_BUCKETS_MAX: usize = 64;
/// A smaller share of the bound's is left to the other routes: a bucket of its own costs more than it takes off them.
const SHARE_MIN: f64 = 0.05;

/// Names of the builders of plans that may mix routes.
pub const BUILDERS: [&str; 4] = ["bound-shares", "greedy", "ps-load-balancing", "parallax"];

/// Buckets in order of priority.
pub type State = Vec<Rc<Placed>>;

/// A seed in which all buckets take one route.
pub struct Uniform {
    /// Index of the proposal.
    pub proposal: usize,
    /// Index in [`BUCKET_BYTES`].
    pub size: usize,
    pub state: State,
}

/// Parts of one class that travel together.
type Bundle = Vec<Part>;

/// Whole variables in backward's order, by a rule.
fn bundles(problem: &Problem, rule: Rule, size: impl Fn(&Variable) -> f64) -> Vec<Bundle> {
    let places = 0..problem.backward.len();
    let variables = places.map(|place| problem.variable(place));
    let whole = |place| Part { place, start: 0, stop: problem.variable(place).elements };
    let made = partition(variables.map(|each| (each.class, size(each))), rule);
    made.into_iter().map(|places| places.into_iter().map(whole).collect()).collect()
}

/// By bytes.
fn by_size(problem: &Problem, size_bytes: Option<u64>) -> Vec<Bundle> {
    let rule = Rule { size: size_bytes.map(|bytes| bytes as f64), ..Rule::default() };
    bundles(problem, rule, |each| each.elements as f64 * problem.model.classes[each.class].item_bytes)
}

/// Different bundlings of the sizes, by index.
pub fn bundlings(problem: &Problem) -> Vec<(usize, Vec<Bundle>)> {
    let mut found: Vec<(usize, Vec<Bundle>)> = Vec::new();
    for (size, &bytes) in BUCKET_BYTES.iter().enumerate() {
        let made = by_size(problem, bytes);
        if made.len() <= BUCKETS_MAX && !found.iter().any(|(_, known)| *known == made) {
            found.push((size, made));
        }
    }
    found
}

/// One route for everything: each that fits all classes, at each size; simplest first.
pub fn uniform(problem: &Problem) -> Vec<Uniform> {
    let bundlings = bundlings(problem);
    let mut found = Vec::new();
    for proposal in 0..problem.ruled {
        for (size, bundles) in &bundlings {
            if let Some(state) = placed(problem, bundles, |_, _| Some(proposal)) {
                found.push(Uniform { proposal, size: *size, state });
            }
        }
    }
    found
}

/// Builders by rule, a route chosen bucket by bucket, and the bound's shares in whole buckets: names of [`BUILDERS`] and plans.
pub fn mixed(problem: &Problem, bound: &Bound, timeline: &mut Timeline) -> Vec<(&'static str, State)> {
    let [shares, one_by_one, balanced, by_sparsity] = BUILDERS;
    let mut found = Vec::new();
    for (_, bundles) in bundlings(problem) {
        found.extend(rounded(problem, &bundles, bound).map(|state| (shares, state)));
        if bundles.len() <= GREEDY_BUCKETS_MAX {
            found.extend(greedy(problem, &bundles, timeline).map(|state| (one_by_one, state)));
        }
    }
    found.extend(load_balanced(problem).map(|state| (balanced, state)));
    found.extend(parallax(problem).map(|state| (by_sparsity, state)));
    found
}

/// The bound's shares of each bundle, cut through variables; none where the bound has one route for each class.
pub fn cut_by_shares(problem: &Problem, bound: &Bound) -> Vec<State> {
    let shares: Vec<Vec<(usize, f64)>> = bound.shares.iter().map(|shares| largest(shares)).collect();
    if shares.iter().all(|shares| shares.len() < 2) {
        return Vec::new();
    }
    let cut = |(_, bundles): (usize, Vec<Bundle>)| {
        let of = |bundle: &Bundle| {
            let class = problem.variable(bundle[0].place).class;
            cut_bundle(bundle, &shares[class])
        };
        let cut: Vec<(Bundle, usize)> = bundles.iter().flat_map(of).collect();
        cut.into_iter().map(|(bundle, proposal)| problem.placed(bundle, proposal)).collect()
    };
    bundlings(problem).into_iter().filter_map(cut).collect()
}

/// Those that are worth a bucket, the largest first.
fn largest(shares: &[(usize, f64)]) -> Vec<(usize, f64)> {
    let mut largest = shares.to_vec();
    largest.sort_by(|one, other| other.1.total_cmp(&one.1));
    let kept = largest.iter().take_while(|(_, share)| *share >= SHARE_MIN).count();
    largest.truncate(kept.max(1));
    largest
}

/// Consecutive pieces of a bundle by these shares, each with its proposal.
fn cut_bundle(bundle: &Bundle, shares: &[(usize, f64)]) -> Vec<(Bundle, usize)> {
    let kept: f64 = shares.iter().map(|(_, share)| share).sum();
    let (all, mut left) = (elements(bundle), bundle.iter().copied().rev().collect::<Vec<Part>>());
    let mut found = Vec::new();
    for (at, (proposal, share)) in shares.iter().enumerate() {
        let wanted = if at + 1 == shares.len() { u64::MAX } else { (all * share / kept) as u64 };
        let piece = taken(&mut left, wanted);
        if !piece.is_empty() {
            found.push((piece, *proposal));
        }
    }
    found
}

/// About so many elements off the end of a list, through a variable where its parts are then not too small.
fn taken(left: &mut Vec<Part>, wanted: u64) -> Bundle {
    let (mut piece, mut elements) = (Bundle::new(), 0);
    while let Some(part) = left.pop() {
        let missing = (wanted - elements) / CUT_ELEMENTS * CUT_ELEMENTS;
        let cut = part.start.saturating_add(missing);
        if cut >= part.stop || part.stop - cut < PART_ELEMENTS_MIN {
            elements += part.stop - part.start;
            piece.push(part);
        } else if missing < PART_ELEMENTS_MIN {
            left.push(part);
            return piece;
        } else {
            left.push(Part { start: cut, ..part });
            piece.push(Part { stop: cut, ..part });
            return piece;
        }
        if elements >= wanted {
            return piece;
        }
    }
    piece
}

fn placed(
    problem: &Problem,
    bundles: &[Bundle],
    mut of: impl FnMut(usize, &Bundle) -> Option<usize>,
) -> Option<State> {
    bundles.iter().enumerate().map(|(at, bundle)| problem.placed(bundle.clone(), of(at, bundle)?)).collect()
}

fn elements(bundle: &Bundle) -> f64 {
    bundle.iter().map(|part| part.stop - part.start).sum::<u64>() as f64
}

/// Largest buckets first, each to the route of which most is left.
fn rounded(problem: &Problem, bundles: &[Bundle], bound: &Bound) -> Option<State> {
    let class_of = |bundle: &Bundle| problem.variable(bundle[0].place).class;
    let mut left = bound.shares.clone();
    for (class, shares) in left.iter_mut().enumerate() {
        let all: f64 = bundles.iter().filter(|bundle| class_of(bundle) == class).map(elements).sum();
        for (_, share) in shares {
            *share *= all;
        }
    }
    let mut largest: Vec<usize> = (0..bundles.len()).collect();
    largest.sort_by(|&one, &other| elements(&bundles[other]).total_cmp(&elements(&bundles[one])));
    let mut chosen = vec![None; bundles.len()];
    for at in largest {
        let shares = &mut left[class_of(&bundles[at])];
        let most = shares.iter_mut().max_by(|one, other| one.1.total_cmp(&other.1))?;
        most.1 -= elements(&bundles[at]);
        chosen[at] = Some(most.0);
    }
    placed(problem, bundles, |at, _| chosen[at])
}

/// One bucket after the other takes the route with which those so far are done first.
fn greedy(problem: &Problem, bundles: &[Bundle], timeline: &mut Timeline) -> Option<State> {
    let mut state = State::new();
    for bundle in bundles {
        let class = problem.variable(bundle[0].place).class;
        let mut best: Option<(f64, Rc<Placed>)> = None;
        for &proposal in &problem.live[class] {
            let bucket = problem.placed(bundle.clone(), proposal)?;
            state.push(Rc::clone(&bucket));
            let outcome = timeline.run(&state, f64::INFINITY)?;
            state.pop();
            let energy_s = outcome.done_s - problem.model.backward_end_s + outcome.mean_s;
            if best.as_ref().is_none_or(|(known_s, _)| energy_s < *known_s) {
                best = Some((energy_s, bucket));
            }
        }
        state.push(best?.1);
    }
    Some(state)
}

/// `AutoDist`'s `PSLoadBalancing`: every variable to the owner that has the fewest bytes.
fn load_balanced(problem: &Problem) -> Option<State> {
    let single = |at: &usize| {
        let Exchange::Owned(owned) = &problem.proposals[*at].exchange else { return false };
        let owns = owned.shares.iter().filter(|&&share| share > 0).count();
        owns == 1 && owned.via == Via::Direct && problem.proposals[*at].codec.is_none()
    };
    let mut owners: Vec<(f64, usize)> =
        (0..problem.proposals.len()).filter(single).map(|at| (0.0, at)).collect();
    let each: Vec<Bundle> = by_size(problem, Some(1));
    (each.len() <= BUCKETS_MAX).then_some(())?;
    placed(problem, &each, |_, bundle| {
        let least = owners.iter_mut().min_by(|one, other| one.0.total_cmp(&other.0))?;
        least.0 += elements(bundle);
        Some(least.1)
    })
}

/// Parallax: dense gradients by all-reduce in groups, sparse ones by rows. Without sparse ones it is `AutoDist`'s `AllReduce`.
fn parallax(problem: &Problem) -> Option<State> {
    let first =
        |wanted: fn(&Exchange) -> bool| problem.proposals.iter().position(|each| wanted(&each.exchange));
    let dense = first(|exchange| *exchange == Exchange::AllReduce(Algorithm::Ring))?;
    let sparse = first(|exchange| matches!(exchange, Exchange::Gathered(_)));
    let rule = Rule { size: Some(f64::from(GROUP)), ..Rule::default() };
    let mut bundles = bundles(problem, rule, |_| 1.0);
    bundles.sort_by_key(|bundle| bundle[0].place);
    placed(problem, &bundles, |_, bundle| {
        let class = problem.variable(bundle[0].place).class;
        sparse.filter(|_| problem.model.classes[class].rows.is_some()).or(Some(dense))
    })
}
