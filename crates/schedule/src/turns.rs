//! Turns of a schedule while training runs: which are open, which have ended, and which are due. The same on all ranks.
//!
//! Buckets that share memory, an *arena*, have the same turns. Iterations and turns count from the first one on.

use crate::{At, Fault, Schedule, Turn};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A turn of one arena in training, until it is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct LiveTurn {
    #[serde(skip)]
    pub arena: usize,
    /// Slot of the arena's memory in which its gradients are summed.
    pub slot: u32,
    /// Number of iterations that it has summed.
    pub iterations: u32,
    /// Its last iteration; none while it is open.
    pub last: Option<u64>,
    /// The iteration with which it is applied; none while it is open.
    pub due: Option<u64>,
    #[serde(default)]
    pub at: At,
}

/// Turns between two iterations, as a checkpoint has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct SavedTurns {
    /// Iterations whose gradients were summed.
    pub made: u64,
    /// By arena, those of them that were applied.
    pub applied: Vec<u64>,
    pub held: bool,
    /// By arena, turns that are not applied, the oldest first; the last one is open.
    pub turns: Vec<Vec<LiveTurn>>,
}

/// Saved turns that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavedFault {
    #[error("saved turns of {found} arenas, and there are {arenas}")]
    Arenas { found: usize, arenas: usize },
    #[error("saved turns of arena {arena} do not fit its {slots} slots")]
    Slots { arena: usize, slots: u32 },
    #[error("saved turns of arena {0} are not of all iterations")]
    Iterations(usize),
}

#[derive(Clone, Debug)]
struct Arena {
    /// One of its buckets.
    bucket: usize,
    slots: u32,
    /// Turns that were applied.
    applied: u32,
    /// Turns since, the oldest first; the last one is open.
    turns: VecDeque<LiveTurn>,
}

/// Turns of a training, by arena.
#[derive(Clone, Debug)]
pub struct Turns {
    schedule: Schedule,
    /// Number of iterations whose gradients were summed.
    pub made: u64,
    /// No turn ends before [`Self::flush`]. It changes between two backwards.
    pub held: bool,
    arenas: Vec<Arena>,
}

impl Turns {
    /// Open turns of a schedule. `arena_of`: the arena of each bucket.
    pub fn new(schedule: Schedule, arena_of: &[usize]) -> Result<Self, Fault> {
        schedule.check(arena_of.len())?;
        let arena = |arena| {
            let bucket = arena_of.iter().position(|&own| own == arena).ok_or(Fault::Arena(arena))?;
            let turns = VecDeque::from([LiveTurn { arena, ..LiveTurn::default() }]);
            Ok(Arena { bucket, slots: schedule.slots(bucket) as u32, applied: 0, turns })
        };
        let count = arena_of.iter().max().map_or(0, |last| last + 1);
        let arenas = (0..count).map(arena).collect::<Result<_, _>>()?;
        Ok(Self { schedule, made: 0, held: false, arenas })
    }

    /// The same turns where a training goes on that was saved, when all was applied that was due.
    pub fn restored(self, saved: SavedTurns) -> Result<Self, SavedFault> {
        let arenas = self.arenas.len();
        if saved.turns.len() != arenas || saved.applied.len() != arenas {
            return Err(SavedFault::Arenas { found: saved.turns.len(), arenas });
        }
        let made = saved.made;
        let restored = |((own, turns), applied): ((Arena, Vec<LiveTurn>), u64)| {
            let (arena, slots) = (own.turns[0].arena, own.slots);
            let Some((open, ended)) = turns.split_last() else {
                return Err(SavedFault::Slots { arena, slots });
            };
            let follows = |pair: &[LiveTurn]| pair[1].slot == (pair[0].slot + 1) % slots;
            if ended.len() > slots as usize || turns[0].slot >= slots || !turns.windows(2).all(follows) {
                return Err(SavedFault::Slots { arena, slots });
            }
            let all = turns.iter().fold(applied, |all, turn| all.saturating_add(turn.iterations.into()));
            let waits = |turn: &LiveTurn| {
                turn.iterations > 0 && turn.last < Some(made) && turn.last.is_some() && turn.due >= Some(made)
            };
            if all != made || open.last.is_some() || open.due.is_some() || !ended.iter().all(waits) {
                return Err(SavedFault::Iterations(arena));
            }
            let turns = turns.into_iter().map(|turn| LiveTurn { arena, ..turn }).collect();
            Ok(Arena { turns, ..own })
        };
        let given = self.arenas.into_iter().zip(saved.turns).zip(saved.applied);
        let arenas = given.map(restored).collect::<Result<_, _>>()?;
        Ok(Self { made, held: saved.held, arenas, ..self })
    }

    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Number of iterations whose gradients were handed out to be applied; the least of all arenas.
    pub fn handed_out(&self) -> u64 {
        let left =
            |arena: &Arena| -> u64 { arena.left(self.made).map(|turn| u64::from(turn.iterations)).sum() };
        self.made - self.arenas.iter().map(left).max().unwrap_or(0)
    }

    /// Iteration of the period that comes next.
    pub fn phase(&self) -> usize {
        (self.made % self.schedule.period as u64) as usize
    }

    /// Number of arenas.
    pub fn arenas(&self) -> usize {
        self.arenas.len()
    }

    /// Number of slots of an arena.
    pub fn slots(&self, arena: usize) -> u32 {
        self.arenas[arena].slots
    }

    /// Number of turns of an arena that were applied.
    pub fn applied(&self, arena: usize) -> u32 {
        self.arenas[arena].applied
    }

    /// Number of turns of an arena that have ended.
    pub fn ended(&self, arena: usize) -> u32 {
        let own = &self.arenas[arena];
        own.applied + own.turns.len() as u32 - 1
    }

    /// The open turn of an arena.
    pub fn open(&self, arena: usize) -> &LiveTurn {
        self.turn(arena, self.ended(arena))
    }

    /// An arena's turn of that number, which is not applied.
    pub fn turn(&self, arena: usize, number: u32) -> &LiveTurn {
        let own = &self.arenas[arena];
        &own.turns[(number - own.applied) as usize]
    }

    /// By arena, turns that are not applied, the oldest first; the last one is open.
    pub fn unapplied(&self) -> Vec<Vec<LiveTurn>> {
        self.arenas.iter().map(|own| own.turns.iter().cloned().collect()).collect()
    }

    /// Whether turns of an arena have ended that are not due yet.
    pub fn waits(&self, arena: usize) -> bool {
        self.arenas[arena].left(self.made).nth(1).is_some()
    }

    /// The turn of a bucket's schedule that ends in the iteration under way.
    pub fn ending(&self, bucket: usize) -> Option<&Turn> {
        if self.held { None } else { self.schedule.ending(bucket, self.phase()) }
    }

    /// Ends the backward of an iteration. Returns the turns that are due with it, at most one of each arena.
    pub fn finish(&mut self) -> Vec<LiveTurn> {
        let made = self.made;
        let ends: Vec<_> = self
            .arenas
            .iter()
            .map(|own| self.ending(own.bucket).map(|turn| (made + turn.delay() as u64, turn.due.at)))
            .collect();
        let mut due = Vec::new();
        for (own, ends) in self.arenas.iter_mut().zip(ends) {
            own.open().iterations += 1;
            if let Some((due, at)) = ends {
                own.end(made, due, at);
            }
            due.extend(own.turns.iter().find(|turn| turn.due == Some(made)).cloned());
        }
        self.made += 1;
        due
    }

    /// Ends all turns that have gradients, however few; turns end as the schedule says from then on. Returns those that are
    /// to be applied, in rounds that have at most one turn of each arena, and that are no longer waited for.
    pub fn flush(&mut self) -> Vec<Vec<LiveTurn>> {
        self.held = false;
        let mut rounds: Vec<Vec<LiveTurn>> = Vec::new();
        for own in &mut self.arenas {
            for (round, turn) in own.flush(self.made).into_iter().enumerate() {
                rounds.resize(rounds.len().max(round + 1), Vec::new());
                rounds[round].push(turn);
            }
        }
        rounds
    }

    /// The oldest turn of an arena was used, which has ended: its slot may fill again.
    pub fn apply(&mut self, arena: usize) {
        let own = &mut self.arenas[arena];
        debug_assert!(own.turns.len() > 1, "the open turn of arena {arena} is applied");
        own.turns.pop_front();
        own.applied += 1;
    }
}

impl Arena {
    /// Turns that were not handed out, before iteration `made`; the last one is open.
    fn left(&self, made: u64) -> impl Iterator<Item = &LiveTurn> {
        self.turns.iter().filter(move |turn| turn.due.is_none_or(|due| due >= made))
    }

    fn open(&mut self) -> &mut LiveTurn {
        self.turns.back_mut().expect("one is open")
    }

    /// The open turn ends.
    fn end(&mut self, last: u64, due: u64, at: At) {
        let slots = self.slots;
        let turn = self.open();
        (turn.last, turn.due, turn.at) = (Some(last), Some(due), at);
        let next = LiveTurn { arena: turn.arena, slot: (turn.slot + 1) % slots, ..LiveTurn::default() };
        self.turns.push_back(next);
    }

    /// Ends the open turn if it has gradients. Returns what was not handed out, which is due with the last iteration.
    fn flush(&mut self, made: u64) -> Vec<LiveTurn> {
        let mut left = self.left(made).count();
        if self.open().iterations == 0 {
            left -= 1;
        } else {
            self.end(made - 1, made - 1, At::End);
        }
        let ended = self.turns.len() - 1;
        let flushed = self.turns.range_mut(ended - left..ended);
        flushed
            .map(|turn| {
                turn.due = Some(made - 1);
                turn.clone()
            })
            .collect()
    }
}
