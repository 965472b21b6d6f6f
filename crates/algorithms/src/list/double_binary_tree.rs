//! Two binary trees, each of which carries half of the data up to its root and back down; a leaf of one is an inner node of the
//! other, so that every member sends and receives about the same (Sanders, Speck and Träff 2009). Chunking pipelines them.

use crate::entry::{Entry, Fits, Takes, any_group};
use crate::{Call, Group, Kind, Weave};

pub const ENTRY: Entry = Entry {
    name: "double_binary_tree",
    title: "two binary trees",
    takes: Takes::Nothing,
    measured_as: &["double_binary_tree"],
    does: &[Kind::AllReduce, Kind::Broadcast, Kind::Reduce],
    ordered: true,
    proposed: false,
    fits,
    check: any_group,
    weave,
    even_elements: |_, _| 2,
};

fn fits(_: Kind, _: &Group<'_>) -> Fits {
    vec![("double_binary_tree", Vec::new())]
}

fn weave(_: &[u32], kind: Kind, root: usize, call: &Call, weave: &mut dyn Weave) {
    match kind {
        Kind::AllReduce => all_reduce(call, weave),
        Kind::Broadcast => broadcast(call, root, weave),
        _ => reduce(call, root, weave),
    }
}

/// Both halves up and down.
fn all_reduce(call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    for half in 0..2 {
        let part = call.part(half, 2);
        let place = |node: usize| place(node, n, half);
        for (node, parent) in upwards(n) {
            call.message(place(node), place(parent), &part, true, weave);
        }
        call.complete(place(0), &part, weave);
        for (node, parent) in upwards(n).into_iter().rev() {
            call.message(place(parent), place(node), &part, false, weave);
        }
    }
}

/// The whole from the root, which is the tree's own root.
fn broadcast(call: &Call, root: usize, weave: &mut dyn Weave) {
    let n = call.n();
    for (node, parent) in upwards(n).into_iter().rev() {
        call.message((root + parent) % n, (root + node) % n, &call.whole(), false, weave);
    }
}

fn reduce(call: &Call, root: usize, weave: &mut dyn Weave) {
    let n = call.n();
    for (node, parent) in upwards(n) {
        call.message((root + node) % n, (root + parent) % n, &call.whole(), true, weave);
    }
}

/// The member at a node of the first tree, or of the second: mirrored when n is even, shifted by one when it is odd.
pub const fn place(node: usize, n: usize, half: usize) -> usize {
    match (half, n % 2) {
        (0, _) => node,
        (_, 0) => n - 1 - node,
        _ => (node + 1) % n,
    }
}

/// The node above another; the root, 0, is its own. In-order numbering with node 0 on top of the tree: a node's height
/// is its number of trailing zeros.
pub const fn parent(node: usize, n: usize) -> usize {
    if node == 0 {
        return 0;
    }
    let bit = 1 << node.trailing_zeros();
    let up = (node ^ bit) | (bit << 1);
    if up >= n { node ^ bit } else { up }
}

/// Edges from a node to the root.
fn level(node: usize, n: usize) -> u32 {
    std::iter::successors(Some(node), |&node| (node != 0).then(|| parent(node, n))).count() as u32 - 1
}

/// Edges from the deepest leaf to the root.
pub fn depth(n: usize) -> u32 {
    (0..n).map(|node| level(node, n)).max().unwrap_or(0)
}

/// Every node but the root with its parent, children before parents.
fn upwards(n: usize) -> Vec<(usize, usize)> {
    let mut edges: Vec<(usize, usize)> = (1..n).map(|node| (node, parent(node, n))).collect();
    edges.sort_by_key(|(node, _)| (level(*node, n), *node));
    edges.reverse();
    edges
}
