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
//! Budget of an arrival: one bit and two counters. The last gradient of a bucket adds a look at the schedule and a launch.

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use crate::engine::Engine;
use crate::error::Error;
use hocket_schedule::{Point, Schedule, Sent, Turn};
use hocket_sync::arrivals::{self, Arrivals};
use hocket_wire::clock::now_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What runs programs.
pub trait Launcher {
    /// How many places a program has for what it reduces.
    fn slots(&self, program: u32) -> Result<u32, Error>;

    /// How often it was launched.
    fn launched(&self, program: u32) -> Result<u32, Error>;

    /// Starts an instance of `program` on `slot`, whose elements it multiplies with `factor` first, when those before
    /// are complete; returns at once. Not while an instance on that slot runs. What is `due` in an earlier iteration goes first.
    fn launch(&self, program: u32, slot: u32, factor: f64, due: u32) -> Result<(), Error>;

    /// Waits for the first `launches` instances of `program`, as [`Engine::wait`].
    fn wait(
        &self,
        program: u32,
        launches: u32,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error>;

    /// Why nothing can be launched any more.
    fn failure(&self) -> Option<Error>;
}

impl Launcher for Engine {
    fn slots(&self, program: u32) -> Result<u32, Error> {
        Ok(self.loaded(program)?.sets())
    }

    fn launched(&self, program: u32) -> Result<u32, Error> {
        Ok(self.loaded(program)?.asked())
    }

    fn launch(&self, program: u32, slot: u32, factor: f64, due: u32) -> Result<(), Error> {
        self.launch_on(program, slot, factor, due)
    }

    fn wait(
        &self,
        program: u32,
        launches: u32,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        self.wait_for(program, launches, timeout, interrupted)
    }

    fn failure(&self) -> Option<Error> {
        Self::failure(self)
    }
}

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
    /// How often the program had been launched before, less what was launched before training was resumed; it wraps.
    before: u32,
    slots: u32,
    arrivals: Arrivals,
    /// By gradient: when it arrived last, on the clock of `now_ns`; kept only while times are.
    times_ns: Vec<AtomicU64>,
    /// The turn that gradients are added to.
    turn: AtomicU32,
    /// By slot: iterations that its turn has summed, those that have ended.
    summed: Vec<AtomicU32>,
    /// By slot: the iteration that needs its turn.
    due: Vec<AtomicU32>,
    launched: AtomicU32,
    applied: AtomicU32,
}

/// How far the turns of a bucket were when training stopped, to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The slot that gradients are added to.
    pub slot: u32,
    /// Iterations that the open turn has summed.
    pub summed: u32,
    /// Turns that were reduced and not applied.
    pub reduced: u32,
    /// Of each turn that has ended and was not launched, how many iterations it has summed; the oldest first.
    pub waiting: Vec<u32>,
}

/// Counts the gradients of all buckets and launches their programs by a schedule.
pub struct Readiness<L> {
    launcher: Arc<L>,
    schedule: Schedule,
    buckets: Vec<Bucket>,
    enabled: AtomicBool,
    /// Turns go on until [`Readiness::flush`].
    held: AtomicBool,
    /// Whether times of arrivals are kept.
    timed: AtomicBool,
    /// A backward has begun and not ended.
    open: AtomicBool,
    /// Iteration of the period.
    phase: AtomicUsize,
    /// Iteration of all, from 1; it wraps.
    iteration: AtomicU32,
    /// Gradients that arrived in this backward.
    arrived: AtomicU32,
}

impl<L: Launcher> Readiness<L> {
    /// `buckets`: the program and the number of gradients of each. One without gradients is ready when backward ends.
    pub fn new(launcher: Arc<L>, buckets: &[(u32, usize)], schedule: Schedule) -> Result<Self, Error> {
        let places = vec![Place::default(); buckets.len()];
        Self::resumed(launcher, buckets, schedule, 0, &places)
    }

    /// The same, where training goes on: in iteration `phase` of the period, with each bucket at its place. What was reduced lies in
    /// the slots before those that wait, which are before the open one.
    ///
    /// [`Error::Usage`]: a schedule that cannot be kept, or turns for which there are no slots.
    pub fn resumed(
        launcher: Arc<L>,
        buckets: &[(u32, usize)],
        schedule: Schedule,
        phase: usize,
        places: &[Place],
    ) -> Result<Self, Error> {
        schedule.check(buckets.len()).map_err(|fault| Error::Usage(format!("schedule: {fault}")))?;
        if places.len() != buckets.len() {
            return Err(Error::Usage(format!(
                "places of {} buckets: there are {}",
                places.len(),
                buckets.len()
            )));
        }
        if phase >= schedule.period {
            return Err(Error::Usage(format!("iteration {phase} of a period of {}", schedule.period)));
        }
        let mut made = Vec::with_capacity(buckets.len());
        for (at, (&(program, gradients), place)) in buckets.iter().zip(places).enumerate() {
            let (slots, there) = (schedule.slots(at) as u32, launcher.slots(program)?);
            if slots > there {
                let what = format!("a schedule of {slots} slots for bucket {at}; its program has {there}");
                return Err(Error::Usage(what));
            }
            let waiting = place.waiting.len() as u32;
            let older = place.reduced.saturating_add(waiting);
            if older + u32::from(place.summed > 0) > slots
                || place.slot >= slots
                || place.waiting.contains(&0)
            {
                let what =
                    format!("bucket {at}: {older} turns before the one in slot {}, of {slots}", place.slot);
                return Err(Error::Usage(what));
            }
            // The least number that has this slot, with all turns before it that are not applied.
            let turn = older + (place.slot + slots - older % slots) % slots;
            let left = turn - waiting;
            let summed: Vec<_> = (0..slots).map(|_| AtomicU32::new(0)).collect();
            for (number, &iterations) in (left..).zip(&place.waiting) {
                summed[(number % slots) as usize].store(iterations, Ordering::Relaxed);
            }
            if place.summed > 0 {
                summed[(turn % slots) as usize].store(place.summed, Ordering::Relaxed);
            }
            made.push(Bucket {
                program,
                before: launcher.launched(program)?.wrapping_sub(left),
                slots,
                arrivals: Arrivals::new(gradients),
                times_ns: (0..gradients).map(|_| AtomicU64::new(0)).collect(),
                turn: AtomicU32::new(turn),
                summed,
                due: (0..slots).map(|_| AtomicU32::new(0)).collect(),
                launched: AtomicU32::new(left),
                applied: AtomicU32::new(left - place.reduced),
            });
        }
        Ok(Self {
            launcher,
            schedule,
            buckets: made,
            enabled: AtomicBool::new(true),
            held: AtomicBool::new(false),
            timed: AtomicBool::new(false),
            open: AtomicBool::new(false),
            phase: AtomicUsize::new(phase),
            iteration: AtomicU32::new(1),
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

    /// From now on no turn ends: gradients are summed until [`Self::flush`]. Not within a backward.
    pub fn hold(&self) {
        self.held.store(true, Ordering::Relaxed);
    }

    /// How many slots `bucket` has.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn slots(&self, bucket: usize) -> u32 {
        self.buckets[bucket].slots
    }

    /// The slot that the gradients of `bucket` are added to.
    pub fn slot(&self, bucket: usize) -> Result<u32, Error> {
        let own = self.bucket(bucket)?;
        Ok(own.turn.load(Ordering::Relaxed) % own.slots)
    }

    /// The turn of `bucket` that ends in iteration `phase` of the period, unless turns are held.
    fn ending(&self, phase: usize, bucket: usize) -> Option<&Turn> {
        if self.held.load(Ordering::Relaxed) { None } else { self.schedule.ending(bucket, phase) }
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
        let full = |own: &Bucket| {
            own.turn.load(Ordering::Relaxed) >= own.applied.load(Ordering::Acquire).saturating_add(own.slots)
        };
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
        match own.arrivals.note(index, || self.arrived.fetch_add(1, Ordering::Relaxed)) {
            arrivals::Arrival::Counted => Ok(Arrival::Counted),
            arrivals::Arrival::Last => {
                let phase = self.phase.load(Ordering::Relaxed);
                if let Some(ends) = self.ending(phase, bucket)
                    && ends.sent == Sent::Ready
                {
                    let turn = own.turn.load(Ordering::Relaxed);
                    self.end(bucket, turn, ends.delay());
                    self.launch(own, turn, 1)?;
                }
                Ok(Arrival::Counted)
            }
            arrivals::Arrival::Again => {
                let left = own.launched.load(Ordering::Acquire) > own.turn.load(Ordering::Relaxed);
                Ok(if left { Arrival::Late } else { Arrival::Again })
            }
        }
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
        self.begin_in(self.phase.load(Ordering::Relaxed), point)
    }

    fn begin_in(&self, phase: usize, point: Point) -> Result<(), Error> {
        for (bucket, _) in self.schedule.launched_at(phase, point) {
            let own = &self.buckets[bucket];
            let next = own.launched.load(Ordering::Acquire);
            // In the first period there may be none yet.
            if next < own.turn.load(Ordering::Relaxed) {
                self.launch(own, next, 0)?;
            }
        }
        Ok(())
    }

    /// Ends all turns that have gradients, however few, and launches whatever was not; turns end as the schedule says
    /// from then on. Not within a backward. Of several errors, the first.
    pub fn flush(&self) -> Result<(), Error> {
        self.held.store(false, Ordering::Relaxed);
        let mut outcome = Ok(());
        for (bucket, own) in self.buckets.iter().enumerate() {
            let turn = own.turn.load(Ordering::Relaxed);
            for ended in own.launched.load(Ordering::Acquire)..turn {
                outcome = outcome.and(self.launch(own, ended, 0));
            }
            if own.summed[(turn % own.slots) as usize].load(Ordering::Relaxed) > 0 {
                self.end(bucket, turn, 0);
                outcome = outcome.and(self.launch(own, turn, 0));
                own.turn.store(turn + 1, Ordering::Relaxed);
            }
        }
        outcome
    }

    /// Turn `turn` ends in this iteration, and is due so many later.
    fn end(&self, bucket: usize, turn: u32, late: usize) {
        let own = &self.buckets[bucket];
        let due = self.iteration.load(Ordering::Relaxed).wrapping_add(late as u32);
        own.due[(turn % own.slots) as usize].store(due, Ordering::Relaxed);
    }

    /// Backward has ended: what leaves in this iteration is launched as it is, and the next iteration begins. Of several errors, the
    /// first.
    pub fn finish(&self) -> Result<(), Error> {
        let phase = self.phase.load(Ordering::Relaxed);
        let mut outcome = Ok(());
        for (bucket, own) in self.buckets.iter().enumerate() {
            let turn = own.turn.load(Ordering::Relaxed);
            if own.launched.load(Ordering::Acquire) <= turn {
                own.summed[(turn % own.slots) as usize].fetch_add(1, Ordering::Relaxed);
            }
            if let Some(ends) = self.ending(phase, bucket) {
                self.end(bucket, turn, ends.delay());
                if ends.sent == Sent::Ready {
                    outcome = outcome.and(self.launch(own, turn, 0));
                }
                own.turn.store(turn + 1, Ordering::Relaxed);
            }
            own.arrivals.reset();
        }
        self.arrived.store(0, Ordering::Relaxed);
        self.phase.store((phase + 1) % self.schedule.period, Ordering::Relaxed);
        self.iteration.fetch_add(1, Ordering::Relaxed);
        let outcome = outcome.and_then(|()| self.begin_in(phase, Point::BackwardEnd));
        self.open.store(false, Ordering::Release);
        outcome
    }

    /// Waits for the oldest launch of `bucket` that was not applied, if there is one, as [`Engine::wait`].
    pub fn wait(
        &self,
        bucket: usize,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        let own = self.bucket(bucket)?;
        let applied = own.applied.load(Ordering::Acquire);
        if own.launched.load(Ordering::Acquire) == applied {
            return Ok(true);
        }
        let launches = own.before.wrapping_add(applied).wrapping_add(1);
        self.launcher.wait(own.program, launches, timeout, interrupted)
    }

    /// What the oldest launch of `bucket` reduced was used: its slot may fill again.
    pub fn applied(&self, bucket: usize) -> Result<(), Error> {
        let own = self.bucket(bucket)?;
        let applied = own.applied.load(Ordering::Acquire);
        if applied == own.launched.load(Ordering::Acquire) {
            return Err(Error::Usage(format!("nothing of bucket {bucket} is left to apply")));
        }
        own.applied.store(applied + 1, Ordering::Release);
        Ok(())
    }

    /// How far `bucket` is.
    pub fn progress(&self, bucket: usize) -> Result<Progress, Error> {
        let own = self.bucket(bucket)?;
        let ends = self.ending(self.phase.load(Ordering::Relaxed), bucket).is_some();
        let complete = own.arrivals.gradients() > 0 && own.arrivals.is_complete();
        Ok(Progress {
            ready: own.turn.load(Ordering::Relaxed) + u32::from(ends && complete),
            launched: own.launched.load(Ordering::Acquire),
            applied: own.applied.load(Ordering::Acquire),
        })
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    fn bucket(&self, bucket: usize) -> Result<&Bucket, Error> {
        self.buckets.get(bucket).ok_or_else(|| Error::Usage(format!("there is no bucket {bucket}")))
    }

    /// Launches turn `turn`, if it was not; `running`: iterations of it that have not ended.
    fn launch(&self, own: &Bucket, turn: u32, running: u32) -> Result<(), Error> {
        let claimed = own.launched.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_err() {
            return Ok(());
        }
        let slot = turn % own.slots;
        let iterations = own.summed[slot as usize].swap(0, Ordering::Relaxed) + running;
        let due = own.due[slot as usize].load(Ordering::Relaxed);
        self.launcher.launch(own.program, slot, 1.0 / f64::from(iterations), due)
    }
}
