//! When buckets that share links and engines are done; each resource serves what is ready in order of priority.
//!
//! Buckets come in order of priority. The work of a bucket and of those before it ends on a resource at the maximum,
//! over release times, of a release and all of their work that is released then or later (the bound of Jackson's
//! preemptive rule, attained by a server that never idles beside work). That is exact for the end of all, and
//! pessimistic for a bucket of low priority which is done before the release of one of higher priority. Releases are taken in the order in which buckets start: where heads invert that, a link is taken to
//! idle for the difference.

use std::borrow::Borrow;

/// A bucket's times, in seconds.
#[derive(Clone, Debug)]
pub struct Piece {
    /// When its first byte may leave.
    pub start_s: f64,
    /// Before the busiest link has any of it.
    pub head_s: f64,
    /// After the busiest link has served it.
    pub tail_s: f64,
    /// With the network to itself.
    pub alone_s: f64,
    /// By resource.
    pub busy_s: Vec<f64>,
}

impl Piece {
    fn begins_s(&self) -> f64 {
        self.start_s + self.head_s
    }
}

/// All buckets of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// When the last one is done.
    pub done_s: f64,
    /// Of all resources, the mean time at which they are done.
    pub mean_s: f64,
}

/// Scratch memory of evaluations, kept between them.
pub struct Timeline {
    /// By resource: when all of the work so far is done.
    done_s: Vec<f64>,
    /// By resource: the sum of the work so far.
    work_s: Vec<f64>,
    later_s: Vec<f64>,
    /// When each bucket so far starts, ascending, and which it is.
    started: Vec<(f64, usize)>,
    runs: usize,
}

impl Timeline {
    /// For this many resources.
    pub fn new(resources: usize) -> Self {
        let zeros = vec![0.0; resources];
        Self { done_s: zeros.clone(), work_s: zeros.clone(), later_s: zeros, started: Vec::new(), runs: 0 }
    }

    /// How often it has run: what a search has evaluated.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Evaluates buckets in order of priority. `None` as soon as one is done after `limit_s`.
    pub fn run<P: Borrow<Piece>>(&mut self, pieces: &[P], limit_s: f64) -> Option<Outcome> {
        self.runs += 1;
        self.done_s.fill(0.0);
        self.work_s.fill(0.0);
        self.started.clear();
        let mut done_s = 0.0_f64;
        for (at, piece) in pieces.iter().enumerate() {
            let piece = piece.borrow();
            let begins_s = piece.begins_s();
            let place = self.started.partition_point(|(known_s, _)| *known_s <= piece.start_s);
            self.started.insert(place, (piece.start_s, at));
            let served_s = if place + 1 == self.started.len() {
                self.after_all(begins_s, &piece.busy_s)
            } else if place == 0 {
                self.before_all(begins_s, &piece.busy_s)
            } else {
                self.between(&piece.busy_s, pieces)
            };
            let end_s = if served_s > 0.0 { served_s + piece.tail_s } else { 0.0 };
            let end_s = end_s.max(piece.start_s + piece.alone_s);
            done_s = done_s.max(end_s);
            if done_s > limit_s {
                return None;
            }
        }
        let mean_s = self.done_s.iter().sum::<f64>() / self.done_s.len().max(1) as f64;
        Some(Outcome { done_s, mean_s })
    }

    fn after_all(&mut self, begins_s: f64, busy_s: &[f64]) -> f64 {
        let mut last_s = 0.0_f64;
        for ((done_s, work_s), &busy_s) in self.done_s.iter_mut().zip(&mut self.work_s).zip(busy_s) {
            let served_s = if *done_s > begins_s { *done_s } else { begins_s } + busy_s;
            // Unused entries stay as they are.
            *done_s = if busy_s > 0.0 { served_s } else { *done_s };
            *work_s += busy_s;
            let used_s = if busy_s > 0.0 { served_s } else { 0.0 };
            last_s = if used_s > last_s { used_s } else { last_s };
        }
        last_s
    }

    fn before_all(&mut self, begins_s: f64, busy_s: &[f64]) -> f64 {
        let mut last_s = 0.0_f64;
        for ((done_s, work_s), &busy_s) in self.done_s.iter_mut().zip(&mut self.work_s).zip(busy_s) {
            *work_s += busy_s;
            let all_s = if busy_s > 0.0 { begins_s + *work_s } else { 0.0 };
            *done_s = if all_s > *done_s { all_s } else { *done_s };
            let used_s = if busy_s > 0.0 { *done_s } else { 0.0 };
            last_s = if used_s > last_s { used_s } else { last_s };
        }
        last_s
    }

    fn between<P: Borrow<Piece>>(&mut self, busy_s: &[f64], pieces: &[P]) -> f64 {
        self.work_s.iter_mut().zip(busy_s).for_each(|(work_s, busy_s)| *work_s += busy_s);
        self.done_s.fill(0.0);
        self.later_s.fill(0.0);
        for &(_, at) in self.started.iter().rev() {
            let piece = pieces[at].borrow();
            let begins_s = piece.begins_s();
            let resources = self.done_s.iter_mut().zip(&mut self.later_s);
            for ((done_s, later_s), &busy_s) in resources.zip(&piece.busy_s) {
                *later_s += busy_s;
                let all_s = if busy_s > 0.0 { begins_s + *later_s } else { 0.0 };
                *done_s = if all_s > *done_s { all_s } else { *done_s };
            }
        }
        let used_s = self.done_s.iter().zip(busy_s).filter(|(_, busy_s)| **busy_s > 0.0);
        used_s.map(|(done_s, _)| *done_s).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start_s: f64, busy_s: f64) -> Piece {
        Piece { start_s, head_s: 0.0, tail_s: 0.0, alone_s: busy_s, busy_s: vec![busy_s] }
    }

    /// Simulates a link that serves the most urgent ready work, moment by moment; when all is done.
    fn served(pieces: &[Piece], tick_s: f64) -> f64 {
        let mut left: Vec<f64> = pieces.iter().map(|piece| piece.busy_s[0]).collect();
        let mut now_s = 0.0;
        while left.iter().any(|&left| left > 1e-9) {
            let ready = (0..pieces.len()).find(|&at| left[at] > 1e-9 && pieces[at].start_s <= now_s + 1e-9);
            now_s += tick_s;
            if let Some(at) = ready {
                left[at] -= tick_s;
            }
        }
        now_s
    }

    /// Broken: priority would be bought with idle links.
    #[test]
    fn the_end_is_that_of_a_link_that_never_idles() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..500 {
            let whole = |random: &mut fastrand::Rng, range| f64::from(random.u32(range));
            let pieces: Vec<Piece> = (0..random.usize(1..7))
                .map(|_| piece(whole(&mut random, 0..12), whole(&mut random, 1..5)))
                .collect();
            let done_s = served(&pieces, 1.0);
            let found = Timeline::new(1).run(&pieces, f64::INFINITY).map(|all| all.done_s);
            assert_eq!(found, Some(done_s), "{pieces:?}");
            assert_eq!(Timeline::new(1).run(&pieces, done_s - 0.5), None);
        }
    }
}
