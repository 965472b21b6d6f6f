//! Random changes of a plan, one at a time.

use crate::problem::{CUT_ELEMENTS, PART_ELEMENTS_MIN, Part, Placed, Problem};
use crate::seeds::State;
use std::rc::Rc;

/// Places to split a variable: so many parts of it to the first bucket.
const SIXTEENTHS: u64 = 16;

/// A plan that differs by one move; `None` if that move is impossible.
pub fn moved(problem: &Problem, state: &State, splits: bool, random: &mut fastrand::Rng) -> Option<State> {
    let at = random.usize(..state.len());
    match random.u32(..if splits { 10 } else { 8 }) {
        0 | 1 => rerouted(problem, state, at, random),
        2 => all_rerouted(problem, state, at, random),
        3 => split(problem, state, at, random),
        4 => merged(problem, state, at, random),
        5 => shifted(problem, state, at, random),
        6 => handed_over(problem, state, at, random),
        7 => reprioritised(state, at, random),
        8 => variable_split(problem, state, at, random),
        _ => recut(problem, state, at, random),
    }
}

/// Plans in which one bucket has another route, or is one with a bucket that has more of its variables, or with the next one.
pub fn neighbours<'a>(problem: &'a Problem, state: &'a State, at: usize) -> impl Iterator<Item = State> + 'a {
    let bucket = &state[at];
    let continues = move |other: &&usize| {
        let own = |part: &Part| bucket.parts.iter().any(|known| known.place == part.place);
        **other > at && state[**other].class == bucket.class && state[**other].parts.iter().any(own)
    };
    let others: Vec<usize> = (0..state.len()).collect();
    let mut merging: Vec<usize> = others.iter().filter(continues).copied().collect();
    merging.extend(next(state, at).filter(|other| !merging.contains(other)));
    let rerouted = problem.live[bucket.class].iter().filter(|&&route| route != bucket.proposal).filter_map(
        move |&route| {
            let mut found = state.clone();
            found[at] = problem.placed(bucket.parts.clone(), route)?;
            Some(found)
        },
    );
    let merged = merging.into_iter().flat_map(move |other| {
        [(at, other), (other, at)].into_iter().filter_map(move |(kept, gone)| {
            let parts = joined(&state[at].parts, &state[other].parts);
            let mut found = state.clone();
            found[kept] = problem.placed(parts, state[kept].proposal)?;
            found.remove(gone);
            Some(found)
        })
    });
    rerouted.chain(merged)
}

/// Whether all buckets can lie in memory in one piece each, together: a bucket that ends within a variable lies before the one that
/// begins there, and none before itself.
pub fn lie_in_rows(problem: &Problem, state: &State) -> bool {
    type Edge = Option<(usize, u64)>;
    let edges = |bucket: &Rc<Placed>| -> (Edge, Edge) {
        let cut = bucket.parts.iter();
        let begins = cut.clone().find(|part| part.start > 0);
        let ends = cut.clone().find(|part| part.stop < problem.variable(part.place).elements);
        (begins.map(|part| (part.place, part.start)), ends.map(|part| (part.place, part.stop)))
    };
    let cut: Vec<(Edge, Edge)> = state.iter().map(edges).filter(|edges| *edges != (None, None)).collect();
    let after = |at: usize| {
        let end = cut[at].1?;
        cut.iter().position(|(begin, _)| *begin == Some(end))
    };
    (0..cut.len()).all(|first| {
        let mut at = after(first);
        for _ in 0..cut.len() {
            match at {
                None => return true,
                Some(next) if next == first => return false,
                Some(next) => at = after(next),
            }
        }
        true
    })
}

fn any_route(problem: &Problem, class: usize, random: &mut fastrand::Rng) -> usize {
    let live = &problem.live[class];
    live[random.usize(..live.len())]
}

/// Another route for one bucket.
fn rerouted(problem: &Problem, state: &State, at: usize, random: &mut fastrand::Rng) -> Option<State> {
    let bucket = &state[at];
    let route = any_route(problem, bucket.class, random);
    if route == bucket.proposal {
        return None;
    }
    let mut found = state.clone();
    found[at] = problem.placed(bucket.parts.clone(), route)?;
    Some(found)
}

/// Another route for all buckets of a route and a class.
fn all_rerouted(problem: &Problem, state: &State, at: usize, random: &mut fastrand::Rng) -> Option<State> {
    let (class, old) = (state[at].class, state[at].proposal);
    let route = any_route(problem, class, random);
    if route == old {
        return None;
    }
    let meant = |bucket: &Rc<Placed>| bucket.class == class && bucket.proposal == old;
    let new = |bucket: &Rc<Placed>| {
        if meant(bucket) { problem.placed(bucket.parts.clone(), route) } else { Some(Rc::clone(bucket)) }
    };
    state.iter().map(new).collect()
}

/// Splits one bucket into two, on the same route or not.
fn split(problem: &Problem, state: &State, at: usize, random: &mut fastrand::Rng) -> Option<State> {
    let bucket = &state[at];
    if bucket.parts.len() < 2 {
        return None;
    }
    let (first, second) = bucket.parts.split_at(random.usize(1..bucket.parts.len()));
    in_two(problem, state, at, [first.to_vec(), second.to_vec()], random)
}

/// Splits a large variable into parts in two buckets.
fn variable_split(problem: &Problem, state: &State, at: usize, random: &mut fastrand::Rng) -> Option<State> {
    let bucket = &state[at];
    let which = random.usize(..bucket.parts.len());
    let part = bucket.parts[which];
    let cut = any_cut(part.start, part.stop, random)?;
    let mut first = bucket.parts[..which].to_vec();
    first.push(Part { stop: cut, ..part });
    let mut second = vec![Part { start: cut, ..part }];
    second.extend_from_slice(&bucket.parts[which + 1..]);
    in_two(problem, state, at, [first, second], random)
}

/// Where to cut elements; `None` where a part would be too small.
fn any_cut(start: u64, stop: u64, random: &mut fastrand::Rng) -> Option<u64> {
    let cut = start + (stop - start) * random.u64(1..SIXTEENTHS) / SIXTEENTHS;
    let cut = cut / CUT_ELEMENTS * CUT_ELEMENTS;
    (start + PART_ELEMENTS_MIN <= cut && cut + PART_ELEMENTS_MIN <= stop).then_some(cut)
}

/// Moves the place at which a variable is cut between two buckets.
fn recut(problem: &Problem, state: &State, at: usize, random: &mut fastrand::Rng) -> Option<State> {
    let ends = |part: &Part| part.stop < problem.variable(part.place).elements;
    let which = state[at].parts.iter().position(ends)?;
    let part = state[at].parts[which];
    let follows = |other: &Part| other.place == part.place && other.start == part.stop;
    let rest = |bucket: &Rc<Placed>| bucket.parts.iter().position(follows);
    let (other, next) = state.iter().enumerate().find_map(|(other, bucket)| Some((other, rest(bucket)?)))?;
    let cut = any_cut(part.start, state[other].parts[next].stop, random)?;
    let (mut first, mut second) = (state[at].parts.clone(), state[other].parts.clone());
    (first[which].stop, second[next].start) = (cut, cut);
    let mut found = state.clone();
    found[at] = problem.placed(first, state[at].proposal)?;
    found[other] = problem.placed(second, state[other].proposal)?;
    Some(found)
}

fn in_two(
    problem: &Problem,
    state: &State,
    at: usize,
    [first, second]: [Vec<Part>; 2],
    random: &mut fastrand::Rng,
) -> Option<State> {
    let bucket = &state[at];
    let other = if random.bool() { bucket.proposal } else { any_route(problem, bucket.class, random) };
    let (one, two) = if random.bool() { (bucket.proposal, other) } else { (other, bucket.proposal) };
    let mut found = state.clone();
    found[at] = problem.placed(first, one)?;
    found.insert(at + 1, problem.placed(second, two)?);
    Some(found)
}

/// The next bucket of the same class.
fn next(state: &State, at: usize) -> Option<usize> {
    (at + 1..state.len()).find(|&other| state[other].class == state[at].class)
}

/// Merges two buckets, in the place of either.
fn merged(problem: &Problem, state: &State, at: usize, random: &mut fastrand::Rng) -> Option<State> {
    let other = next(state, at)?;
    let proposal = if random.bool() { state[at].proposal } else { state[other].proposal };
    let parts = joined(&state[at].parts, &state[other].parts);
    let mut found = state.clone();
    found[if random.bool() { at } else { other }] = problem.placed(parts, proposal)?;
    // The result of the merge is the one whose parts are all in the other.
    let gone = if Rc::ptr_eq(&found[at], &state[at]) { at } else { other };
    found.remove(gone);
    Some(found)
}

/// Parts of two buckets; adjacent parts of a variable become one.
fn joined(one: &[Part], other: &[Part]) -> Vec<Part> {
    let mut parts = [one, other].concat();
    parts.sort_unstable();
    let mut found: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        match found.last_mut() {
            Some(last) if last.place == part.place && last.stop == part.start => last.stop = part.stop,
            _ => found.push(part),
        }
    }
    found
}

/// Moves the border between two buckets by one part.
fn shifted(problem: &Problem, state: &State, at: usize, random: &mut fastrand::Rng) -> Option<State> {
    let other = next(state, at)?;
    let (from, to) = if random.bool() { (at, other) } else { (other, at) };
    let which = if from == at { state[from].parts.len() - 1 } else { 0 };
    handed(problem, state, from, which, to)
}

/// Moves a part to any bucket of its class.
fn handed_over(problem: &Problem, state: &State, at: usize, random: &mut fastrand::Rng) -> Option<State> {
    let to = random.usize(..state.len());
    let which = random.usize(..state[at].parts.len());
    if to == at || state[to].class != state[at].class {
        return None;
    }
    handed(problem, state, at, which, to)
}

fn handed(problem: &Problem, state: &State, from: usize, which: usize, to: usize) -> Option<State> {
    let mut left = state[from].parts.clone();
    if left.len() < 2 {
        return None;
    }
    let part = left.remove(which);
    let mut found = state.clone();
    found[from] = problem.placed(left, state[from].proposal)?;
    found[to] = problem.placed(joined(&state[to].parts, &[part]), state[to].proposal)?;
    Some(found)
}

/// Moves one bucket before or after others.
fn reprioritised(state: &State, at: usize, random: &mut fastrand::Rng) -> Option<State> {
    let to = random.usize(..state.len());
    if to == at {
        return None;
    }
    let mut found = state.clone();
    let bucket = found.remove(at);
    found.insert(to, bucket);
    Some(found)
}
