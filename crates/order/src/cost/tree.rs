//! Double binary tree: two trees carry half of the bytes each up to their roots and back down (Sanders, Speck and Träff 2009).
//!
//! Chunks are pipelined: the first one takes the longest path from a leaf to a root, the others follow at the pace of
//! the slowest edge. The trees are those of NCCL and of `hocket_algorithms`.

use super::incremental::Cost;
use super::tallest::Tallest;
use crate::model::Model;
use crate::pairs::Pairs;
use hocket_algorithms::{tree_depth, tree_parent, tree_place};

/// Both trees.
pub struct TreeCost<'a> {
    pairs: &'a Pairs,
    /// Times of one piece of a half, and of the pieces that follow.
    piece_bytes: f64,
    rest_bytes: f64,
    shape: Shape,
    trees: [Tree; 2],
}

struct Tree {
    /// By node: its rank.
    ranks: Vec<u32>,
    /// By rank: its node.
    nodes: Vec<u32>,
    /// By node: time of one piece from its deepest leaf up to it.
    heights_s: Vec<f64>,
    /// By node: time of one piece over the edge to its parent.
    edges_s: Vec<f64>,
    sum_s: f64,
    slowest: Tallest,
}

/// The common shape of both trees: nodes in order, node 0 on top of all.
struct Shape {
    parents: Vec<u32>,
    children: Vec<Vec<u32>>,
    /// Children before parents.
    upwards: Vec<u32>,
}

impl<'a> TreeCost<'a> {
    pub fn new(pairs: &'a Pairs, model: &Model) -> Self {
        let n = pairs.hosts();
        let half_bytes = model.bytes / 2.0;
        let piece_bytes = half_bytes.min(model.chunk_bytes);
        let trees = [0, 1].map(|half| Tree::new(n, half));
        Self { pairs, piece_bytes, rest_bytes: half_bytes - piece_bytes, shape: Shape::new(n), trees }
    }

    /// The edge of `node` to its parent.
    fn edge(&self, tree: &Tree, order: &[u32], node: usize) -> (f64, f64) {
        let host = |node: u32| order[tree.ranks[node as usize] as usize];
        let (below, above) = (host(node as u32), host(self.shape.parents[node]));
        let latency_s = self.pairs.message_s(below, above, self.piece_bytes);
        (latency_s, self.rest_bytes * self.pairs.s_per_byte(below, above))
    }

    fn look_at_edge(&mut self, half: usize, order: &[u32], node: usize) {
        if node == 0 {
            return;
        }
        let (edge_s, rest_s) = self.edge(&self.trees[half], order, node);
        let tree = &mut self.trees[half];
        tree.sum_s += edge_s - tree.edges_s[node];
        tree.edges_s[node] = edge_s;
        tree.slowest.set(node, rest_s);
    }

    fn height_s(&self, half: usize, node: usize) -> f64 {
        let tree = &self.trees[half];
        let below = |&child: &u32| tree.edges_s[child as usize] + tree.heights_s[child as usize];
        self.shape.children[node].iter().map(below).fold(0.0, f64::max)
    }

    /// From a node whose subtree has changed up to where nothing changes.
    fn rise(&mut self, half: usize, node: usize) {
        let mut node = node;
        loop {
            let height_s = self.height_s(half, node);
            let unchanged = height_s.to_bits() == self.trees[half].heights_s[node].to_bits();
            self.trees[half].heights_s[node] = height_s;
            if unchanged || node == 0 {
                return;
            }
            node = self.shape.parents[node] as usize;
        }
    }
}

impl Cost for TreeCost<'_> {
    fn rebuild(&mut self, order: &[u32]) {
        for half in 0..2 {
            for at in 0..self.shape.upwards.len() {
                let node = self.shape.upwards[at] as usize;
                self.trees[half].heights_s[node] = self.height_s(half, node);
                self.look_at_edge(half, order, node);
            }
            self.trees[half].heights_s[0] = self.height_s(half, 0);
            self.trees[half].sum_s = self.trees[half].edges_s.iter().sum();
        }
    }

    fn update(&mut self, order: &[u32], changed: &[u32]) {
        for half in 0..2 {
            for &rank in changed {
                let node = self.trees[half].nodes[rank as usize] as usize;
                self.look_at_edge(half, order, node);
                for child in 0..self.shape.children[node].len() {
                    self.look_at_edge(half, order, self.shape.children[node][child] as usize);
                }
            }
            for &rank in changed {
                let node = self.trees[half].nodes[rank as usize] as usize;
                self.rise(half, node);
                self.rise(half, self.shape.parents[node] as usize);
            }
        }
    }

    fn cost(&self) -> f64 {
        let one = |tree: &Tree| tree.heights_s[0] + tree.slowest.max();
        2.0 * one(&self.trees[0]).max(one(&self.trees[1]))
    }

    fn guide(&self) -> f64 {
        let depth = f64::from(tree_depth(self.trees[0].ranks.len()));
        let edges = self.trees[0].ranks.len().max(2) - 1;
        depth * (self.trees[0].sum_s + self.trees[1].sum_s) / edges as f64
    }
}

impl Tree {
    fn new(n: usize, half: usize) -> Self {
        let ranks: Vec<u32> = (0..n).map(|node| tree_place(node, n, half) as u32).collect();
        let mut nodes = vec![0; n];
        for (node, &rank) in ranks.iter().enumerate() {
            nodes[rank as usize] = node as u32;
        }
        let zeros = vec![0.0; n];
        Self { ranks, nodes, heights_s: zeros.clone(), edges_s: zeros, sum_s: 0.0, slowest: Tallest::new(n) }
    }
}

impl Shape {
    fn new(n: usize) -> Self {
        let parents: Vec<u32> = (0..n).map(|node| tree_parent(node, n) as u32).collect();
        let mut children = vec![Vec::new(); n];
        for node in 1..n {
            children[parents[node] as usize].push(node as u32);
        }
        let mut depths = vec![0_u32; n];
        let mut below: Vec<u32> = vec![0];
        let mut upwards = Vec::with_capacity(n);
        while let Some(node) = below.pop() {
            for &child in &children[node as usize] {
                depths[child as usize] = depths[node as usize] + 1;
                below.push(child);
                upwards.push(child);
            }
        }
        upwards.sort_by_key(|&node| std::cmp::Reverse(depths[node as usize]));
        Self { parents, children, upwards }
    }
}

/// The ranks at both ends of each edge of one of the trees, the lower one first.
pub fn edges(n: usize, half: usize) -> impl Iterator<Item = (u32, u32)> {
    (1..n)
        .map(move |node| (tree_place(node, n, half) as u32, tree_place(tree_parent(node, n), n, half) as u32))
}
