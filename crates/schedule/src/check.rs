//! The check of a schedule: every gradient is applied once, in order, not too late, and a bucket's two slots suffice.

use crate::{At, Overlap, Schedule, Stage, Turn};

/// Limit of turns of one bucket that are open at the same time: its memory has as many copies.
pub const SLOTS_MAX: usize = 2;

/// Limit of a period's iterations; the planner uses 64.
pub const PERIOD_MAX: usize = 1024;

/// A schedule that no session can keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("a period of {0} iterations: it has 1 to {PERIOD_MAX}")]
    Period(usize),
    #[error("a delay of {delay_max} iterations: 0 to twice the period of {period} are possible")]
    Delay { delay_max: usize, period: usize },
    #[error("a period of {0} iterations, and no turns")]
    NoTurns(usize),
    #[error("turns of {found} buckets: there are {buckets}")]
    Buckets { found: usize, buckets: usize },
    #[error("buckets are said to go together, and have different turns")]
    Apart,
    #[error("no bucket is in arena {0}")]
    Arena(usize),
    #[error("bucket {bucket}: {what}")]
    Bucket { bucket: usize, what: TurnFault },
}

/// A fault in the turns of one bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnFault {
    #[error("a turn of iterations {first} to {last} of {period}")]
    Outside { first: usize, last: usize, period: usize },
    #[error("gradients of iteration {iteration} are in {count} turns")]
    Count { iteration: usize, count: usize },
    #[error("applied {delay} iterations late: at most {delay_max} are promised")]
    Late { delay: i64, delay_max: usize },
    #[error("iterations {first} to {last} are applied at gates, and the schedule has none")]
    NoGates { first: usize, last: usize },
    #[error("sent in iteration {0}, before it is ready or after it is due")]
    Sent(usize),
    #[error("the turn of iteration {0} is sent or applied before the one before it")]
    Overtakes(usize),
    #[error("the turn of iteration {0} is applied by the same step as the one before it")]
    SameStep(usize),
    #[error("{0} turns are open at the same time: at most {SLOTS_MAX}")]
    Slots(usize),
}

impl Schedule {
    /// The first fault of a schedule of so many buckets as an error.
    pub fn check(&self, buckets: usize) -> Result<(), Fault> {
        self.faults(buckets).into_iter().next().map_or(Ok(()), Err)
    }

    /// Every fault of a schedule of so many buckets.
    pub fn faults(&self, buckets: usize) -> Vec<Fault> {
        let (period, delay_max) = (self.period, self.delay_max);
        if !(1..=PERIOD_MAX).contains(&period) {
            return vec![Fault::Period(period)];
        }
        if delay_max > SLOTS_MAX * period {
            return vec![Fault::Delay { delay_max, period }];
        }
        if self.turns.is_empty() {
            return if period == 1 { Vec::new() } else { vec![Fault::NoTurns(period)] };
        }
        let mut faults = Vec::new();
        if self.turns.len() != buckets {
            faults.push(Fault::Buckets { found: self.turns.len(), buckets });
        }
        if self.together && self.turns.windows(2).any(|pair| pair[0] != pair[1]) {
            faults.push(Fault::Apart);
        }
        for bucket in 0..self.turns.len() {
            faults.extend(self.of_bucket(bucket).into_iter().map(|what| Fault::Bucket { bucket, what }));
        }
        faults
    }

    fn of_bucket(&self, bucket: usize) -> Vec<TurnFault> {
        let (turns, period, delay_max) = (self.of(bucket), self.period, self.delay_max);
        let outside = turns.iter().filter(|turn| {
            turn.first >= period || turn.first > turn.last || turn.last - turn.first >= period
        });
        let outside: Vec<_> =
            outside.map(|&Turn { first, last, .. }| TurnFault::Outside { first, last, period }).collect();
        if !outside.is_empty() {
            return outside;
        }
        let held = |iteration: usize| turns.iter().filter(|turn| turn.holds(iteration, period)).count();
        let counts = (0..period).map(|iteration| (iteration, held(iteration)));
        let wrong = counts.filter(|&(_, count)| count != 1);
        let mut faults: Vec<_> =
            wrong.map(|(iteration, count)| TurnFault::Count { iteration, count }).collect();
        if !faults.is_empty() {
            return faults;
        }
        for turn in turns {
            let delay = turn.due.iteration as i64 - turn.last as i64;
            if !(0..=delay_max as i64).contains(&delay) {
                faults.push(TurnFault::Late { delay, delay_max });
            }
        }
        let late = !faults.is_empty();
        for turn in turns {
            if turn.due.at == At::Gate && self.overlap != Overlap::Gates {
                faults.push(TurnFault::NoGates { first: turn.first, last: turn.last });
            }
            if !((turn.last, Stage::Backward, 0) <= turn.sent_at() && turn.sent_at() <= turn.due_at()) {
                faults.push(TurnFault::Sent(turn.sent_at().0));
            }
        }
        if !late {
            faults.extend(self.sequence(bucket));
        }
        faults
    }

    /// Faults of turns as they follow one another over the end of the period.
    fn sequence(&self, bucket: usize) -> Vec<TurnFault> {
        let mut ordered = self.of(bucket).to_vec();
        ordered.sort_by_key(|turn| turn.first);
        let later = |(iteration, stage, place)| (iteration + self.period, stage, place);
        let first = ordered[0];
        let next = ordered[1..].iter().map(|turn| (turn.first, turn.sent_at(), turn.due_at()));
        let again = (first.first + self.period, later(first.sent_at()), later(first.due_at()));
        let mut faults = Vec::new();
        for (before, (first, then_sent, then_due)) in ordered.iter().zip(next.chain([again])) {
            let step = then_due.0 - usize::from(then_due.1 == Stage::Gate);
            if before.sent_at() >= then_sent || before.due_at() >= then_due {
                faults.push(TurnFault::Overtakes(first));
            } else if before.due.iteration == step {
                faults.push(TurnFault::SameStep(first));
            }
        }
        let slots = self.slots(bucket);
        if slots > SLOTS_MAX {
            faults.push(TurnFault::Slots(slots));
        }
        faults
    }
}
