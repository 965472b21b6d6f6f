//! A schedule: for each bucket, which iterations' gradients form one launch, when it leaves and when it is applied.

/// When a turn is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sent {
    /// As soon as its last gradient has arrived.
    Ready,
    /// When an iteration of the period begins; of launches there, those of lower place go first.
    Begun {
        /// Iteration of the period; those of the next period count on.
        iteration: usize,
        /// Position among the launches there.
        place: usize,
    },
}

/// When a turn is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    /// Iteration of the period; those of the next period count on.
    pub iteration: usize,
    /// At the gates of the following forward, instead of at its end.
    pub gate: bool,
}

/// Gradients of iterations `first` to `last` of the period, summed, sent once and applied once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the line above")]
pub struct Turn {
    pub first: usize,
    pub last: usize,
    pub sent: Sent,
    pub due: Due,
}

/// Turns over a period of iterations, which is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Number of iterations.
    pub period: usize,
    /// By bucket, ascending; every iteration is in exactly one.
    pub turns: Vec<Vec<Turn>>,
}

impl Schedule {
    /// Turns of the given lengths for all buckets, each sent when it is ready and applied `delay` iterations after its
    /// last, but
    /// not after the last of the next turn: a bucket has two slots.
    pub fn together(buckets: usize, lengths: &[usize], delay: usize, gate: bool) -> Self {
        let turns = turns(lengths, delay, gate);
        Self { period: lengths.iter().sum(), turns: vec![turns; buckets] }
    }

    /// Mean number of iterations of a turn, over buckets and turns alike.
    pub fn merge(&self) -> f64 {
        let turns: usize = self.turns.iter().map(Vec::len).sum();
        (self.period * self.turns.len()) as f64 / turns.max(1) as f64
    }

    /// The largest number of iterations after its last one at which a turn is applied.
    pub fn delay(&self) -> usize {
        self.turns.iter().flatten().map(|turn| turn.due.iteration - turn.last).max().unwrap_or(0)
    }
}

/// One bucket's turns of the given lengths.
pub(super) fn turns(lengths: &[usize], delay: usize, gate: bool) -> Vec<Turn> {
    let mut first = 0;
    let mut made = Vec::with_capacity(lengths.len());
    for (at, length) in lengths.iter().enumerate() {
        let last = first + length - 1;
        let next_last = last + lengths[(at + 1) % lengths.len()];
        let due = Due { iteration: (last + delay).min(next_last), gate };
        made.push(Turn { first, last, sent: Sent::Ready, due });
        first = last + 1;
    }
    made
}

/// `turns` over `iterations`, as evenly as whole iterations allow.
pub(super) fn spread(iterations: usize, turns: usize) -> Vec<usize> {
    let end = |turn: usize| (turn * iterations).div_ceil(turns);
    (0..turns).map(|turn| end(turn + 1) - end(turn)).collect()
}
