//! DeFT's scheduler: forward and backward of each iteration are knapsacks, filled from two queues (its section III,
//! Algorithm 2 from its prose), until the states repeat.
//!
//! *Current* holds the buckets of the generation in synchronisation. *Future* holds whole later iterations, summed.
//! Stages are barriers here, as in the paper; `steady` gives the schedule's result on links that do not wait for
//! stages.

use crate::error::PlanError;
use crate::knapsack::{Item, Ticks, naive, recursive};
use hocket_schedule::{At, Due, Point, Schedule, Sent, Turn};
use std::collections::HashMap;

/// A bucket's computation and communication.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Of its layers, in forward.
    pub forward_s: f64,
    /// Of its layers, in backward.
    pub backward_s: f64,
    /// By link; infinite where the bucket cannot travel.
    pub busy_s: Vec<f64>,
}

/// Iterations whose gradients are summed, counted from the first one of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation {
    pub first: usize,
    pub last: usize,
}

/// A bucket in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    pub bucket: usize,
    pub link: usize,
    pub generation: Generation,
}

/// The case in backward; the first case is forward's knapsack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Current does not fit: what fits is sent, and the new gradients wait in future.
    Two,
    /// Current fits: it is sent first, then what fits of future, whose rest becomes current; an update.
    Three,
    /// Current is empty: what fits of the new gradients is sent, the rest becomes current; an update, if one is due.
    Four,
}

/// An iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Sent in forward.
    pub forward: Vec<Sending>,
    /// The case in backward.
    pub case: Case,
    /// Sent in backward.
    pub backward: Vec<Sending>,
    /// Applied at its end.
    pub update: Option<Generation>,
}

/// Iterations until they repeat, and two more periods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages {
    /// From the first one of training.
    pub iterations: Vec<Staged>,
    /// Where the repeated part begins.
    pub begins: usize,
    /// Iterations of the repeated part.
    pub period: usize,
}

/// Limit of iterations in a generation, before a bucket counts as never sent.
const MERGED_MAX: usize = 64;

/// Limit of iterations without a repeated state.
const ITERATIONS_MAX: usize = 4_096;

/// Runs the scheduler on buckets (the input side first), with windows `capacity_factor` times as long as computation takes.
///
/// [`PlanError::Starved`]: a bucket fits into no window, so that no update would ever happen.
pub fn stages(buckets: &[Timed], capacity_factor: f64) -> Result<Stages, PlanError> {
    let mut machine = Machine::new(buckets, capacity_factor)?;
    let mut seen = HashMap::new();
    let mut iterations = Vec::new();
    while let now = iterations.len()
        && now < ITERATIONS_MAX
    {
        if let Some(&begins) = seen.get(&machine.key(now)) {
            let period = now - begins;
            for more in now..now + 2 * period + 2 {
                iterations.push(machine.iterate(more)?);
            }
            return Ok(Stages { iterations, begins, period });
        }
        seen.insert(machine.key(now), now);
        iterations.push(machine.iterate(now)?);
        if let Some(bucket) = machine.starved() {
            return Err(starving(bucket, buckets));
        }
    }
    Err(PlanError::Window("schedule does not repeat"))
}

impl Stages {
    /// Of the repeated part.
    pub fn updates_per_iteration(&self) -> f64 {
        let repeated = &self.iterations[self.begins..self.begins + self.period];
        repeated.iter().filter(|iteration| iteration.update.is_some()).count() as f64 / self.period as f64
    }

    /// The repeated part as turns, from the start of a generation on.
    pub fn schedule(&self, buckets: usize) -> Schedule {
        let updates = || {
            let dated = self.iterations.iter().enumerate();
            dated.filter_map(|(at, iteration)| Some((iteration.update?, at)))
        };
        let begins = updates().map(|(generation, _)| generation.first).find(|&first| first >= self.begins);
        let begins = begins.unwrap_or(self.begins);
        let within = |generation: &Generation| (begins..begins + self.period).contains(&generation.first);
        let mut turns = vec![Vec::new(); buckets];
        for (generation, due) in updates().filter(|(generation, _)| within(generation)) {
            for (bucket, turns) in turns.iter_mut().enumerate() {
                turns.push(Turn {
                    first: generation.first - begins,
                    last: generation.last - begins,
                    sent: self.sent(bucket, generation, begins),
                    due: Due { iteration: due - begins, at: At::End },
                });
            }
        }
        Schedule::new(self.period, turns)
    }

    fn sent(&self, bucket: usize, generation: Generation, begins: usize) -> Sent {
        for at in generation.last..self.iterations.len() {
            let staged = &self.iterations[at];
            let both = staged.forward.iter().chain(&staged.backward);
            let of_it = |sending: &Sending| sending.bucket == bucket && sending.generation == generation;
            if let Some(place) = both.clone().position(of_it) {
                // There is no point between forward and backward: what the paper sends there follows what it sends in forward.
                return if at == generation.last {
                    Sent::Ready
                } else {
                    Sent::Begun { iteration: at - begins, point: Point::Begin, place }
                };
            }
        }
        Sent::Ready
    }
}

/// The two queues.
struct Machine {
    /// By bucket, the input side first; ready after backward began.
    items: Vec<Item>,
    forward: Vec<u32>,
    backward: Vec<u32>,
    /// Buckets of `generation` that were not sent.
    current: Vec<bool>,
    generation: Option<Generation>,
    future: Option<Generation>,
}

/// An iteration's input: the machine's complete state, with iterations counted back from now.
type Key = (Vec<bool>, Option<(usize, usize)>, Option<(usize, usize)>);

impl Machine {
    fn new(buckets: &[Timed], capacity_factor: f64) -> Result<Self, PlanError> {
        let links = buckets.first().map_or(0, |bucket| bucket.busy_s.len());
        let sound = |time_s: f64| time_s.is_finite() && time_s >= 0.0;
        let all = |bucket: &Timed| {
            let busy = bucket.busy_s.len() == links && bucket.busy_s.iter().all(|&busy_s| busy_s >= 0.0);
            busy && sound(fastest_s(bucket)) && sound(bucket.forward_s) && sound(bucket.backward_s)
        };
        let forward_s: f64 = buckets.iter().map(|bucket| bucket.forward_s).sum();
        let backward_s: f64 = buckets.iter().map(|bucket| bucket.backward_s).sum();
        if links == 0 || !buckets.iter().all(all) || forward_s + backward_s <= 0.0 {
            return Err(PlanError::Window(
                "buckets need times of 0 or more on the same links, and computation",
            ));
        }
        if !sound(capacity_factor) {
            return Err(PlanError::Window("factor is not 0 or more"));
        }
        let ticks = Ticks::of_step(forward_s + backward_s);
        let ready_s = |at: usize| buckets[at..].iter().map(|bucket| bucket.backward_s).sum();
        let item = |(at, bucket): (usize, &Timed)| Item {
            ready: ticks.needed(ready_s(at)),
            busy: bucket.busy_s.iter().map(|&busy_s| ticks.needed(busy_s)).collect(),
            profit: ticks.needed(fastest_s(bucket)),
        };
        Ok(Self {
            items: buckets.iter().enumerate().map(item).collect(),
            forward: vec![ticks.offered(capacity_factor * forward_s); links],
            backward: vec![ticks.offered(capacity_factor * backward_s); links],
            current: vec![false; buckets.len()],
            generation: None,
            future: None,
        })
    }

    fn iterate(&mut self, now: usize) -> Result<Staged, PlanError> {
        let forward = self.send_current(&self.forward.clone())?;
        let fresh = Generation { first: self.future.map_or(now, |future| future.first), last: now };
        if !self.current.contains(&true) {
            let update = self.generation;
            let backward = self.send_fresh(fresh, &vec![0; self.backward.len()])?;
            return Ok(Staged { forward, case: Case::Four, backward, update });
        }
        let mut backward = self.send_current(&self.backward.clone())?;
        if self.current.contains(&true) {
            self.future = Some(fresh);
            return Ok(Staged { forward, case: Case::Two, backward, update: None });
        }
        let update = self.generation;
        let mut busy = vec![0; self.backward.len()];
        for sending in &backward {
            busy[sending.link] += self.items[sending.bucket].busy[sending.link];
        }
        backward.extend(self.send_fresh(fresh, &busy)?);
        Ok(Staged { forward, case: Case::Three, backward, update })
    }

    /// What fits of current into a window, by the naive knapsack.
    fn send_current(&mut self, capacity: &[u32]) -> Result<Vec<Sending>, PlanError> {
        let Some(generation) = self.generation else { return Ok(Vec::new()) };
        // Deepest layers first, as they became ready.
        let queued: Vec<usize> = (0..self.items.len()).rev().filter(|&at| self.current[at]).collect();
        let items: Vec<Item> = queued.iter().map(|&at| self.items[at].clone()).collect();
        let chosen = naive(&items, capacity)?.links;
        let sent = queued.iter().zip(chosen).filter_map(|(&bucket, link)| Some((bucket, link?)));
        let sent: Vec<Sending> = sent.map(|(bucket, link)| Sending { bucket, link, generation }).collect();
        for sending in &sent {
            self.current[sending.bucket] = false;
        }
        Ok(sent)
    }

    /// What fits of a new generation into the rest of backward, by Algorithm 1; it becomes current.
    fn send_fresh(&mut self, generation: Generation, from: &[u32]) -> Result<Vec<Sending>, PlanError> {
        let items: Vec<Item> = self.items.iter().rev().cloned().collect();
        let chosen = recursive(&items, from, &self.backward)?.links;
        let buckets = (0..self.items.len()).rev();
        let sent: Vec<Sending> = buckets
            .zip(chosen)
            .filter_map(|(bucket, link)| Some(Sending { bucket, link: link?, generation }))
            .collect();
        self.current.fill(true);
        for sending in &sent {
            self.current[sending.bucket] = false;
        }
        self.generation = Some(generation);
        self.future = None;
        Ok(sent)
    }

    fn key(&self, now: usize) -> Key {
        let since = |generation: Option<Generation>| Some((now - generation?.first, now - generation?.last));
        (self.current.clone(), since(self.generation), since(self.future))
    }

    /// A bucket that keeps future waiting for ever.
    fn starved(&self) -> Option<usize> {
        let waits = self.future.is_some_and(|future| future.last - future.first >= MERGED_MAX);
        waits.then(|| self.current.iter().position(|&waits| waits)).flatten()
    }
}

fn starving(bucket: usize, buckets: &[Timed]) -> PlanError {
    let window_s = |time: fn(&Timed) -> f64| buckets.iter().map(time).sum::<f64>();
    let gap_s = window_s(|each| each.forward_s).max(window_s(|each| each.backward_s));
    PlanError::Starved { bucket, busy_s: fastest_s(&buckets[bucket]), gap_s }
}

fn fastest_s(bucket: &Timed) -> f64 {
    bucket.busy_s.iter().copied().fold(f64::INFINITY, f64::min)
}
