//! The ranks' work for the engine: ops with a number of dependencies. Listed op by op, or computed from a pattern.

use crate::pattern::{AllToAll, Ring};
use crate::step::Step;
use std::ops::Range;

/// The ops of all ranks. Numbers of ops are dense.
#[derive(Clone, Debug)]
pub enum Graph {
    /// As compiled from a program.
    Listed(Listed),
    /// All with all at once.
    Ring(Ring),
    /// Everybody with everybody at once.
    AllToAll(AllToAll),
}

/// Ops one by one; those of a rank are consecutive.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// Of the program.
    pub name: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) waits: Vec<u32>,
    /// The dependents of op `i` are `then[first_then[i]..first_then[i + 1]]`.
    pub(crate) first_then: Vec<u32>,
    pub(crate) then: Vec<u32>,
    /// Ops of rank `r` are `first[r]..first[r + 1]`.
    pub(crate) first: Vec<u32>,
}

impl Listed {
    /// Numbers of a rank's ops; of a rank beyond the program's none.
    fn of(&self, rank: u32) -> Range<u32> {
        let edge = |at: u32| self.first.get(at as usize).copied();
        edge(rank).zip(edge(rank + 1)).map_or(0..0, |(start, stop)| start..stop)
    }
}

impl Graph {
    /// A description for people.
    pub fn name(&self) -> &str {
        match self {
            Self::Listed(listed) => &listed.name,
            Self::Ring(_) => "ring",
            Self::AllToAll(_) => "all_to_all",
        }
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        match self {
            Self::Listed(listed) => listed.first.len().saturating_sub(1),
            Self::Ring(ring) => ring.world(),
            Self::AllToAll(all) => all.world(),
        }
    }

    /// Number of ops.
    pub fn ops(&self) -> u32 {
        match self {
            Self::Listed(listed) => listed.steps.len() as u32,
            Self::Ring(ring) => ring.ops(),
            Self::AllToAll(all) => all.ops(),
        }
    }

    /// The op.
    pub fn step(&self, op: u32) -> Step {
        match self {
            Self::Listed(listed) => listed.steps[op as usize],
            Self::Ring(ring) => ring.step(op),
            Self::AllToAll(all) => all.step(op),
        }
    }

    /// Number of an op's dependencies within its rank.
    pub fn waits(&self, op: u32) -> u32 {
        match self {
            Self::Listed(listed) => listed.waits[op as usize],
            Self::Ring(ring) => ring.waits(op),
            Self::AllToAll(_) => 0,
        }
    }

    /// Calls `next` with each dependent op.
    #[inline]
    pub fn successors(&self, op: u32, mut next: impl FnMut(u32)) {
        match self {
            Self::Listed(listed) => {
                let (start, stop) = (listed.first_then[op as usize], listed.first_then[op as usize + 1]);
                listed.then[start as usize..stop as usize].iter().copied().for_each(next);
            }
            Self::Ring(ring) => ring.successors(op).into_iter().flatten().for_each(&mut next),
            Self::AllToAll(_) => {}
        }
    }

    /// A rank's ops without dependencies.
    pub fn roots(&self, rank: u32, mut each: impl FnMut(u32)) {
        match self {
            Self::Listed(listed) => {
                listed.of(rank).filter(|&op| listed.waits[op as usize] == 0).for_each(each);
            }
            Self::Ring(ring) => ring.roots(rank).into_iter().flatten().for_each(&mut each),
            Self::AllToAll(all) => all.roots(rank).for_each(each),
        }
    }

    /// Number of a rank's ops that must end before the rank has.
    pub fn counted(&self, rank: u32) -> u32 {
        match self {
            Self::Listed(listed) => listed.of(rank).len() as u32,
            Self::Ring(ring) => ring.ops() / 2 / ring.world().max(1) as u32,
            Self::AllToAll(all) => all.world() as u32 - 1,
        }
    }

    /// The op's position in its rank's program.
    pub fn place(&self, op: u32) -> u32 {
        match self {
            Self::Listed(listed) => op - listed.first[listed.steps[op as usize].rank as usize],
            Self::Ring(ring) => op / 2 / ring.world() as u32 * 2 + op % 2,
            Self::AllToAll(all) => op / 2 / all.world() as u32 * 2 + op % 2,
        }
    }
}
