//! A job: phases, each of launches that all ranks make; and each rank's progress through them.

use crate::time::Picos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One program started once on every rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Number of its graph.
    pub graph: usize,
    /// Lower values go first, on the engine and on a route.
    pub priority: u32,
    /// Delay from the rank's start of the phase: by rank, or one for all.
    pub after: Vec<Picos>,
}

/// The work between two moments at which a rank waits for everything that it started, such as a training step. Ranks do
/// not wait for each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    #[expect(missing_docs)]
    pub launches: Vec<Launch>,
    /// Minimum duration of the phase: by rank, one for all, or empty.
    pub busy: Vec<Picos>,
    /// Additional time after everything is done: by rank, one for all, or empty.
    pub tail: Vec<Picos>,
}

/// Phases one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    #[expect(missing_docs)]
    pub world: usize,
    #[expect(missing_docs)]
    pub phases: Vec<Phase>,
}

/// The value for a rank of a list by rank, of one for all, or of none.
pub(crate) fn of(times: &[Picos], rank: usize) -> Picos {
    match times {
        [] => 0,
        [one] => *one,
        many => many[rank],
    }
}

/// Work that waits for a rank's engine: priority, order of arrival, then the op.
type Task = Reverse<(u32, u64, u32, u32, Picos)>;

/// One rank's engine thread and its progress.
pub(crate) struct Progress {
    pub engine_busy: bool,
    pub tasks: BinaryHeap<Task>,
    /// Factor on its times.
    pub slow: f64,
    pub phase: u32,
    /// Launches of the phase that have not ended here, and whether its minimum duration has passed.
    pub left: u32,
    /// Whether all phases have ended here.
    pub ended: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { engine_busy: false, tasks: BinaryHeap::new(), slow: 1.0, phase: 0, left: 0, ended: false }
    }
}
