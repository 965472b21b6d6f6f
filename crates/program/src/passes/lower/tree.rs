//! Two binary trees, each of which carries half of the data up to its root and back down; a leaf of one is an inner node of the
//! other, so that every member sends and receives about the same (Sanders, Speck and Träff 2009). Chunking pipelines them.

use super::message::{Call, Weaver};

/// Both halves up, scaled, and down.
pub fn all_reduce(call: &Call, weaver: &mut Weaver) {
    let n = call.n();
    for half in 0..2 {
        let part = call.part(half, 2);
        let place = |node: usize| place(node, n, half);
        for (node, parent) in upwards(n) {
            weaver.message(call, place(node), place(parent), &part, true);
        }
        weaver.scale(call, place(0), &part);
        for (node, parent) in upwards(n).into_iter().rev() {
            weaver.message(call, place(parent), place(node), &part, false);
        }
    }
}

/// The whole from the root, which is the tree's own.
pub fn broadcast(call: &Call, root: usize, weaver: &mut Weaver) {
    let n = call.n();
    for (node, parent) in upwards(n).into_iter().rev() {
        weaver.message(call, (root + parent) % n, (root + node) % n, &call.whole(), false);
    }
}

/// The whole to the root.
pub fn reduce(call: &Call, root: usize, weaver: &mut Weaver) {
    let n = call.n();
    for (node, parent) in upwards(n) {
        weaver.message(call, (root + node) % n, (root + parent) % n, &call.whole(), true);
    }
}

/// The member at a node of the first tree, or of the second: mirrored when n is even, moved by one when it is odd.
fn place(node: usize, n: usize, half: usize) -> usize {
    match (half, n % 2) {
        (0, _) => node,
        (_, 0) => n - 1 - node,
        _ => (node + 1) % n,
    }
}

/// Every node but the root with its parent, children before parents. In-order numbering, node 0 on top of the tree: a node
/// is as high as it has zeros at its end.
fn upwards(n: usize) -> Vec<(usize, usize)> {
    let mut edges: Vec<(usize, usize)> = (1..n)
        .map(|node| {
            let bit = 1 << node.trailing_zeros();
            let up = (node ^ bit) | (bit << 1);
            (node, if up >= n { node ^ bit } else { up })
        })
        .collect();
    edges.sort_by_key(|(node, _)| (depth(*node, n), *node));
    edges.reverse();
    edges
}

fn depth(node: usize, n: usize) -> usize {
    let (mut node, mut depth) = (node, 0);
    while node != 0 {
        let bit = 1 << node.trailing_zeros();
        let up = (node ^ bit) | (bit << 1);
        node = if up >= n { node ^ bit } else { up };
        depth += 1;
    }
    depth
}
