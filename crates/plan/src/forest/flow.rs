//! The largest flow between two vertices (Dinic 1970), on graphs that are asked many times with a few capacities changed.

use std::collections::VecDeque;

const UNSEEN: u32 = u32::MAX;

/// An edge, and beside it, at the next odd place, its residue backwards.
#[derive(Clone, Copy, Debug)]
struct Edge {
    to: u32,
    left: u64,
}

/// A graph with capacities.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    edges: Vec<Edge>,
    /// By edge: what it can carry.
    capacities: Vec<u64>,
    /// By vertex: its edges.
    leaving: Vec<Vec<u32>>,
    depth: Vec<u32>,
    /// By vertex: the first of its edges that may still carry more.
    next: Vec<usize>,
}

impl Flow {
    /// A graph without edges.
    pub fn new(vertices: usize) -> Self {
        Self { leaving: vec![Vec::new(); vertices], ..Self::default() }
    }

    /// Adds an edge, and returns its number.
    pub fn edge(&mut self, from: usize, to: usize, capacity: u64) -> usize {
        let number = self.capacities.len();
        for (end, other) in [(from, to), (to, from)] {
            self.leaving[end].push(self.edges.len() as u32);
            self.edges.push(Edge { to: other as u32, left: 0 });
        }
        self.capacities.push(capacity);
        number
    }

    pub fn set(&mut self, edge: usize, capacity: u64) {
        self.capacities[edge] = capacity;
    }

    /// The largest flow from a vertex to another, or `limit` where more is possible.
    pub fn most(&mut self, source: usize, sink: usize, limit: u64) -> u64 {
        for (pair, &capacity) in self.edges.chunks_exact_mut(2).zip(&self.capacities) {
            (pair[0].left, pair[1].left) = (capacity, 0);
        }
        let mut found = 0;
        while found < limit && self.layered(source, sink) {
            self.next.clear();
            self.next.resize(self.leaving.len(), 0);
            loop {
                let more = self.pushed(source, sink, limit - found);
                found += more;
                if more == 0 || found == limit {
                    break;
                }
            }
        }
        found
    }

    /// By vertex, after a flow that reached no limit: whether it is on the source's side of the cut that allows no more.
    pub fn source_side(&self) -> Vec<bool> {
        self.depth.iter().map(|&depth| depth != UNSEEN).collect()
    }

    fn layered(&mut self, source: usize, sink: usize) -> bool {
        self.depth.clear();
        self.depth.resize(self.leaving.len(), UNSEEN);
        self.depth[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(at) = queue.pop_front() {
            for &edge in &self.leaving[at] {
                let Edge { to, left } = self.edges[edge as usize];
                if left > 0 && self.depth[to as usize] == UNSEEN {
                    self.depth[to as usize] = self.depth[at] + 1;
                    queue.push_back(to as usize);
                }
            }
        }
        self.depth[sink] != UNSEEN
    }

    /// Sends more along one path of the layers.
    fn pushed(&mut self, at: usize, sink: usize, most: u64) -> u64 {
        if at == sink {
            return most;
        }
        while let Some(&edge) = self.leaving[at].get(self.next[at]) {
            let edge = edge as usize;
            let Edge { to, left } = self.edges[edge];
            if left > 0 && self.depth[to as usize] == self.depth[at] + 1 {
                let more = self.pushed(to as usize, sink, most.min(left));
                if more > 0 {
                    self.edges[edge].left -= more;
                    self.edges[edge ^ 1].left += more;
                    return more;
                }
            }
            self.next[at] += 1;
        }
        0
    }
}
