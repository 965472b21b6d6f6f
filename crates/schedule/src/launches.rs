//! Launches of a schedule: which turns leave at a point of an iteration, and which in a number of iterations.

use crate::{Point, Schedule, Sent, Turn};

/// A turn of a bucket in one of the periods that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch<'a> {
    pub bucket: usize,
    pub turn: &'a Turn,
    /// First iteration of its period, from the first one of all.
    pub begun: usize,
    /// Number of launches of the bucket before it.
    pub before: usize,
}

impl Schedule {
    /// Turns that are launched at a point of iteration `phase` of the period, with their buckets, in order.
    pub fn launched_at(&self, phase: usize, point: Point) -> Vec<(usize, &Turn)> {
        let mut found = Vec::new();
        for (bucket, turns) in self.turns.iter().enumerate() {
            for turn in turns {
                if let Sent::Begun { iteration, point: at, place } = turn.sent
                    && at == point
                    && iteration % self.period == phase
                {
                    found.push((place, bucket, turn));
                }
            }
        }
        found.sort_by_key(|&(place, bucket, _)| (place, bucket));
        found.into_iter().map(|(_, bucket, turn)| (bucket, turn)).collect()
    }

    /// Launches that leave in the first `count` iterations, in the order of turns, then of buckets.
    pub fn launches(&self, buckets: usize, count: usize) -> Vec<Launch<'_>> {
        let mut made = Vec::new();
        for bucket in 0..buckets {
            let turns = self.of(bucket);
            for number in 0..count.div_ceil(self.period) {
                let begun = number * self.period;
                let launch = |(at, turn)| Launch { bucket, turn, begun, before: number * turns.len() + at };
                let all = turns.iter().enumerate().map(launch);
                made.extend(all.filter(|launch| launch.turn.sent_at().0 + begun < count));
            }
        }
        made.sort_by_key(|launch| (launch.before, launch.bucket));
        made
    }
}
