//! Trees out of every rank that fit the capacities between ranks together (Edmonds 1973; Tarjan 1974; Bérczi and Frank 2010).
//!
//! A batch of equal trees grows edge by edge. What of it may take an edge is one largest flow: behind no cut may less be left than
//! trees that still have to enter it. The rest of a batch goes on by other edges.

use super::flow::Flow;
use super::graph::Graph;
use std::cmp::Reverse;

/// Equal trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub root: usize,
    pub weight: u64,
    /// By rank: the one that it is reached from; the root's is the root.
    pub parents: Vec<usize>,
}

/// Edges that are looked at, once one is found that some of a batch may take: another may take all of it.
const LOOKS: usize = 3;
const OUTSIDE: usize = usize::MAX;

#[derive(Clone)]
struct Batch {
    tree: Tree,
    /// By rank: its distance from the root; `OUTSIDE`: not reached yet.
    depths: Vec<usize>,
}

/// `trees` out of each rank; none where capacities do not admit them.
pub fn packed(graph: &Graph, trees: u64) -> Option<Vec<Tree>> {
    let ranks = graph.ranks;
    let batch = |root: usize| {
        let depths = (0..ranks).map(|rank| if rank == root { 0 } else { OUTSIDE }).collect();
        Batch { tree: Tree { root, weight: trees, parents: vec![root; ranks] }, depths }
    };
    let mut waiting: Vec<Batch> = (0..ranks).rev().map(batch).collect();
    let mut room = vec![vec![0; ranks]; ranks];
    for (&(from, to), &capacity) in &graph.capacities {
        room[from][to] = capacity;
    }
    let (mut found, mut full) = (Vec::new(), Vec::new());
    while let Some(mut batch) = waiting.pop() {
        let mut cuts = Cuts::new(&room, &waiting);
        while batch.depths.contains(&OUTSIDE) {
            let (amount, from, to) = next(&batch, &room, &mut cuts, &mut full)?;
            room[from][to] -= amount;
            cuts.take(from, to, amount);
            if amount < batch.tree.weight {
                let mut rest = batch.clone();
                rest.tree.weight -= amount;
                waiting.push(rest);
                cuts = Cuts::new(&room, &waiting);
            }
            batch.tree.weight = amount;
            batch.tree.parents[to] = from;
            batch.depths[to] = batch.depths[from] + 1;
        }
        found.push(batch.tree);
    }
    Some(found)
}

/// The edge by which a batch grows, and how many of its trees take it: near the root, and all of them if possible.
///
/// `full`: sets of ranks that no tree which has reached them may enter again, because others still have to. They stay so.
fn next(
    batch: &Batch,
    room: &[Vec<u64>],
    cuts: &mut Cuts,
    full: &mut Vec<Vec<bool>>,
) -> Option<(u64, usize, usize)> {
    let (depths, weight) = (&batch.depths, batch.tree.weight);
    let (inside, outside): (Vec<usize>, Vec<usize>) =
        (0..depths.len()).partition(|&rank| depths[rank] != OUTSIDE);
    let mut edges: Vec<(usize, usize)> =
        inside.iter().flat_map(|&from| outside.iter().map(move |&to| (from, to))).collect();
    edges.retain(|&(from, to)| room[from][to] > 0);
    let reached = |set: &&Vec<bool>| inside.iter().any(|&rank| set[rank]);
    for set in full.iter().filter(reached) {
        edges.retain(|&(from, to)| set[from] || !set[to]);
    }
    edges.sort_by_key(|&(from, to)| (depths[from], Reverse(room[from][to].min(weight))));
    let (mut best, mut looks) = (None::<(u64, usize, usize)>, 0);
    let mut blocked: Vec<Vec<bool>> = Vec::new();
    for (from, to) in edges {
        if blocked.iter().any(|set| !set[from] && set[to]) {
            continue;
        }
        let amount = cuts.slack(from, to, room[from][to].min(weight));
        if amount > best.map_or(0, |(most, ..)| most) {
            best = Some((amount, from, to));
        }
        if amount == 0 {
            blocked.push(cuts.behind());
        }
        looks += usize::from(best.is_some());
        if amount == weight || looks == LOOKS {
            break;
        }
    }
    full.append(&mut blocked);
    best
}

/// The capacities that are left, and the trees that have to enter sets of ranks beside the batch that grows.
struct Cuts {
    flow: Flow,
    source: usize,
    /// By rank: the source's edge to it, and the trees that have reached nothing else.
    heads: Vec<(usize, u64)>,
    /// By sender and receiver.
    edges: Vec<Vec<(usize, u64)>>,
    /// Trees of all batches that wait.
    all: u64,
}

impl Cuts {
    fn new(room: &[Vec<u64>], waiting: &[Batch]) -> Self {
        let ranks = room.len();
        let partial = |batch: &&Batch| batch.depths.iter().filter(|&&depth| depth != OUTSIDE).count() > 1;
        let all = waiting.iter().map(|batch| batch.tree.weight).sum();
        let partials: Vec<&Batch> = waiting.iter().filter(partial).collect();
        let source = ranks + partials.len();
        let mut flow = Flow::new(source + 1);
        for (at, batch) in partials.iter().enumerate() {
            flow.edge(source, ranks + at, batch.tree.weight);
            for rank in (0..ranks).filter(|&rank| batch.depths[rank] != OUTSIDE) {
                flow.edge(ranks + at, rank, batch.tree.weight);
            }
        }
        let mut heads = vec![0; ranks];
        for batch in waiting.iter().filter(|batch| !partial(batch)) {
            heads[batch.tree.root] += batch.tree.weight;
        }
        let heads = heads.into_iter().enumerate();
        let heads = heads.map(|(rank, weight)| (flow.edge(source, rank, weight), weight)).collect();
        let mut edges = vec![vec![(0, 0); ranks]; ranks];
        for (from, row) in room.iter().enumerate() {
            for (to, &capacity) in row.iter().enumerate().filter(|(_, capacity)| **capacity > 0) {
                edges[from][to] = (flow.edge(from, to, capacity), capacity);
            }
        }
        Self { flow, source, heads, edges, all }
    }

    /// How many trees of the batch may take an edge, of so many that want to.
    fn slack(&mut self, from: usize, to: usize, most: u64) -> u64 {
        let (edge, own) = self.heads[from];
        let limit = self.all + most;
        self.flow.set(edge, limit);
        let crossing = self.flow.most(self.source, to, limit);
        self.flow.set(edge, own);
        crossing.saturating_sub(self.all)
    }

    /// By rank, after a question whose answer was none: whether it is behind the cut that allows no more.
    fn behind(&self) -> Vec<bool> {
        self.flow.source_side()[..self.heads.len()].iter().map(|before| !before).collect()
    }

    fn take(&mut self, from: usize, to: usize, amount: u64) {
        let (edge, capacity) = &mut self.edges[from][to];
        *capacity -= amount;
        self.flow.set(*edge, *capacity);
    }
}
