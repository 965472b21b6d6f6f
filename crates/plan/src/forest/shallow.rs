//! Trees made shallower: what waits for the deepest ranks of a tree is the first and the last of a payload, links idle meanwhile.
//!
//! Every tree reaches a rank once. Two trees may exchange the ranks from which they reach it, and a tree may reach it over an edge
//! that has room, as long as both stay trees: links carry no more than before. Of a heavier tree, as much as the other one weighs
//! takes part, and the rest stays as it is.

use super::graph::Graph;
use super::pack::Tree;

/// Rounds over all exchanges: each that is made lowers the sum of squared depths; few are left after the first ones.
const ROUNDS_MAX: usize = 20;
/// Limit of trees, by rank, up to which heavier ones are parted: every tree is more messages.
const TREES_MAX: usize = 12;

/// A tree, and by rank its depth, the number of ranks that are reached through it, itself included, and the sum of their depths.
#[derive(Clone)]
struct Grown {
    tree: Tree,
    depths: Vec<i64>,
    counts: Vec<i64>,
    sums: Vec<i64>,
}

impl Grown {
    fn new(tree: Tree) -> Self {
        let none = vec![0; tree.parents.len()];
        let mut grown = Self { tree, depths: none.clone(), counts: none.clone(), sums: none };
        grown.measure();
        grown
    }

    fn measure(&mut self) {
        self.counts.fill(0);
        self.sums.fill(0);
        for rank in 0..self.depths.len() {
            let above: Vec<usize> = self.above(rank).collect();
            let depth = above.len() as i64 - 1;
            self.depths[rank] = depth;
            for at in above {
                self.counts[at] += 1;
                self.sums[at] += depth;
            }
        }
    }

    /// A rank, and those on the way from it to the root.
    fn above(&self, rank: usize) -> impl Iterator<Item = usize> {
        let up = |&at: &usize| Some(self.tree.parents[at]).filter(|&parent| parent != at);
        std::iter::successors(Some(rank), up)
    }

    /// How much the sum of squared depths grows if a rank is reached from another one; none where that is reached through it.
    fn growth(&self, rank: usize, parent: usize) -> Option<i64> {
        let lower = self.depths[parent] + 1 - self.depths[rank];
        let stays = self.above(parent).all(|at| at != rank);
        stays.then(|| 2 * lower * self.sums[rank] + lower * lower * self.counts[rank])
    }

    fn hang(&mut self, rank: usize, parent: usize) {
        self.tree.parents[rank] = parent;
        self.measure();
    }
}

/// The same number of trees out of each root, in the same capacities.
pub fn shallower(trees: Vec<Tree>, graph: &Graph) -> Vec<Tree> {
    let mut room = vec![vec![0; graph.ranks]; graph.ranks];
    for (&(from, to), &capacity) in &graph.capacities {
        room[from][to] = capacity;
    }
    for tree in &trees {
        for (rank, &parent) in tree.parents.iter().enumerate().filter(|(rank, _)| *rank != tree.root) {
            room[parent][rank] -= tree.weight;
        }
    }
    let mut grown: Vec<Grown> = trees.into_iter().map(Grown::new).collect();
    for _ in 0..ROUNDS_MAX {
        let mut changed = false;
        for rank in 0..graph.ranks {
            for one in 0..grown.len() {
                changed |= take(&mut grown[one], rank, &mut room);
                for other in 0..one {
                    changed |= exchange(&mut grown, [one, other], rank);
                }
            }
        }
        if !changed {
            break;
        }
    }
    grown.into_iter().map(|each| each.tree).collect()
}

/// Reaches a rank over an edge with room.
fn take(grown: &mut Grown, rank: usize, room: &mut [Vec<u64>]) -> bool {
    let Tree { root, weight, .. } = grown.tree;
    if root == rank {
        return false;
    }
    let open = (0..room.len()).filter(|&from| room[from][rank] >= weight);
    let growths = open.filter_map(|from| Some((grown.growth(rank, from)?, from)));
    let Some((_, from)) = growths.min().filter(|(growth, _)| *growth < 0) else { return false };
    room[grown.tree.parents[rank]][rank] += weight;
    room[from][rank] -= weight;
    grown.hang(rank, from);
    true
}

/// Each reaches a rank from where the other one did.
fn exchange(grown: &mut Vec<Grown>, pair: [usize; 2], rank: usize) -> bool {
    let [first, second] = pair.map(|at| &grown[at]);
    let (from1, from2) = (first.tree.parents[rank], second.tree.parents[rank]);
    if first.tree.root == rank || second.tree.root == rank || from1 == from2 {
        return false;
    }
    let (weight1, weight2) = (first.tree.weight, second.tree.weight);
    if weight1 != weight2 && grown.len() >= TREES_MAX * first.depths.len() {
        return false;
    }
    let growth = first.growth(rank, from2).zip(second.growth(rank, from1));
    if growth.is_none_or(|(first, second)| first + second >= 0) {
        return false;
    }
    let weight = weight1.min(weight2);
    for (at, from) in pair.into_iter().zip([from2, from1]) {
        let left = grown[at].tree.weight - weight;
        if left > 0 {
            let mut rest = grown[at].clone();
            rest.tree.weight = left;
            grown.push(rest);
        }
        grown[at].tree.weight = weight;
        grown[at].hang(rank, from);
    }
    true
}
