//! Which gradients have arrived, and what is launched therefore.
//!
//! Three things are told apart for each turn of a bucket ([`hocket_schedule`]): it is *ready* when all its gradients are there, or
//! backward has ended; *launched* when its program runs or ran; *applied* when its result was used, and its memory may fill again.
//! Whoever trains calls [`Readiness::open`] and [`Readiness::arrive`] for each gradient, [`Readiness::finish`] after backward, and for
//! each bucket [`Readiness::wait`] and [`Readiness::applied`].
//!
//! Turns of a bucket are launched in order. Each has a slot (its number modulo the slots), so that one may be in flight while the
//! next one fills.
//!
//! Where a bucket's program works on single gradients, its launch begins with the first of them, and each is worked on as it comes;
//! what needs more of the bucket runs when all are there.
//!
//! Budget of an arrival: one bit and two counters. The last gradient of a bucket adds a look at the schedule and a launch.

mod beginning;
mod launcher;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod training;

pub use launcher::Launcher;

use crate::error::Error;
use crate::lock::lock;
use beginning::Beginning;
use hocket_schedule::{LiveTurn, Point, Schedule, Sent, Turns};
use hocket_sync::arrivals::{self, Arrivals};
use hocket_wire::clock::now_ns;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What an arrival was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The gradient's first in this backward.
    Counted,
    /// More of a gradient that had arrived; it was added before its turn left.
    Again,
    /// More of a gradient after its turn was launched: what was sent lacks it.
    Late,
}

/// Turns of a bucket so far. Never more applied than launched, nor more launched than ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whose gradients were all there, or whose backward has ended.
    pub ready: u32,
    /// That were launched.
    pub launched: u32,
    /// Whose result was used.
    pub applied: u32,
}

struct Bucket {
    program: u32,
    /// Buckets that share memory have the same turns.
    arena: usize,
    /// How often the program had been launched before, less what was launched before training was resumed; it wraps.
    before: u32,
    arrivals: Arrivals,
    /// By gradient: when it arrived last, on the clock of `now_ns`; kept only while times are.
    times_ns: Vec<AtomicU64>,
    /// Number of turns that were launched.
    launched: AtomicU32,
    /// Where the program works on single gradients.
    beginning: Option<Beginning>,
}

/// Counts the gradients of all buckets and launches their programs by the turns of a schedule.
pub struct Readiness<L> {
    launcher: Arc<L>,
    turns: Mutex<Turns>,
    buckets: Vec<Bucket>,
    enabled: AtomicBool,
    timed: AtomicBool,
    /// A gradient of this backward has come.
    open: AtomicBool,
    /// Gradients that arrived in this backward.
    arrived: AtomicU32,
}

/// Turns that are due, and what became of launches: of several errors, the first.
pub type Ended<T> = (Vec<T>, Result<(), Error>);

impl<L: Launcher> Readiness<L> {
    /// `buckets`: the program and the number of gradients of each, in an arena of its own. One without gradients is ready when
    /// backward ends.
    pub fn new(launcher: Arc<L>, buckets: &[(u32, usize)], schedule: Schedule) -> Result<Self, Error> {
        let arena_of: Vec<_> = (0..buckets.len()).collect();
        let turns =
            Turns::new(schedule, &arena_of).map_err(|fault| Error::Usage(format!("schedule: {fault}")))?;
        let of_arenas = |(arena, &(program, gradients))| (program, gradients, arena);
        Self::over(launcher, &buckets.iter().enumerate().map(of_arenas).collect::<Vec<_>>(), turns, &[])
    }

    /// The same in any arenas, where training goes on. `buckets`: the program, the number of gradients and the arena of each.
    /// `reduced`: by bucket, how many of the oldest turns that are not applied were launched before; none where it ends.
    ///
    /// [`Error::Usage`]: turns for which there are no slots.
    pub fn over(
        launcher: Arc<L>,
        buckets: &[(u32, usize, usize)],
        turns: Turns,
        reduced: &[u32],
    ) -> Result<Self, Error> {
        let bucket = |(at, &(program, gradients, arena)): (usize, &(u32, usize, usize))| {
            if arena >= turns.arenas() {
                return Err(Error::Usage(format!("turns of {} arenas: there is no {arena}", turns.arenas())));
            }
            let (slots, there) = (turns.slots(arena), launcher.slots(program)?);
            if slots > there {
                let what = format!("a schedule of {slots} slots for bucket {at}; its program has {there}");
                return Err(Error::Usage(what));
            }
            let (applied, ended) = (turns.applied(arena), turns.ended(arena));
            let left = reduced.get(at).copied().unwrap_or(0);
            if left > ended - applied {
                let what = format!("bucket {at}: {left} turns were launched, of {}", ended - applied);
                return Err(Error::Usage(what));
            }
            Ok(Bucket {
                program,
                arena,
                before: launcher.launched(program)?.wrapping_sub(applied + left),
                arrivals: Arrivals::new(gradients),
                times_ns: (0..gradients).map(|_| AtomicU64::new(0)).collect(),
                launched: AtomicU32::new(applied + left),
                beginning: (gradients > 0 && launcher.early(program)? == Some(gradients))
                    .then(Beginning::new),
            })
        };
        let buckets = buckets.iter().enumerate().map(bucket).collect::<Result<_, _>>()?;
        Ok(Self {
            launcher,
            turns: Mutex::new(turns),
            buckets,
            enabled: AtomicBool::new(true),
            timed: AtomicBool::new(false),
            open: AtomicBool::new(false),
            arrived: AtomicU32::new(0),
        })
    }

    /// What runs the programs.
    pub fn launcher(&self) -> &Arc<L> {
        &self.launcher
    }

    /// Whether gradients count; they do not while they accumulate only.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Says whether gradients count.
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Turns as they are now.
    pub fn turns(&self) -> MutexGuard<'_, Turns> {
        lock(&self.turns)
    }

    /// From now on no turn ends: gradients are summed until [`Self::flush`]. Not within a backward.
    pub fn hold(&self) {
        self.turns().held = true;
    }

    /// How many slots `bucket` has.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn slots(&self, bucket: usize) -> u32 {
        self.turns().slots(self.buckets[bucket].arena)
    }

    /// The turn that the gradients of `bucket` are added to.
    pub fn open_turn(&self, bucket: usize) -> Result<LiveTurn, Error> {
        let arena = self.bucket(bucket)?.arena;
        Ok(self.turns().open(arena).clone())
    }

    /// Says whether [`Self::times`] are kept: a look at the clock per gradient.
    pub fn set_timed(&self, timed: bool) {
        self.timed.store(timed, Ordering::Relaxed);
    }

    /// How many gradients `bucket` has, if there is such a bucket.
    pub fn gradients(&self, bucket: usize) -> Option<usize> {
        self.buckets.get(bucket).map(|own| own.arrivals.gradients())
    }

    /// A gradient is about to arrive; whether it is the first of a backward.
    pub fn open(&self) -> bool {
        // The load keeps the cache line shared for all but the first.
        !self.open.load(Ordering::Acquire) && !self.open.swap(true, Ordering::AcqRel)
    }

    /// After the first [`Self::open`] of a backward: its gradients may be written.
    ///
    /// [`Error::Usage`]: a bucket's slot still holds what was not applied. The job's failure, if it has failed.
    pub fn check(&self) -> Result<(), Error> {
        let turns = self.turns();
        let full = |own: &Bucket| turns.ended(own.arena) - turns.applied(own.arena) >= turns.slots(own.arena);
        match self.buckets.iter().position(full) {
            None => Ok(()),
            Some(bucket) => Err(self.launcher.failure().unwrap_or_else(|| {
                Error::Usage(format!("a backward began before what bucket {bucket} reduced was applied"))
            })),
        }
    }

    /// Gradient `index` of `bucket` is in its place; launches the bucket if it was the last and the schedule says so.
    ///
    /// # Panics
    /// When there is no such gradient.
    pub fn arrive(&self, bucket: usize, index: usize) -> Result<Arrival, Error> {
        let own = &self.buckets[bucket];
        if self.timed.load(Ordering::Relaxed) {
            own.times_ns[index].store(now_ns(), Ordering::Relaxed);
        }
        let noted = own.arrivals.note(index, || self.arrived.fetch_add(1, Ordering::Relaxed));
        if let Some(beginning) = &own.beginning
            && noted != arrivals::Arrival::Again
            && beginning.come(
                own.arrivals.gradients(),
                || self.launch_early(bucket),
                |last| self.work_on(own, index, last),
            )?
        {
            return Ok(Arrival::Counted);
        }
        match noted {
            arrivals::Arrival::Counted => Ok(Arrival::Counted),
            arrivals::Arrival::Last => {
                let turns = self.turns();
                if let Some(ends) = turns.ending(bucket)
                    && ends.sent == Sent::Ready
                {
                    let (number, open) = (turns.ended(own.arena), turns.open(own.arena).clone());
                    let due = Some(turns.made + ends.delay() as u64);
                    drop(turns);
                    self.launch(own, number, &LiveTurn { iterations: open.iterations + 1, due, ..open })?;
                }
                Ok(Arrival::Counted)
            }
            arrivals::Arrival::Again => {
                let left = own.launched.load(Ordering::Acquire) > self.turns().ended(own.arena);
                Ok(if left { Arrival::Late } else { Arrival::Again })
            }
        }
    }

    /// Begins the bucket's launch before its gradients are there, if it is launched when they are; whether it began.
    fn launch_early(&self, bucket: usize) -> Result<bool, Error> {
        let (own, turns) = (&self.buckets[bucket], self.turns());
        let (number, open) = (turns.ended(own.arena), turns.open(own.arena));
        let Some(ends) = turns.ending(bucket).filter(|ends| ends.sent == Sent::Ready) else {
            return Ok(false);
        };
        // What sums several iterations is multiplied before it is worked on.
        if open.iterations > 0 || own.launched.load(Ordering::Acquire) != number {
            return Ok(false);
        }
        let (slot, due) = (open.slot, due_in(Some(turns.made + ends.delay() as u64)));
        drop(turns);
        let begun = self.launcher.launch_early(own.program, slot, due)?;
        own.launched.fetch_add(u32::from(begun), Ordering::AcqRel);
        Ok(begun)
    }

    /// Has the launcher work on a gradient of a launch that began early, and on the rest after the last one.
    fn work_on(&self, own: &Bucket, index: usize, last: bool) -> Result<(), Error> {
        self.launcher.gradient_is_there(own.program, index as u32);
        if last { self.launcher.all_are_there(own.program) } else { Ok(()) }
    }

    /// Backward has ended: what began early goes on as it is, and the next backward begins anew. Of several errors, the first.
    fn end_early(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for own in &self.buckets {
            let Some(beginning) = &own.beginning else { continue };
            if beginning.is_early() {
                for (index, _) in own.arrivals.places().enumerate().filter(|(_, place)| place.is_none()) {
                    self.launcher.gradient_is_there(own.program, index as u32);
                }
                outcome = outcome.and(self.launcher.all_are_there(own.program));
            }
            beginning.end();
        }
        outcome
    }

    /// (bucket, index) of the gradients that have not arrived in this backward.
    pub fn missing(&self) -> Vec<(usize, usize)> {
        self.places().filter_map(|(at, place)| place.is_none().then_some(at)).collect()
    }

    /// (bucket, index) of those that have, in their order.
    pub fn order(&self) -> Vec<(usize, usize)> {
        let mut order: Vec<_> =
            self.places().filter_map(|(at, place)| place.map(|place| (place, at))).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, at)| at).collect()
    }

    /// (bucket, index) of the gradients that have arrived in this backward, and when each did, ns; 0 where times are not kept.
    pub fn times(&self) -> Vec<((usize, usize), u64)> {
        let time =
            |(bucket, index): (usize, usize)| self.buckets[bucket].times_ns[index].load(Ordering::Relaxed);
        self.order().into_iter().map(|at| (at, time(at))).collect()
    }

    fn places(&self) -> impl Iterator<Item = ((usize, usize), Option<u32>)> + '_ {
        let of = |(bucket, own): (usize, &'_ Bucket)| {
            let places: Vec<_> = own.arrivals.places().enumerate().collect();
            places.into_iter().map(move |(index, place)| ((bucket, index), place))
        };
        self.buckets.iter().enumerate().flat_map(of)
    }

    /// Launches the buckets that the schedule lists at `point` of this iteration.
    pub fn begin(&self, point: Point) -> Result<(), Error> {
        let phase = self.turns().phase();
        self.begin_in(phase, point)
    }

    fn begin_in(&self, phase: usize, point: Point) -> Result<(), Error> {
        let turns = self.turns();
        let launched: Vec<_> =
            turns.schedule().launched_at(phase, point).into_iter().map(|(bucket, _)| bucket).collect();
        drop(turns);
        // In the first period there may be none yet.
        launched.into_iter().try_for_each(|bucket| self.launch_ended(bucket, 1))
    }

    /// Launches all turns that have ended and were not, whatever the schedule says. Of several errors, the first.
    pub fn launch_all(&self) -> Result<(), Error> {
        let all = (0..self.buckets.len()).map(|bucket| self.launch_ended(bucket, usize::MAX));
        all.fold(Ok(()), Result::and)
    }

    /// Launches so many of the bucket's turns that have ended and were not.
    fn launch_ended(&self, bucket: usize, count: usize) -> Result<(), Error> {
        let (own, turns) = (&self.buckets[bucket], self.turns());
        let left = own.launched.load(Ordering::Acquire)..turns.ended(own.arena);
        let left: Vec<_> =
            left.take(count).map(|number| (number, turns.turn(own.arena, number).clone())).collect();
        drop(turns);
        left.iter().map(|(number, turn)| self.launch(own, *number, turn)).fold(Ok(()), Result::and)
    }

    /// Ends all turns that have gradients, however few, and launches whatever was not; turns end as the schedule says
    /// from then on. Not within a backward. Returns what is due, in rounds, as [`Turns::flush`].
    pub fn flush(&self) -> Ended<Vec<LiveTurn>> {
        let due = self.turns().flush();
        (due, self.launch_all())
    }

    /// Backward has ended: what leaves in this iteration is launched as it is, and the next iteration begins. Returns what is
    /// due, as [`Turns::finish`].
    pub fn finish(&self) -> Ended<LiveTurn> {
        let mut turns = self.turns();
        let phase = turns.phase();
        let ready = |&bucket: &usize| turns.ending(bucket).is_some_and(|ends| ends.sent == Sent::Ready);
        let ready: Vec<_> = (0..self.buckets.len()).filter(ready).collect();
        let due = turns.finish();
        drop(turns);
        let outcome = self.end_early();
        let outcome = ready.into_iter().map(|bucket| self.launch_ended(bucket, 1)).fold(outcome, Result::and);
        self.buckets.iter().for_each(|own| own.arrivals.reset());
        self.arrived.store(0, Ordering::Relaxed);
        let outcome = outcome.and_then(|()| self.begin_in(phase, Point::BackwardEnd));
        self.open.store(false, Ordering::Release);
        (due, outcome)
    }

    /// Waits for the oldest launch of `bucket` that was not applied, if there is one, as [`Engine::wait`].
    pub fn wait(
        &self,
        bucket: usize,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        let own = self.bucket(bucket)?;
        let applied = self.turns().applied(own.arena);
        if own.launched.load(Ordering::Acquire) == applied {
            return Ok(true);
        }
        let launches = own.before.wrapping_add(applied).wrapping_add(1);
        self.launcher.wait(own.program, launches, timeout, interrupted)
    }

    /// What the oldest launches of `arena` reduced was used: its slot may fill again.
    pub fn applied(&self, arena: usize) -> Result<(), Error> {
        let mut turns = self.turns();
        let mut own = self.buckets.iter().filter(|own| own.arena == arena).peekable();
        let left = |own: &Bucket| {
            turns.applied(arena) < own.launched.load(Ordering::Acquire).min(turns.ended(arena))
        };
        if own.peek().is_none() || !own.all(left) {
            return Err(Error::Usage(format!("nothing of arena {arena} is left to apply")));
        }
        turns.apply(arena);
        Ok(())
    }

    /// How far `bucket` is.
    pub fn progress(&self, bucket: usize) -> Result<Progress, Error> {
        let (own, turns) = (self.bucket(bucket)?, self.turns());
        let complete = own.arrivals.gradients() > 0 && own.arrivals.is_complete();
        Ok(Progress {
            ready: turns.ended(own.arena) + u32::from(turns.ending(bucket).is_some() && complete),
            launched: own.launched.load(Ordering::Acquire)
                - u32::from(own.beginning.as_ref().is_some_and(Beginning::is_early)),
            applied: turns.applied(own.arena),
        })
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    fn bucket(&self, bucket: usize) -> Result<&Bucket, Error> {
        self.buckets.get(bucket).ok_or_else(|| Error::Usage(format!("there is no bucket {bucket}")))
    }

    /// Launches the turn of that number, if it was not.
    fn launch(&self, own: &Bucket, number: u32, turn: &LiveTurn) -> Result<(), Error> {
        let claimed = own.launched.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_err() {
            return Ok(());
        }
        self.launcher.launch(own.program, turn.slot, 1.0 / f64::from(turn.iterations), due_in(turn.due))
    }
}

/// The iteration in which a launch is due: what has no turn at 0, before all that has.
fn due_in(due: Option<u64>) -> u32 {
    due.map_or(0, |due| due.wrapping_add(1) as u32)
}
