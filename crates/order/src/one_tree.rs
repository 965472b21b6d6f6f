//! Minimum 1-trees, which give two facts about the shortest tour: a lower bound of its length (Held and Karp 1971), and
//! its likely edges ("alpha-nearness", Helsgaun 2000, section 4).
//!
//! A 1-tree is a spanning tree with one more edge; a tour is one in which every node has two edges. Prices on nodes that raise
//! the edges of nodes with too many and lower those of nodes with too few move the 1-tree towards a tour.

/// Steps of the search for prices: about a second at most.
const WORK: usize = 200_000_000;
const STEPS: (usize, usize) = (12, 300);
/// Steps without a better bound after which prices move half as far.
const PATIENCE: usize = 10;

/// The prices with the best bound.
pub struct OneTree {
    /// A lower bound on the length of any tour.
    pub bound: f64,
    n: usize,
    prices: Vec<f64>,
    tree: Tree,
}

/// A spanning tree and the edge that closes it.
struct Tree {
    /// By node: its parent; of node 0, itself.
    parents: Vec<u32>,
    /// Parents before children.
    downwards: Vec<u32>,
    /// Ends of the additional edge, the first a leaf.
    closing: (u32, u32),
    length: f64,
}

impl OneTree {
    /// For a symmetric matrix of at least 3 nodes, row by row; `tour` is the length of a known tour: the shorter, the
    /// faster.
    pub fn new(n: usize, lengths: &[f64], tour: f64) -> Self {
        let mut prices = vec![0.0; n];
        let tree = Tree::smallest(n, lengths, &prices);
        let (mut excess, mut before) = (tree.excess(), tree.excess());
        let mut best = Self { bound: tree.length, n, prices: prices.clone(), tree };
        let (mut step, mut since) = (2.0, 0);
        for _ in 0..(WORK / (n * n)).clamp(STEPS.0, STEPS.1) {
            let squares: f64 = excess.iter().map(|e| e * e).sum();
            if squares == 0.0 {
                break;
            }
            let far = step * (tour - best.bound).max(1e-6 * tour) / squares;
            // The last direction too, which keeps prices from swinging (Volgenant and Jonker 1982).
            for (price, (now, last)) in prices.iter_mut().zip(excess.iter().zip(&before)) {
                *price += far * (0.7 * now + 0.3 * last);
            }
            let tree = Tree::smallest(n, lengths, &prices);
            before = std::mem::replace(&mut excess, tree.excess());
            let bound = tree.length - 2.0 * prices.iter().sum::<f64>();
            since += 1;
            if bound > best.bound {
                best = Self { bound, n, prices: prices.clone(), tree };
                since = 0;
            } else if since > PATIENCE {
                step /= 2.0;
                since = 0;
            }
        }
        best
    }

    /// For each node the `count` most likely neighbours in the shortest tour, the likeliest first: those whose edge
    /// lengthens the 1-tree least.
    pub fn candidates(&self, lengths: &[f64], count: usize) -> Vec<Vec<u32>> {
        let mut longest = vec![0.0; self.n];
        let each = |node: usize| {
            self.longest_on_path(lengths, node, &mut longest);
            let priced = |other: usize| priced(lengths, self.n, &self.prices, node, other);
            let mut others: Vec<(f64, f64, u32)> = (0..self.n)
                .filter(|&other| other != node)
                .map(|other| (priced(other) - longest[other], priced(other), other as u32))
                .collect();
            let (leaf, end) = self.tree.closing;
            let (leaf_at, end_at) = (leaf as usize, end as usize);
            let closing = self::priced(lengths, self.n, &self.prices, leaf_at, end_at);
            for (extra, length, other) in &mut others {
                if node == leaf_at || *other == leaf {
                    // An edge of the leaf takes the place of the additional one, unless it is in the tree.
                    *extra = if *extra <= 0.0 { 0.0 } else { (*length - closing).max(0.0) };
                }
            }
            let count = count.min(others.len());
            let nearer = |a: &(f64, f64, u32), b: &(f64, f64, u32)| {
                a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
            };
            if count < others.len() {
                others.select_nth_unstable_by(count, nearer);
            }
            others.truncate(count);
            others.sort_unstable_by(nearer);
            others.into_iter().map(|(_, _, other)| other).collect()
        };
        (0..self.n).map(each).collect()
    }

    /// For each node the longest edge of the tree between it and `from`.
    fn longest_on_path(&self, lengths: &[f64], from: usize, longest: &mut [f64]) {
        let edge =
            |node: usize| priced(lengths, self.n, &self.prices, node, self.tree.parents[node] as usize);
        let mut known = vec![false; self.n];
        let (mut node, mut max) = (from, f64::NEG_INFINITY);
        longest[node] = max;
        known[node] = true;
        while self.tree.parents[node] as usize != node {
            max = max.max(edge(node));
            node = self.tree.parents[node] as usize;
            longest[node] = max;
            known[node] = true;
        }
        for &node in &self.tree.downwards {
            let node = node as usize;
            if !known[node] {
                longest[node] = longest[self.tree.parents[node] as usize].max(edge(node));
            }
        }
    }
}

fn priced(lengths: &[f64], n: usize, prices: &[f64], a: usize, b: usize) -> f64 {
    lengths[a * n + b] + prices[a] + prices[b]
}

impl Tree {
    /// Prim's algorithm, and the leaf whose second edge is longest.
    fn smallest(n: usize, lengths: &[f64], prices: &[f64]) -> Self {
        let mut parents = vec![0_u32; n];
        let mut nearest = vec![f64::INFINITY; n];
        let mut left: Vec<u32> = (1..n as u32).collect();
        let mut downwards = Vec::with_capacity(n);
        let (mut last, mut length) = (0_usize, 0.0);
        while !left.is_empty() {
            let row = &lengths[last * n..(last + 1) * n];
            let (mut next, mut next_length) = (0, f64::INFINITY);
            for (at, &node) in left.iter().enumerate() {
                let node = node as usize;
                let through = row[node] + prices[last] + prices[node];
                if through < nearest[node] {
                    nearest[node] = through;
                    parents[node] = last as u32;
                }
                if nearest[node] < next_length {
                    (next, next_length) = (at, nearest[node]);
                }
            }
            last = left.swap_remove(next) as usize;
            downwards.push(last as u32);
            length += next_length;
        }
        let mut degrees = vec![0; n];
        for &node in &downwards {
            degrees[node as usize] += 1;
            degrees[parents[node as usize] as usize] += 1;
        }
        let mut closing = (0, 0, f64::NEG_INFINITY);
        for leaf in (0..n).filter(|&node| degrees[node] == 1) {
            let parent = if leaf == 0 {
                downwards.first().map_or(0, |&node| node as usize)
            } else {
                parents[leaf] as usize
            };
            let (mut end, mut second) = (leaf, f64::INFINITY);
            for other in (0..n).filter(|&other| other != leaf && other != parent) {
                let edge = priced(lengths, n, prices, leaf, other);
                if edge < second {
                    (end, second) = (other, edge);
                }
            }
            if second > closing.2 {
                closing = (leaf, end, second);
            }
        }
        Self { parents, downwards, closing: (closing.0 as u32, closing.1 as u32), length: length + closing.2 }
    }

    /// By node: its edges beyond two.
    fn excess(&self) -> Vec<f64> {
        let mut excess = vec![-2.0; self.parents.len()];
        for &node in &self.downwards {
            excess[node as usize] += 1.0;
            excess[self.parents[node as usize] as usize] += 1.0;
        }
        excess[self.closing.0 as usize] += 1.0;
        excess[self.closing.1 as usize] += 1.0;
        excess
    }
}
