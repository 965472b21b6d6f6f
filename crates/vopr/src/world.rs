//! The simulated world: virtual time, its queue of events, and a run from a seed to its end.

use crate::check::Checker;
use crate::coordinator_host::Host;
use crate::event::{Event, Local};
use crate::memory::Memory;
use crate::net::Network;
use crate::process::Process;
use crate::swarm::Swarm;
use fastrand::Rng;
use hocket_ids::Member;
use hocket_protocol::planted::Bug;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

/// Steps that must be committed once the faults have ended, and within what time.
const LIVE_STEPS: u64 = 10;
const LIVE_US: u64 = 60_000_000;
/// Far more than any run needs.
const EVENTS_MAX: u64 = 400_000;
pub const TICK_US: u64 = 200_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    pub time_us: u64,
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, time_us, what } = self;
        write!(f, "seed {seed}, {time_us} us: {what}")
    }
}

/// How a run without a failure ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// It went on after the faults; otherwise nobody was left who could have.
    pub live: bool,
    pub steps: u64,
    /// Generations that have met, and epochs of the last one.
    pub generations: u64,
    pub epochs: u64,
    pub events: u64,
}

struct Entry {
    key: Reverse<(u64, u64)>,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

pub struct World {
    seed: u64,
    pub(crate) swarm: Swarm,
    pub(crate) rng: Rng,
    pub(crate) now_us: u64,
    sequence: u64,
    events: u64,
    queue: BinaryHeap<Entry>,
    pub(crate) processes: Vec<Process>,
    pub(crate) host: Host,
    pub(crate) network: Network,
    pub(crate) memory: Memory,
    pub(crate) checker: Checker,
    pub(crate) frozen: bool,
    pub(crate) lone_beginner: Option<u64>,
    failure: Option<String>,
    /// What happened, for people, where it is wanted.
    log: Option<Vec<String>>,
}

impl World {
    pub fn new(seed: u64, swarm: Swarm, rng: Rng, logged: bool) -> Self {
        let host = Host::new(swarm.founders, swarm.limits.clone());
        let mut world = Self {
            seed,
            rng,
            now_us: 0,
            sequence: 0,
            events: 0,
            queue: BinaryHeap::new(),
            processes: Vec::new(),
            host,
            network: Network::default(),
            memory: Memory::default(),
            checker: Checker::new(&swarm),
            frozen: false,
            lone_beginner: None,
            failure: None,
            log: logged.then(Vec::new),
            swarm,
        };
        world.log(|world| format!("{:?}", world.swarm));
        world.start_coordinator();
        for at in 0..world.swarm.founders {
            world.spawn(at % world.swarm.hosts, true);
        }
        let founders = world.host.head.members.clone();
        world.checker.handle_convened(1, &founders);
        world.meet(1, &founders, &founders);
        world
    }

    pub(crate) fn schedule(&mut self, after_us: u64, event: Event) {
        self.schedule_at(self.now_us + after_us, event);
    }

    pub(crate) fn schedule_at(&mut self, at_us: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Entry { key: Reverse((at_us.max(self.now_us), self.sequence)), event });
    }

    pub(crate) fn schedule_in(&mut self, process: usize, after_us: u64, local: Local) {
        self.schedule(after_us, Event::In(process, local));
    }

    /// From 0 to that, at random.
    pub(crate) fn up_to(&mut self, us: u64) -> u64 {
        self.rng.u64(0..=us)
    }

    pub(crate) fn log(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.log.is_some() {
            let line = format!("{:>10} {}", self.now_us, line(self));
            self.log.get_or_insert_default().push(line);
        }
    }

    pub(crate) fn check(&mut self, result: Result<(), String>) {
        if let Err(what) = result {
            self.fail(what);
        }
    }

    pub(crate) fn fail(&mut self, what: String) {
        self.log(|_| format!("FAILS: {what}"));
        self.failure.get_or_insert(what);
    }

    fn step(&mut self) -> bool {
        let Some(Entry { key: Reverse((at_us, _)), event }) = self.queue.pop() else { return false };
        self.now_us = at_us;
        self.events += 1;
        match event {
            Event::In(process, local) => self.local(process, local),
            Event::Resume(process) => self.resume(process),
            Event::Unhang(process) => self.unhang(process),
            Event::Leash(process) => self.kill(process, true),
            Event::Coordinator(event) => self.of_coordinator(event),
        }
        true
    }

    /// Steps of the member that is furthest among those that go on.
    fn progress(&self) -> u64 {
        let going = self.going();
        going
            .iter()
            .filter_map(|&process| Some(self.processes[process].state.as_ref()?.steps))
            .max()
            .unwrap_or(0)
    }

    /// Members of the latest epoch that live and have a state.
    fn going(&self) -> Vec<usize> {
        let members = self.checker.last().map_or(&[][..], |(_, last)| &last.members[..]);
        let lives =
            |&process: &usize| self.processes[process].alive && self.processes[process].state.is_some();
        members.iter().map(|member| member.0 as usize).filter(lives).collect()
    }

    fn outcome(&self, live: bool) -> Outcome {
        let (generations, epochs) = self.checker.last().map_or((0, 0), |(epoch, _)| epoch);
        Outcome { live, steps: self.progress(), generations, epochs, events: self.events }
    }

    /// Until faults have ended and the job has gone on. `between`: called with the number of each event before it.
    fn run(&mut self, mut between: impl FnMut(&mut Self, u64)) -> Result<Outcome, Failure> {
        let mut frozen_at = None;
        loop {
            between(self, self.events);
            if self.failure.is_none() && frozen_at.is_none() && self.now_us >= self.swarm.freeze_us {
                self.freeze();
                frozen_at = Some((self.now_us, self.progress()));
            }
            let ended = match frozen_at {
                Some((_, steps)) if self.progress() >= steps + LIVE_STEPS => Some(true),
                Some((at_us, _)) if self.now_us > at_us + LIVE_US => Some(false),
                Some(_) | None => None,
            };
            if let Some(live) = ended {
                self.conclude(live);
            }
            if let Some(what) = self.failure.take() {
                return Err(Failure { seed: self.seed, time_us: self.now_us, what });
            }
            if let Some(live) = ended {
                return Ok(self.outcome(live));
            }
            if !self.step() {
                // All processes have ended, and so has the coordinator.
                self.now_us = self.now_us.max(self.swarm.freeze_us) + LIVE_US + 1;
                frozen_at.get_or_insert((self.swarm.freeze_us, self.progress()));
            }
            if self.events > EVENTS_MAX {
                self.fail(format!("liveness: the world ran {} events and is stuck", self.events));
            }
        }
    }

    fn conclude(&mut self, live: bool) {
        self.check(self.checker.samples_once(self.progress(), self.swarm.samples));
        let ending = self.host.ended.clone();
        if !live && ending.is_none() && !self.going().is_empty() {
            let going = self.going();
            self.fail(format!("liveness: members {going:?} could go on, and did not within {LIVE_US} us"));
        }
    }

    pub fn logged(&self) -> &[String] {
        self.log.as_deref().unwrap_or_default()
    }
}

pub(crate) fn member(process: usize) -> Member {
    Member(process as u64)
}

/// One seed. `log` gets what happened, where it is given.
pub fn run(seed: u64, bug: Option<Bug>, log: Option<&mut Vec<String>>) -> Result<Outcome, Failure> {
    let mut rng = Rng::with_seed(seed);
    let swarm = Swarm::of(&mut rng, bug);
    let mut world = World::new(seed, swarm, rng, log.is_some());
    let result = world.run(World::due_faults);
    if let Some(log) = log {
        log.extend_from_slice(world.logged());
    }
    result
}

/// Every schedule of a small world in which one of its processes is killed before one event; gives how many there were, and in how
/// many of them members met anew.
pub fn kill_everywhere(swarm: &Swarm, says_goodbye: bool) -> Result<(u64, u64), Failure> {
    let (mut runs, mut met) = (0, 0);
    for victim in 0..swarm.founders + swarm.newcomers() {
        for at in 1.. {
            let mut world = World::new(at, swarm.clone(), Rng::with_seed(1), false);
            let mut frozen = true;
            let outcome = world.run(|world, events| {
                world.due_faults(events);
                if events == at {
                    frozen = world.frozen;
                }
                if events == at && !frozen && victim < world.processes.len() {
                    world.kill(victim, says_goodbye);
                }
            })?;
            if frozen {
                break;
            }
            runs += 1;
            met += u64::from(outcome.generations > 1);
        }
    }
    Ok((runs, met))
}
