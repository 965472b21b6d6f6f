//! The event loop: ops become ready, occupy their rank's engine or their route, end, and release their dependents.
//!
//! Budget: a message of a ring whose receive costs nothing is one event, one that costs engine time is two; an event
//! touches a counter or two and its route.

use crate::channel::{Flows, Message};
use crate::check::check;
use crate::clock::Clock;
use crate::conditions::{Chance, Conditions};
use crate::error::Error;
use crate::event::Event;
use crate::graph::Graph;
use crate::instance::{ENDED, Instance};
use crate::outcome::{LaunchSpan, Outcome};
use crate::rank::{Act, Job, Progress, Started};
use crate::sockets::Sockets;
use crate::step::{Step, Work};
use crate::stuck;
use crate::time::{Picos, from_s, to_s};
use hocket_network::{Network, Way};
use std::cmp::Reverse;

/// Runs the job to its end. `recorded`: keep a record of every op, possible for programs, not for patterns.
pub fn simulate(
    network: &Network,
    graphs: &[&Graph],
    job: &Job,
    rendezvous: bool,
    conditions: &Conditions,
    recorded: bool,
) -> Result<Outcome, Error> {
    check(network, graphs, job, conditions, recorded)?;
    let mut engine = Engine::new(network, graphs, job, rendezvous, conditions, recorded);
    engine.run();
    engine.finish()
}

struct Engine<'a> {
    network: &'a Network,
    graphs: &'a [&'a Graph],
    job: &'a Job,
    conditions: &'a Conditions,
    rendezvous: bool,
    recorded: bool,
    clock: Clock<Event>,
    flows: Flows<'a>,
    instances: Vec<Instance>,
    ranks: Vec<Progress>,
    ready: Vec<(u32, u32)>,
    chance: Chance,
    sequence: u64,
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    fn new(
        network: &'a Network,
        graphs: &'a [&'a Graph],
        job: &'a Job,
        rendezvous: bool,
        conditions: &'a Conditions,
        recorded: bool,
    ) -> Self {
        let instance =
            |(at, launch): (usize, &Started)| Instance::new(launch.graph, at as u32, launch.priority);
        let instances: Vec<Instance> = job.launches.iter().enumerate().map(instance).collect();
        let phases = job.timeline(0).iter().filter(|act| **act == Act::End).count();
        let mut ranks: Vec<Progress> = (0..job.world).map(|_| Progress::new()).collect();
        for &(rank, factor) in &conditions.slow {
            ranks[rank as usize].slow = factor;
        }
        let outcome = Outcome {
            phase_ends: vec![vec![0; job.world]; phases],
            launches: vec![LaunchSpan { start: Picos::MAX, end: 0 }; instances.len()],
            records: vec![Vec::new(); if recorded { job.world } else { 0 }],
            ..Outcome::default()
        };
        Self {
            network,
            graphs,
            job,
            conditions,
            rendezvous,
            recorded,
            clock: Clock::new(),
            flows: Flows::new(network, Sockets::new(job.world, &conditions.slow)),
            instances,
            ranks,
            ready: Vec::new(),
            chance: Chance::new(conditions.seed),
            sequence: 0,
            outcome,
        }
    }

    fn run(&mut self) {
        for (index, change) in self.conditions.changes.iter().enumerate() {
            self.clock.push(from_s(change.at_s), Event::Change { index: index as u32 });
        }
        for rank in 0..self.job.world as u32 {
            self.resume(rank);
            self.release_ready();
        }
        loop {
            while let Some(event) = self.clock.next() {
                self.outcome.events += 1;
                self.handle(event);
                self.release_ready();
            }
            self.flows.solve(&mut self.clock);
            if !self.clock.is_pending() && !self.clock.advance() {
                return;
            }
        }
    }

    fn finish(mut self) -> Result<Outcome, Error> {
        let stuck: Vec<u32> =
            (0..self.job.world as u32).filter(|&rank| !self.ranks[rank as usize].ended).collect();
        if !stuck.is_empty() {
            let what = stuck::diagnose(self.graphs, &self.instances, &self.flows, self.rendezvous, &stuck);
            return Err(Error::Stuck { at_s: to_s(self.clock.now()), what, ranks: stuck });
        }
        self.outcome.link_bytes = self.flows.link_bytes();
        self.outcome.solves = self.flows.solves;
        self.outcome.looked_at = self.flows.looked_at;
        Ok(self.outcome)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Land { route, generation, instance, op } => {
                if self.flows.landed(route, generation) {
                    self.arrive(instance, op);
                }
            }
            Event::Arrive { instance, op } => self.arrive(instance, op),
            Event::Drain { route, generation } => {
                if let Some((message, begun)) = self.flows.drained(&mut self.clock, route, generation) {
                    self.drained(message, begun);
                }
            }
            Event::Clear { instance, op } => self.meet(instance, op),
            Event::Done { instance, op } => {
                let step = self.step(instance, op);
                self.next_task(step.rank);
                self.worked(instance, op, &step);
            }
            Event::Written { instance, op } => {
                let step = self.step(instance, op);
                self.next_task(step.rank);
                if let Work::Send { route, .. } = step.work {
                    let latency = self.longer(from_s(self.network.route_latency_s(route)));
                    self.left(instance, op, &step, latency);
                }
            }
            Event::Copied { instance, op } => {
                let step = self.step(instance, op);
                if let Work::Copy { way, .. } = step.work {
                    self.ranks[step.rank as usize].copies[way as usize].pop_front();
                    self.next_copy(step.rank, way);
                    self.complete(instance, op, &step);
                }
            }
            Event::Waited { instance, op } => {
                let step = self.step(instance, op);
                self.complete(instance, op, &step);
            }
            Event::Resume { rank } => self.resume(rank),
            Event::Change { index } => {
                let change = &self.conditions.changes[index as usize];
                self.flows.change(&mut self.clock, change.link, change.bit_per_s / 8.0);
            }
        }
    }

    /// A rank's timeline, until time has to pass.
    fn resume(&mut self, rank: u32) {
        let now = self.clock.now();
        while let Some(&act) = self.job.timeline(rank as usize).get(self.ranks[rank as usize].at) {
            let progress = &mut self.ranks[rank as usize];
            progress.at += 1;
            match act {
                Act::Compute(0) => {}
                Act::Compute(time) => return self.clock.push(now + time, Event::Resume { rank }),
                Act::Launch(launch) => {
                    self.start(rank, launch);
                    self.release_ready();
                }
                Act::Wait(launch) if self.instances[launch as usize].left[rank as usize] == 0 => {}
                Act::Wait(launch) => {
                    progress.waits_for = Some(launch);
                    return;
                }
                Act::End => {
                    self.outcome.phase_ends[progress.phase][rank as usize] = now;
                    progress.phase += 1;
                }
            }
        }
        self.ranks[rank as usize].ended = true;
        self.outcome.end = self.outcome.end.max(now);
    }

    fn start(&mut self, rank: u32, launch: u32) {
        let instance = &mut self.instances[launch as usize];
        let graph = self.graphs[instance.graph];
        if !instance.is_open() {
            instance.open(graph, self.job.world, self.rendezvous, self.recorded);
        }
        let span = &mut self.outcome.launches[launch as usize];
        span.start = span.start.min(self.clock.now());
        if instance.left[rank as usize] == 0 {
            return self.end_rank(launch, rank);
        }
        let Self { instances, ready, .. } = self;
        let waits = &mut instances[launch as usize].waits;
        graph.roots(rank, |op| {
            waits[op as usize] -= 1;
            if waits[op as usize] == 0 {
                ready.push((launch, op));
            }
        });
    }

    fn release_ready(&mut self) {
        let mut at = 0;
        while let Some(&(instance, op)) = self.ready.get(at) {
            at += 1;
            self.release(instance, op);
        }
        self.ready.clear();
    }

    /// All dependencies of an op are met.
    fn release(&mut self, instance: u32, op: u32) {
        let step = self.step(instance, op);
        if self.recorded {
            let now = self.clock.now();
            self.instances[instance as usize].times[op as usize].0 = now;
        }
        match step.work {
            Work::Receive { route, peer, .. } if self.rendezvous => {
                // The receiver's announcement takes the reverse path of the data.
                let waits = self.flows.word_waits(route, self.clock.now());
                let latency = self.longer(from_s(self.network.route_latency_s(route))) + waits;
                if latency == 0 {
                    self.meet(instance, peer);
                } else {
                    self.clock.push(self.clock.now() + latency, Event::Clear { instance, op: peer });
                }
            }
            Work::Wait { time } => {
                let time = self.longer((time as f64 * self.ranks[step.rank as usize].slow) as Picos);
                self.clock.push(self.clock.now() + time, Event::Waited { instance, op });
            }
            Work::Copy { way, cost } => {
                let cost = self.longer(cost);
                let copies = &mut self.ranks[step.rank as usize].copies[way as usize];
                copies.push_back((instance, op, cost));
                if copies.len() == 1 {
                    self.next_copy(step.rank, way);
                }
            }
            Work::Compute { cost } | Work::Send { cost, .. } | Work::Receive { cost, .. } => {
                self.occupy(instance, op, &step, cost, None);
            }
        }
    }

    fn arrive(&mut self, instance: u32, op: u32) {
        self.outcome.messages += 1;
        if !self.rendezvous {
            return self.meet(instance, op);
        }
        let step = self.step(instance, op);
        if let Work::Receive { cost, .. } = step.work {
            self.occupy(instance, op, &step, cost, None);
        }
    }

    /// An op requests its rank's engine. `begun`: for the rest of a message that has left.
    fn occupy(&mut self, instance: u32, op: u32, step: &Step, cost: Picos, begun: Option<Picos>) {
        let priority = self.instances[instance as usize].priority;
        let cost = if cost == 0 {
            0
        } else {
            self.longer((cost as f64 * self.ranks[step.rank as usize].slow) as Picos)
        };
        let progress = &mut self.ranks[step.rank as usize];
        if progress.engine_busy {
            self.sequence += 1;
            progress.tasks.push(Reverse((priority, self.sequence, instance, op, cost, begun)));
            return;
        }
        let cost = cost + self.socket_work(step, begun);
        if cost == 0 && begun.is_none() {
            self.note_start(instance, op, step);
            self.worked(instance, op, step);
        } else {
            let now = self.clock.now();
            self.ranks[step.rank as usize].engine_busy = true;
            self.flows.sockets.set_busy(step.rank, true, now);
            self.clock.push(now + cost, done(instance, op, begun));
            self.note_start(instance, op, step);
        }
    }

    /// A rank's engine is free: the most urgent waiting op continues.
    fn next_task(&mut self, rank: u32) {
        let now = self.clock.now();
        let progress = &mut self.ranks[rank as usize];
        let Some(Reverse((.., instance, op, cost, begun))) = progress.tasks.pop() else {
            progress.engine_busy = false;
            self.flows.sockets.set_busy(rank, false, now);
            return;
        };
        let step = self.step(instance, op);
        let cost = cost + self.socket_work(&step, begun);
        self.clock.push(now + cost, done(instance, op, begun));
        self.note_start(instance, op, &step);
    }

    /// The bus is free in one direction: the next copy begins.
    fn next_copy(&mut self, rank: u32, way: Way) {
        if let Some(&(instance, op, cost)) = self.ranks[rank as usize].copies[way as usize].front() {
            self.note_start(instance, op, &self.step(instance, op));
            self.clock.push(self.clock.now() + cost, Event::Copied { instance, op });
        }
    }

    /// What the engine has yet to do to bytes before an op can end.
    fn socket_work(&mut self, step: &Step, begun: Option<Picos>) -> Picos {
        let now = self.clock.now();
        let left = match (step.work, begun) {
            (_, Some(message)) => self.flows.sockets.write(step.rank, message, now),
            (Work::Receive { reading: 1.., .. }, None) => self.flows.sockets.read(step.rank, now),
            _ => return 0,
        };
        if left == 0 { 0 } else { self.longer(left) }
    }

    /// The last byte of a message has left; its sender's engine may have to write some of it yet.
    fn drained(&mut self, message: Message, begun: Option<Picos>) {
        let Message { instance, op, .. } = message;
        let step = self.step(instance, op);
        let unwritten = |begun: &Picos| self.flows.sockets.unwritten(step.rank, *begun, self.clock.now()) > 0;
        if let Some(begun) = begun.filter(unwritten) {
            self.occupy(instance, op, &step, 0, Some(begun));
        } else {
            self.left(instance, op, &step, message.latency);
        }
    }

    /// A message is on its way, and its send over.
    fn left(&mut self, instance: u32, op: u32, step: &Step, latency: Picos) {
        let Work::Send { peer, forgotten, .. } = step.work else { return };
        self.clock.push(self.clock.now() + latency, Event::Arrive { instance, op: peer });
        if !forgotten {
            self.complete(instance, op, step);
        }
    }

    /// The engine has finished an op.
    fn worked(&mut self, instance: u32, op: u32, step: &Step) {
        let Work::Send { route, peer, forgotten, writing, reading, .. } = step.work else {
            return self.complete(instance, op, step);
        };
        if self.recorded {
            let now = self.clock.now();
            let times = &mut self.instances[instance as usize].times;
            (times[op as usize].1, times[peer as usize].1) = (now, now);
        }
        let latency = self.longer(from_s(self.network.route_latency_s(route)));
        let priority = self.instances[instance as usize].priority;
        let bytes = step.bytes as f64;
        let message = Message { instance, op, peer, priority, bytes, latency, forgotten, writing, reading };
        self.flows.send(&mut self.clock, route, message);
    }

    fn complete(&mut self, instance: u32, op: u32, step: &Step) {
        let graph = self.graphs[self.instances[instance as usize].graph];
        if self.recorded {
            let state = &self.instances[instance as usize];
            let record = state.record(self.network, graph, op, step, self.clock.now());
            self.outcome.records[step.rank as usize].push(record);
        }
        let Self { instances, ready, .. } = self;
        let state = &mut instances[instance as usize];
        state.waits[op as usize] = ENDED;
        graph.successors(op, |next| {
            let waits = &mut state.waits[next as usize];
            *waits -= 1;
            if *waits == 0 {
                ready.push((instance, next));
            }
        });
        let left = &mut state.left[step.rank as usize];
        *left -= 1;
        if *left == 0 {
            self.end_rank(instance, step.rank);
        }
    }

    /// One dependency of an op is met.
    fn meet(&mut self, instance: u32, op: u32) {
        let waits = &mut self.instances[instance as usize].waits[op as usize];
        *waits -= 1;
        if *waits == 0 {
            self.ready.push((instance, op));
        }
    }

    fn end_rank(&mut self, instance: u32, rank: u32) {
        let now = self.clock.now();
        let span = &mut self.outcome.launches[instance as usize];
        span.end = span.end.max(now);
        let state = &mut self.instances[instance as usize];
        state.ranks_left -= 1;
        if state.ranks_left == 0 {
            state.close();
        }
        let progress = &mut self.ranks[rank as usize];
        if progress.waits_for == Some(instance) {
            progress.waits_for = None;
            self.clock.push(now, Event::Resume { rank });
        }
    }

    fn step(&self, instance: u32, op: u32) -> Step {
        self.graphs[self.instances[instance as usize].graph].step(op)
    }

    /// A time with its random share.
    fn longer(&mut self, time: Picos) -> Picos {
        if self.conditions.jitter == 0.0 {
            return time;
        }
        (time as f64 * (1.0 + self.conditions.jitter * self.chance.next())) as Picos
    }

    fn note_start(&mut self, instance: u32, op: u32, step: &Step) {
        if self.recorded && matches!(step.work, Work::Compute { .. } | Work::Copy { .. }) {
            self.instances[instance as usize].times[op as usize].1 = self.clock.now();
        }
    }
}

/// What happens when the engine has finished an op, or the rest of a message.
fn done(instance: u32, op: u32, begun: Option<Picos>) -> Event {
    if begun.is_some() { Event::Written { instance, op } } else { Event::Done { instance, op } }
}
