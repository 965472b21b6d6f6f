//! Short tours: chained Lin-Kernighan (Lin and Kernighan 1973; Applegate, Cook and Rohe 2003) with Or-opt moves.
//!
//! A chain of reversals continues while its gain so far is positive, and its best point is kept. When no chain helps,
//! two short segments near each other swap places and the neighbourhood is repaired; a result that is no better is
//! undone.

use super::Watch;
use super::tour::Tour;

/// Longest chain, and the number of alternatives at each of its steps: longer and broader ones find as much in the same
/// time.
const DEPTH: usize = 5;
const BREADTH: [usize; 2] = [5, 2];
/// Longest segments that swap places.
const KICK: usize = 40;
/// Longest segment that moves alone.
const SEGMENT: usize = 3;
/// Kicks between two calls of the watch.
const WATCHED: u64 = 256;

/// A tour being improved.
pub struct LinKernighan<'a> {
    lengths: &'a [f64],
    /// By node: its candidate neighbours, the likeliest first.
    candidates: &'a [Vec<u32>],
    tour: Tour,
    /// Gains below are rounding.
    least: f64,
    work: Vec<u32>,
    waits: Vec<bool>,
}

impl<'a> LinKernighan<'a> {
    /// From an order of at least 8 nodes.
    pub fn new(lengths: &'a [f64], candidates: &'a [Vec<u32>], order: &[u32]) -> Self {
        let longest = lengths.iter().copied().fold(0.0, f64::max);
        let n = order.len();
        Self {
            lengths,
            candidates,
            tour: Tour::new(order),
            least: 1e-12 * longest,
            work: Vec::with_capacity(n),
            waits: vec![false; n],
        }
    }

    /// The current order.
    pub fn order(&self) -> &[u32] {
        self.tour.order()
    }

    /// Until no move helps.
    pub fn descend(&mut self) {
        for &node in self.tour.order().to_vec().iter().rev() {
            self.ask(node);
        }
        self.settle();
        self.tour.forget();
    }

    /// Makes this many kicks; whether all were made.
    pub fn kick(&mut self, kicks: u64, random: &mut fastrand::Rng, watch: &dyn Watch) -> bool {
        for done in 0..kicks {
            if done % WATCHED == 0 {
                if watch.stops() {
                    return false;
                }
                watch.advances(if done == 0 { 0 } else { WATCHED });
            }
            let lost = self.swap_segments(random);
            let gained = self.settle();
            if gained < lost - self.least {
                self.tour.undo(0);
            }
            self.tour.forget();
        }
        true
    }

    fn length(&self, a: u32, b: u32) -> f64 {
        self.lengths[a as usize * self.tour.len() + b as usize]
    }

    fn ask(&mut self, node: u32) {
        if !std::mem::replace(&mut self.waits[node as usize], true) {
            self.work.push(node);
        }
    }

    /// Improves around the queued nodes; returns the gain.
    fn settle(&mut self) -> f64 {
        let mut gained = 0.0;
        while let Some(node) = self.work.pop() {
            self.waits[node as usize] = false;
            loop {
                let mark = self.tour.mark();
                let Some(gain) = self.improve(node) else { break };
                gained += gain;
                for at in mark..self.tour.mark() {
                    let (a, b) = self.tour.since(0)[at];
                    for end in [a, b] {
                        self.ask(end);
                        self.ask(self.tour.next(end));
                        self.ask(self.tour.previous(end));
                    }
                }
            }
        }
        gained
    }

    fn improve(&mut self, node: u32) -> Option<f64> {
        for forwards in [true, false] {
            let beside = if forwards { self.tour.next(node) } else { self.tour.previous(node) };
            let gain = self.chain(node, beside, self.length(node, beside), forwards, 0, self.least);
            if gain.is_some() {
                return gain;
            }
        }
        self.move_segment(node)
    }

    /// The edge from `base` to `end` is removed, `open` is the gain so far; finds a continuation for `end`. Returns a
    /// gain above `best` with the tour that has it, or leaves the tour unchanged.
    fn chain(
        &mut self,
        base: u32,
        end: u32,
        open: f64,
        forwards: bool,
        level: usize,
        best: f64,
    ) -> Option<f64> {
        let breadth = BREADTH.get(level).copied().unwrap_or(1);
        let mut ways: [(f64, u32, u32); BREADTH[0]] = [(f64::NEG_INFINITY, 0, 0); BREADTH[0]];
        for &near in &self.candidates[end as usize] {
            let rest = open - self.length(end, near);
            if rest <= self.least {
                continue;
            }
            let (follower, behind) = (self.tour.next(near), self.tour.previous(near));
            let other = if forwards { behind } else { follower };
            if near == base || other == end || follower == end || behind == end {
                continue;
            }
            let mut way = (rest + self.length(other, near), near, other);
            for slot in &mut ways[..breadth] {
                if way.0 > slot.0 {
                    std::mem::swap(slot, &mut way);
                }
            }
        }
        for &(open, _, other) in ways[..breadth].iter().take_while(|way| way.0 > f64::NEG_INFINITY) {
            let mark = self.tour.mark();
            if forwards {
                self.tour.reverse(end, other);
            } else {
                self.tour.reverse(other, end);
            }
            let closed = open - self.length(other, base);
            if level + 1 < DEPTH {
                let deeper = self.chain(base, other, open, forwards, level + 1, best.max(closed));
                if deeper.is_some() {
                    return deeper;
                }
            }
            if closed > best {
                return Some(closed);
            }
            self.tour.undo(mark);
        }
        None
    }

    /// Or-opt: up to three nodes from `node` on, to a place beside a candidate, either way round.
    fn move_segment(&mut self, node: u32) -> Option<f64> {
        for forwards in [true, false] {
            let mut last = node;
            for size in 1..=SEGMENT {
                if size > 1 {
                    last = self.beside(last, forwards);
                }
                let (before, after) = (self.beside(node, !forwards), self.beside(last, forwards));
                let out = self.length(before, node) + self.length(last, after) - self.length(before, after);
                if out <= self.least {
                    continue;
                }
                if let Some(gain) = self.insert(node, last, size, forwards, out) {
                    return Some(gain);
                }
            }
        }
        None
    }

    /// The segment whose end `node` comes next to one of its candidates, if that pays.
    fn insert(&mut self, node: u32, last: u32, size: usize, forwards: bool, out: f64) -> Option<f64> {
        for at in 0..self.candidates[node as usize].len() {
            let near = self.candidates[node as usize][at];
            let beside = self.length(near, node);
            if out - beside <= self.least {
                continue;
            }
            let inside =
                if forwards { self.tour.distance(node, near) } else { self.tour.distance(near, node) };
            if inside < size {
                continue;
            }
            for onwards in [true, false] {
                // Between `near` and the one on that side of it.
                let far = self.beside(near, onwards == forwards);
                if far == node || far == last {
                    continue;
                }
                let gain = out - beside - self.length(last, far) + self.length(near, far);
                if gain > self.least {
                    self.transplant(node, last, near, forwards, onwards);
                    return Some(gain);
                }
            }
        }
        None
    }

    /// Moves the segment from `node` (`forwards`: onwards) to `last`: `node` next to `near`, `last` towards the side
    /// given by `onwards`. The segment and the nodes that it passes are reversed together, then the passed ones are
    /// reversed back.
    fn transplant(&mut self, node: u32, last: u32, near: u32, forwards: bool, onwards: bool) {
        let far = self.beside(near, onwards == forwards);
        // As read forwards: first and last node of the segment, and the gap's sides.
        let (first, end) = if forwards { (node, last) } else { (last, node) };
        let (left, right) = if onwards == forwards { (near, far) } else { (far, near) };
        let (before, after) = (self.tour.previous(first), self.tour.next(end));
        // The gap lies behind the segment or before it; the segment passes the shorter way.
        if self.tour.distance(end, left) <= self.tour.distance(right, first) {
            self.tour.reverse(first, left);
            self.tour.reverse(left, after);
        } else {
            self.tour.reverse(right, end);
            self.tour.reverse(before, right);
        }
        // The segment now lies reversed in its gap.
        if onwards {
            self.tour.reverse(end, first);
        }
    }

    fn beside(&self, node: u32, forwards: bool) -> u32 {
        if forwards { self.tour.next(node) } else { self.tour.previous(node) }
    }

    /// Swaps two short adjacent segments; returns the cost.
    fn swap_segments(&mut self, random: &mut fastrand::Rng) -> f64 {
        let nodes = self.tour.len();
        let longest = KICK.min((nodes - 2) / 2).max(1);
        let before = random.u32(0..nodes as u32);
        let (one, two) = (random.usize(1..=longest), random.usize(1..=longest));
        let a = self.tour.next(before);
        let b = self.tour.after(before, one);
        let c = self.tour.next(b);
        let d = self.tour.after(b, two);
        let after = self.tour.next(d);
        let lost = self.length(before, c) + self.length(d, a) + self.length(b, after)
            - self.length(before, a)
            - self.length(b, c)
            - self.length(d, after);
        self.tour.reverse(a, d);
        self.tour.reverse(d, c);
        self.tour.reverse(b, a);
        for node in [before, a, b, c, d, after] {
            self.ask(node);
        }
        lost
    }
}
