//! Parts of the elements that go up a tree each, where they are added, and down one, given by number: trees that fill the links of a
//! network (`hocket-plan` finds them). Both have the same root; with links that are alike in both directions it is one tree.
//!
//! Parts travel in segments that are about as long in all trees, all trees' first ones first, so that every link has messages of all
//! trees that cross it, and none waits long for what another one sends.

use crate::entry::{Entry, Fits, Takes};
use crate::{Call, Group, Kind, Misfit, Weave};

pub const ENTRY: Entry = Entry {
    name: "trees",
    title: "trees",
    takes: Takes::Trees,
    measured_as: &[],
    does: &[Kind::AllReduce],
    ordered: false,
    proposed: false,
    fits,
    check,
    weave,
    even_elements: |numbers, n| weights(numbers, n).sum::<u64>().max(1) as usize,
};

/// Limit of a weight, so that sums fit.
const WEIGHT_MAX: u32 = 1 << 16;
const SEGMENTS_MAX: usize = 64;
/// Limit of the messages of all segments, so that verifying programs takes no longer.
const MESSAGES_MAX: usize = 1 << 16;
/// Minimum size of a tree's part of a segment: below, messages cost more than the wait.
const SEGMENT_ELEMENTS_MIN: usize = 16_384;

/// Trees follow from links, which a group does not have.
fn fits(_: Kind, _: &Group<'_>) -> Fits {
    Vec::new()
}

/// Two trees and the weight of what goes up one and down the other. Parents by member, the root's is the root.
struct Pair<'a> {
    weight: u32,
    up: &'a [u32],
    down: &'a [u32],
}

fn pairs(numbers: &[u32], n: usize) -> impl Iterator<Item = Pair<'_>> {
    numbers.chunks_exact(2 * n + 1).map(move |one| {
        let (up, down) = one[1..].split_at(n);
        Pair { weight: one[0], up, down }
    })
}

fn weights(numbers: &[u32], n: usize) -> impl Iterator<Item = u64> {
    pairs(numbers, n).map(|pair| u64::from(pair.weight))
}

fn check(numbers: &[u32], _: Kind, n: usize) -> Result<(), Misfit> {
    let wrong = |what| Err(Misfit::Trees { what, members: n });
    if numbers.is_empty() || !numbers.len().is_multiple_of(2 * n + 1) {
        return wrong("each is a weight, each member's parent on the way up and each one's on the way down");
    }
    if weights(numbers, n).any(|weight| weight == 0 || weight > u64::from(WEIGHT_MAX)) {
        return wrong("a weight is from 1 to 65536");
    }
    for pair in pairs(numbers, n) {
        let [Some((up, _)), Some((down, _))] = [downwards(pair.up), downwards(pair.down)] else {
            return wrong("parents must lead every member to the root, which is its own");
        };
        if up != down {
            return wrong("the way up and the way down must have one root");
        }
    }
    Ok(())
}

/// Members with their parents.
type Edges = Vec<(usize, usize)>;

/// The root, and every other member with its parent, parents first; none where that is no tree.
fn downwards(parents: &[u32]) -> Option<(usize, Edges)> {
    let n = parents.len();
    let mut children = vec![Vec::new(); n];
    let mut root = None;
    for (member, &parent) in parents.iter().enumerate() {
        if parent as usize != member {
            children.get_mut(parent as usize)?.push(member);
        } else if root.replace(member).is_some() {
            return None;
        }
    }
    let root = root?;
    let mut reached = vec![root];
    let mut edges = Vec::with_capacity(n);
    let mut at = 0;
    while at < reached.len() {
        let parent = reached[at];
        edges.extend(children[parent].iter().map(|&member| (member, parent)));
        reached.append(&mut children[parent]);
        at += 1;
    }
    (reached.len() == n).then_some((root, edges))
}

fn weave(numbers: &[u32], _: Kind, _: usize, call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    let trees: Vec<(u64, usize, [Edges; 2])> = pairs(numbers, n)
        .filter_map(|pair| {
            let (root, up) = downwards(pair.up)?;
            Some((u64::from(pair.weight), root, [up, downwards(pair.down)?.1]))
        })
        .collect();
    let all: u64 = weights(numbers, n).sum();
    let elements = call.whole().len();
    let edge = |weight: u64| (elements as u128 * u128::from(weight) / u128::from(all)) as usize;
    let parts: Vec<Call> = trees
        .iter()
        .scan(0, |before, (weight, ..)| {
            let start = edge(*before);
            *before += weight;
            Some(call.within(&(start..edge(*before))))
        })
        .collect();
    let lengths: Vec<usize> = parts.iter().map(|call| call.whole().len()).collect();
    let segments = segments(&lengths, n);
    let rounds = segments.iter().copied().max().unwrap_or_default();
    for round in 0..rounds {
        let of_round = |at: usize| {
            let [next, after] = [round, round + 1].map(|round| segments[at] * round / rounds);
            (after > next).then(|| parts[at].part(next, segments[at]))
        };
        for (at, (_, root, [up, _])) in trees.iter().enumerate() {
            let Some(part) = of_round(at) else { continue };
            for &(member, parent) in up.iter().rev() {
                parts[at].message(member, parent, &part, true, weave);
            }
            parts[at].complete(*root, &part, weave);
        }
        for (at, (.., [_, down])) in trees.iter().enumerate() {
            let Some(part) = of_round(at) else { continue };
            for &(member, parent) in down {
                parts[at].message(parent, member, &part, false, weave);
            }
        }
    }
}

/// By tree: into how many segments its part is cut, alike in length.
fn segments(lengths: &[usize], n: usize) -> Vec<usize> {
    let all: usize = lengths.iter().sum();
    let shortest = (2 * n * all / MESSAGES_MAX).max(SEGMENT_ELEMENTS_MIN);
    lengths.iter().map(|length| (length / shortest).clamp(1, SEGMENTS_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Counts, Kind, Misfit};

    fn trees(numbers: &[u32]) -> Algorithm {
        Algorithm::Trees { numbers: numbers.to_vec() }
    }

    /// Broken: a link would carry more than the trees over it weigh.
    #[test]
    fn edges_carry_their_trees() {
        // Three quarters up a chain and down a star; a quarter up a star and down a chain.
        let algorithm = trees(&[3, 0, 0, 1, 0, 0, 0, 1, 2, 2, 2, 1, 2, 2]);
        let counts = Counts::of_all_reduce(&algorithm, 3).expect("it fits");
        let carried: Vec<(usize, usize, usize)> =
            counts.flows.iter().map(|flow| (flow.from, flow.to, flow.elements)).collect();
        assert_eq!(carried, [(0, 1, 3), (0, 2, 4), (1, 0, 4), (1, 2, 1), (2, 1, 4)]);
        assert_eq!(counts.depth, 3);
    }

    /// Broken: members that no tree reaches would keep their own values.
    #[test]
    fn what_is_no_tree_is_refused() {
        let refused = |numbers: &[u32], n: usize| {
            matches!(trees(numbers).check(Kind::AllReduce, n), Err(Misfit::Trees { .. }))
        };
        assert!(!refused(&[1, 0, 0, 0, 0], 2) && !refused(&[5, 0, 0], 1));
        // Too few numbers, a weight of zero, two roots, a circle, a member that there is not, another root on the way down.
        assert!(refused(&[1, 0, 0, 0], 2) && refused(&[0, 0, 0, 0, 0], 2) && refused(&[1, 0, 1, 0, 0], 2));
        assert!(refused(&[1, 0, 2, 1, 0, 0, 0], 3) && refused(&[1, 0, 7, 0, 0], 2));
        assert!(refused(&[1, 0, 0, 1, 1], 2));
    }
}
