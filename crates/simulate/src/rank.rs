//! A job: a timeline of acts for each rank, with phases as the common case; and each rank's progress through its own.

use crate::error::Error;
use crate::time::Picos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

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
    pub launches: Vec<Launch>,
    /// Minimum duration of the phase: by rank, one for all, or empty.
    pub busy: Vec<Picos>,
    /// Additional time after everything is done: by rank, one for all, or empty.
    pub tail: Vec<Picos>,
}

/// What a rank does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It computes.
    Compute(Picos),
    /// It starts a launch, and goes on.
    Launch(u32),
    /// It waits until a launch that it started has ended on it.
    Wait(u32),
    /// A phase ends, such as an iteration; its time is in [`crate::Outcome::phase_ends`].
    End,
}

/// A program that every rank starts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Index of its graph.
    pub graph: usize,
    /// Lower goes first, on the engine and on a route.
    pub priority: u32,
}

/// What every rank does, act by act. Launches may outlast phases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    pub world: usize,
    pub launches: Vec<Started>,
    /// By rank, or one for all.
    pub timelines: Vec<Vec<Act>>,
}

impl Job {
    /// Phases one after the other: nothing outlasts its phase.
    ///
    /// [`Error::Job`]: times that are neither for all ranks nor for each.
    pub fn of_phases(world: usize, phases: &[Phase]) -> Result<Self, Error> {
        let lists = |phase: &Phase| {
            let starts = phase.launches.iter().map(|launch| launch.after.len());
            starts.chain([phase.busy.len(), phase.tail.len()]).collect::<Vec<_>>()
        };
        let lengths: Vec<usize> = phases.iter().flat_map(lists).collect();
        if lengths.iter().any(|&length| length > 1 && length != world) {
            return Err(Error::Job { what: format!("a list of times has neither one entry nor {world}") });
        }
        let ranks = if lengths.iter().any(|&length| length > 1) { world } else { 1 };
        let all = phases.iter().flat_map(|phase| &phase.launches);
        let launches = all.map(|launch| Started { graph: launch.graph, priority: launch.priority }).collect();
        let timelines = (0..ranks).map(|rank| timeline(phases, rank)).collect();
        Ok(Self { world, launches, timelines })
    }

    /// What is wrong with it, for so many graphs.
    pub(crate) fn fault(&self, graphs: usize) -> Option<String> {
        if ![1, self.world].contains(&self.timelines.len()) {
            return Some(format!(
                "{} timelines: there is one for all, or {}",
                self.timelines.len(),
                self.world
            ));
        }
        if self.launches.iter().any(|launch| launch.graph >= graphs) {
            return Some("a launch of a graph that does not exist".into());
        }
        let ends = |timeline: &[Act]| timeline.iter().filter(|act| **act == Act::End).count();
        self.timelines.iter().enumerate().find_map(|(rank, timeline)| {
            let mut started = vec![false; self.launches.len()];
            for act in timeline {
                match *act {
                    Act::Launch(launch) => match started.get_mut(launch as usize) {
                        Some(started) if !*started => *started = true,
                        _ => {
                            return Some(format!(
                                "rank {rank} starts launch {launch} twice, or there is none"
                            ));
                        }
                    },
                    Act::Wait(launch) if started.get(launch as usize) != Some(&true) => {
                        return Some(format!(
                            "rank {rank} waits for launch {launch}, which it has not started"
                        ));
                    }
                    _ => {}
                }
            }
            if let Some(launch) = started.iter().position(|started| !started) {
                return Some(format!("rank {rank} never starts launch {launch}"));
            }
            let phases = [ends(timeline), ends(&self.timelines[0])];
            (phases[0] != phases[1])
                .then(|| format!("rank {rank} has {} phases, rank 0 {}", phases[0], phases[1]))
        })
    }

    pub(crate) fn timeline(&self, rank: usize) -> &[Act] {
        &self.timelines[if self.timelines.len() == 1 { 0 } else { rank }]
    }
}

/// Phases as a rank goes through them: launches by time, the rest of its least duration, all waits, its tail.
fn timeline(phases: &[Phase], rank: usize) -> Vec<Act> {
    let (mut acts, mut first) = (Vec::new(), 0);
    for phase in phases {
        let launches = first..first + phase.launches.len() as u32;
        let starts = phase.launches.iter().map(|launch| of(&launch.after, rank));
        let mut timed: Vec<(Picos, u32)> = starts.zip(launches.clone()).collect();
        timed.sort_unstable();
        let mut now = 0;
        for (after, launch) in timed {
            acts.extend([Act::Compute(after - now), Act::Launch(launch)]);
            now = after;
        }
        acts.push(Act::Compute(of(&phase.busy, rank).saturating_sub(now)));
        acts.extend(launches.clone().map(Act::Wait));
        acts.extend([Act::Compute(of(&phase.tail, rank)), Act::End]);
        first = launches.end;
    }
    acts
}

/// The value for a rank of a list by rank, of one for all, or of none.
pub(crate) fn of(times: &[Picos], rank: usize) -> Picos {
    match times {
        [] => 0,
        [one] => *one,
        many => many[rank],
    }
}

/// Work that waits for a rank's engine: priority, order of arrival, the op and its time; of a message that has left, what the engine
/// knows it by.
type Task = Reverse<(u32, u64, u32, u32, Picos, Option<Picos>)>;

/// One rank's engine thread and its progress.
pub(crate) struct Progress {
    pub engine_busy: bool,
    pub tasks: BinaryHeap<Task>,
    /// By way over the bus: copies in the order in which they came, the first one under way; the op and its time.
    pub copies: [VecDeque<(u32, u32, Picos)>; 2],
    /// Factor on its times.
    pub slow: f64,
    /// Of its timeline: the next act.
    pub at: usize,
    /// Phases that have ended here.
    pub phase: usize,
    /// The launch that it waits for.
    pub waits_for: Option<u32>,
    /// Whether its timeline has ended.
    pub ended: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            engine_busy: false,
            tasks: BinaryHeap::new(),
            copies: [VecDeque::new(), VecDeque::new()],
            slow: 1.0,
            at: 0,
            phase: 0,
            waits_for: None,
            ended: false,
        }
    }
}
