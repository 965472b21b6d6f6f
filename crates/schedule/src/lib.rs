//! When buckets travel and are applied: for each bucket, which iterations' gradients form one launch, when it leaves and
//! when it is due, over a period of iterations that is repeated.
//!
//! Plans, the executor and the simulator read the same schedule. It serializes as in plan files, where
//! `hocket.artefacts.plan` is its source. Pure: no clock, no I/O.
#![forbid(unsafe_code)]

mod check;
mod launches;
#[cfg(test)]
mod tests;
mod turns;

pub use check::{Fault, PERIOD_MAX, SLOTS_MAX};
pub use launches::Launch;
use serde::{Deserialize, Serialize};
pub use turns::{LiveTurn, SavedFault, SavedTurns, Turns};

/// A point of an iteration at which turns are launched together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// Before its first gradient.
    Begin,
    /// After its backward.
    BackwardEnd,
}

/// When a turn is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Sent {
    /// As soon as its last gradient has arrived.
    #[default]
    Ready,
    /// At a point of an iteration; of launches there, those of lower place go first.
    Begun {
        /// Iteration of the period; those of the next period count on.
        iteration: usize,
        point: Point,
        /// Position among the launches there.
        #[serde(default)]
        place: usize,
    },
}

/// Where in its iteration a turn is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// At its end.
    #[default]
    End,
    /// At the gates of the forward after it.
    Gate,
}

/// When a turn is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Due {
    /// Iteration of the period; those of the next period count on.
    pub iteration: usize,
    #[serde(default)]
    pub at: At,
}

/// Gradients of iterations `first` to `last`, summed, sent once and applied once. `first` is of the period, `last` perhaps of
/// the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Turn {
    pub first: usize,
    pub last: usize,
    #[serde(default)]
    pub sent: Sent,
    pub due: Due,
}

/// A stage of an iteration, in their order; its gates are those of its forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Begin,
    Gate,
    Backward,
    BackwardEnd,
    End,
}

/// An iteration, a stage of it, and the place among launches there.
pub type Moment = (usize, Stage, usize);

/// How forward waits for what is due before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// For all buckets at once.
    #[default]
    Barrier,
    /// For each bucket at its own gate.
    Gates,
}

/// Turns over a period of iterations. By default every gradient is applied in its own iteration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Schedule {
    /// Number of iterations.
    pub period: usize,
    pub overlap: Overlap,
    /// All buckets have the same turns.
    pub together: bool,
    /// By bucket; every iteration is in exactly one. None: every gradient in its own iteration.
    pub turns: Vec<Vec<Turn>>,
    /// Limit of the iterations after its last one at which a turn is applied.
    pub delay_max: usize,
}

impl Default for Schedule {
    fn default() -> Self {
        let overlap = Overlap::Barrier;
        Self { period: 1, overlap, together: true, turns: Vec::new(), delay_max: 0 }
    }
}

impl Turn {
    /// The turn of one gradient that is applied in its own iteration.
    const fn own(at: At) -> Self {
        Self { first: 0, last: 0, sent: Sent::Ready, due: Due { iteration: 0, at } }
    }

    /// When it is sent.
    pub fn sent_at(&self) -> Moment {
        match self.sent {
            Sent::Ready => (self.last, Stage::Backward, 0),
            Sent::Begun { iteration, point: Point::Begin, place } => (iteration, Stage::Begin, place),
            Sent::Begun { iteration, point: Point::BackwardEnd, place } => {
                (iteration, Stage::BackwardEnd, place)
            }
        }
    }

    /// When it is applied.
    pub fn due_at(&self) -> Moment {
        match self.due.at {
            At::Gate => (self.due.iteration + 1, Stage::Gate, 0),
            At::End => (self.due.iteration, Stage::End, 0),
        }
    }

    /// Whether it has the gradients of an iteration of the period.
    pub fn holds(&self, iteration: usize, period: usize) -> bool {
        let next = iteration + period;
        (self.first..=self.last).contains(&iteration) || (self.first..=self.last).contains(&next)
    }

    /// In how many iterations after its last one it is due.
    pub fn delay(&self) -> usize {
        self.due.iteration.saturating_sub(self.last)
    }
}

impl Schedule {
    /// A schedule of these turns, by bucket.
    pub fn new(period: usize, turns: Vec<Vec<Turn>>) -> Self {
        let all = || turns.iter().flatten();
        let gates = all().any(|turn| turn.due.at == At::Gate);
        Self {
            period,
            overlap: if gates { Overlap::Gates } else { Overlap::Barrier },
            together: turns.windows(2).all(|pair| pair[0] == pair[1]),
            delay_max: all().map(Turn::delay).max().unwrap_or(0),
            turns,
        }
    }

    /// Turns of the given lengths for all buckets, as [`one_after_another`].
    pub fn together(buckets: usize, lengths: &[usize], delay: usize, at: At) -> Self {
        Self::new(lengths.iter().sum(), vec![one_after_another(lengths, delay, at); buckets])
    }

    /// Turns of a bucket over the period.
    ///
    /// # Panics
    /// When there are turns, and none of this bucket.
    pub fn of(&self, bucket: usize) -> &[Turn] {
        match (self.turns.is_empty(), self.overlap) {
            (true, Overlap::Barrier) => &[const { Turn::own(At::End) }],
            (true, Overlap::Gates) => &[const { Turn::own(At::Gate) }],
            (false, _) => &self.turns[bucket],
        }
    }

    /// Mean number of iterations of a turn, over buckets and turns alike.
    pub fn merge(&self) -> f64 {
        let turns: usize = self.turns.iter().map(Vec::len).sum();
        (self.period * self.turns.len()).max(1) as f64 / turns.max(1) as f64
    }

    /// The turn of a bucket that ends in iteration `phase` of the period.
    pub fn ending(&self, bucket: usize, phase: usize) -> Option<&Turn> {
        self.of(bucket).iter().find(|turn| turn.last % self.period == phase)
    }

    /// Number of copies of a bucket's memory: turns that are open at the same time.
    pub fn slots(&self, bucket: usize) -> usize {
        let period = self.period;
        // A turn of an earlier period may not be due yet.
        let open = |turn: &Turn, iteration: usize| {
            let earlier = 0..=turn.due.iteration / period;
            let alive =
                |periods: &usize| (turn.first..=turn.due.iteration).contains(&(iteration + periods * period));
            earlier.filter(alive).count()
        };
        let all = |iteration| self.of(bucket).iter().map(|turn| open(turn, iteration)).sum();
        (0..period).map(all).max().unwrap_or(0)
    }
}

/// One bucket's turns of the given lengths, each sent when it is ready and applied `delay` iterations after its last, but not
/// after the last of the next turn: a bucket has two slots.
pub fn one_after_another(lengths: &[usize], delay: usize, at: At) -> Vec<Turn> {
    let mut first = 0;
    let mut made = Vec::with_capacity(lengths.len());
    for (index, length) in lengths.iter().enumerate() {
        let last = first + length - 1;
        let next_last = last + lengths[(index + 1) % lengths.len()];
        let due = Due { iteration: (last + delay).min(next_last), at };
        made.push(Turn { first, last, sent: Sent::Ready, due });
        first = last + 1;
    }
    made
}
