//! What goes wrong: processes that end or stop, networks that are cut, members that come and go.

use crate::event::{Event, Fault, Local, OfCoordinator};
use crate::net::COORDINATOR;
use crate::process::{Bucket, Collective, Process, STATE_BLOCKS, State};
use crate::world::{TICK_US, World, member};
use hocket_protocol::membership::member::Participant;
use hocket_protocol::sampler::{Draw, Sampler};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// From here on, hosts of newcomers are numbered for the coordinator: they share no memory with others yet.
const JOINERS_HOST: usize = 1 << 24;

impl World {
    /// A process starts, with the state of the script's first line or without one.
    pub(crate) fn spawn(&mut self, host: usize, founds: bool) {
        let id = self.processes.len();
        if id >= crate::memory::MEMBERS_MAX {
            return;
        }
        let Self { swarm, .. } = self;
        let limits = swarm.limits.clone();
        let (buckets, blocks, samples) = (swarm.buckets, swarm.blocks, swarm.samples);
        let skew = Duration::from_millis(self.rng.u64(0..100_000));
        let now = Duration::from_micros(self.now_us) + skew;
        let empty = crate::memory::Sum::each_once(&[], 0);
        let buckets: Vec<_> = (0..buckets)
            .map(|_| Bucket {
                region: self.memory.allocate(id, vec![empty; blocks]),
                gradients: None,
                used: false,
            })
            .collect();
        let of_buckets = buckets.iter().map(|_| Collective::new(blocks));
        let collectives = of_buckets.chain([Collective::new(1), Collective::new(1)]).collect();
        let order = Sampler::new(7, samples);
        let state = State { steps: 0, blocks: [1; STATE_BLOCKS], sampler: order, drawers: vec![] };
        self.processes.push(Process {
            host,
            alive: true,
            stopped: false,
            backlog: VecDeque::new(),
            hangs: false,
            script_backlog: VecDeque::new(),
            waits_since_us: None,
            skew,
            participant: Participant::new(member(id), (JOINERS_HOST + id) as u32, None, limits, now),
            link: None,
            taken: None,
            leaves: false,
            generation: 0,
            ranks: Vec::new(),
            steps_before: 0,
            current: Vec::new(),
            left: BTreeSet::new(),
            pending: None,
            fencing: None,
            at_edge: false,
            said_edge: None,
            peers: BTreeMap::new(),
            epoch: 0,
            members: Vec::new(),
            state: founds.then_some(state),
            draw: Draw::default(),
            buckets,
            collectives,
            clears: BTreeSet::new(),
            published: BTreeMap::new(),
            quiescing: false,
            running: 0,
        });
        self.log(|_| format!("member {id} starts on host {host}"));
        let after_us = self.up_to(TICK_US);
        self.schedule_in(id, after_us, Local::Tick);
        if !founds {
            let after_us = self.up_to(self.swarm.taking_us);
            self.schedule_in(id, after_us, Local::Taken);
        }
    }

    /// A process ends. Without a goodbye, its peers and the coordinator learn nothing but silence.
    pub(crate) fn kill(&mut self, process: usize, says_goodbye: bool) {
        if !self.processes[process].alive {
            return;
        }
        self.log(|_| format!("member {process} ends"));
        let this = &mut self.processes[process];
        (this.alive, this.stopped) = (false, false);
        this.backlog.clear();
        let host = this.host;
        let mut connections: Vec<_> = this.peers.values().map(|peer| peer.connection).collect();
        connections.extend(this.link.as_ref().map(|(connection, _)| *connection));
        for connection in connections {
            if says_goodbye {
                let loses = self.rng.bool();
                self.close(connection, process, loses);
            } else {
                let side = self.network.connections[connection].side(process);
                self.network.connections[connection].open[side] = false;
            }
        }
        for neighbour in 0..self.processes.len() {
            if neighbour != process && self.processes[neighbour].host == host {
                let after_us = self.up_to(500);
                self.schedule_in(neighbour, after_us, Local::Gone(process));
            }
        }
    }

    pub(crate) fn resume(&mut self, process: usize) {
        let this = &mut self.processes[process];
        if !this.alive || !this.stopped {
            return;
        }
        this.stopped = false;
        let backlog = std::mem::take(&mut this.backlog);
        let jump = self.clock_jump();
        self.processes[process].skew += jump;
        self.log(|_| format!("member {process} goes on"));
        for local in backlog {
            self.schedule_in(process, 0, local);
        }
    }

    pub(crate) fn unhang(&mut self, process: usize) {
        let this = &mut self.processes[process];
        if !this.alive || !this.hangs {
            return;
        }
        this.hangs = false;
        let backlog = std::mem::take(&mut this.script_backlog);
        self.log(|_| format!("the script of member {process} goes on"));
        for local in backlog {
            self.schedule_in(process, 0, local);
        }
        self.follow(process);
        self.go_on(process);
        self.launch_all(process);
        self.say_that_it_waits(process);
    }

    /// Where a machine slept, clocks may have gone on further than events did.
    pub(crate) fn clock_jump(&mut self) -> Duration {
        Duration::from_secs(if self.rng.bool() { self.rng.u64(..100) } else { 0 })
    }

    /// Faults whose time has come.
    pub(crate) fn due_faults(&mut self, events: u64) {
        while let Some(&(at, fault)) = self.swarm.faults.first()
            && at <= events
            && !self.frozen
        {
            self.swarm.faults.remove(0);
            self.log(|_| format!("fault: {fault:?}"));
            self.fault(fault);
        }
    }

    fn any_alive(&mut self) -> Option<usize> {
        let alive: Vec<_> = (0..self.processes.len()).filter(|&each| self.processes[each].alive).collect();
        (!alive.is_empty()).then(|| alive[self.rng.usize(..alive.len())])
    }

    fn fault(&mut self, fault: Fault) {
        let coordinators = self.swarm.hosts;
        match (fault, self.any_alive()) {
            (Fault::Join, _) => {
                for _ in 0..self.rng.usize(1..3) {
                    let host = self.rng.usize(..self.swarm.hosts);
                    self.spawn(host, false);
                }
            }
            (Fault::KillCoordinator { for_us }, _) => self.crash_coordinator(for_us),
            (Fault::TearJournal { for_us }, _) => self.host.doomed = Some(for_us),
            (Fault::StopCoordinator { for_us }, _) => {
                self.host.stopped = true;
                self.schedule(for_us, Event::Coordinator(OfCoordinator::Resume));
            }
            (_, None) => {}
            (Fault::Kill, Some(process)) => self.kill(process, true),
            (Fault::KillHost, Some(process)) => {
                let host = self.processes[process].host;
                for each in (0..self.processes.len())
                    .filter(|&each| self.processes[each].host == host)
                    .collect::<Vec<_>>()
                {
                    self.kill(each, false);
                }
            }
            (Fault::Stop { for_us }, Some(process)) => {
                self.processes[process].stopped = true;
                self.schedule(for_us, Event::Resume(process));
            }
            (Fault::Hang { for_us }, Some(process)) => {
                self.processes[process].hangs = true;
                self.checker.handle_hang(process);
                self.schedule(for_us, Event::Unhang(process));
            }
            (Fault::Cut { for_us, both }, Some(process)) => {
                let from = self.processes[process].host;
                let to = self.rng.usize(..self.swarm.hosts);
                self.network.cut(from, to, self.now_us + for_us);
                if both {
                    self.network.cut(to, from, self.now_us + for_us);
                }
            }
            (Fault::CutCoordinator { for_us }, Some(process)) => {
                let host = self.processes[process].host;
                self.network.cut(host, coordinators, self.now_us + for_us);
                self.network.cut(coordinators, host, self.now_us + for_us);
            }
            (Fault::Reset, Some(process)) => {
                let this = &self.processes[process];
                let mut connections: Vec<_> = this.peers.values().map(|peer| peer.connection).collect();
                connections.extend(this.link.as_ref().map(|(connection, _)| *connection));
                if !connections.is_empty() {
                    let connection = connections[self.rng.usize(..connections.len())];
                    let ends = self.network.connections[connection].ends;
                    for end in ends {
                        self.close(connection, end, true);
                    }
                }
            }
            (Fault::LoneBeginner { for_us }, Some(_)) => self.lone_beginner = Some(for_us),
            (Fault::Leave, Some(process)) => self.schedule_in(process, 0, Local::LeaveAsked),
        }
    }

    /// A member has begun an epoch with joiners: if that fault is due, nobody hears of it, and it ends.
    pub(crate) fn leave_alone(&mut self, process: usize) {
        let Some(for_us) = self.lone_beginner.take() else { return };
        self.log(|_| format!("fault: nobody hears {process}"));
        let peers = self.processes[process].peers.values();
        for connection in peers.map(|peer| peer.connection).collect::<Vec<_>>() {
            self.close(connection, process, true);
        }
        self.schedule(for_us, Event::Leash(process));
    }

    /// No more faults: cuts heal, who was stopped goes on, the coordinator is there, and somebody joins where members are missing.
    pub(crate) fn freeze(&mut self) {
        self.log(|_| "faults end".into());
        self.frozen = true;
        (self.lone_beginner, self.host.doomed) = (None, None);
        self.network.heal();
        for process in 0..self.processes.len() {
            self.resume(process);
            self.unhang(process);
        }
        self.schedule(0, Event::Coordinator(OfCoordinator::Start));
        self.schedule(0, Event::Coordinator(OfCoordinator::Resume));
        let alive = self.processes.iter().filter(|process| process.alive).count();
        for _ in alive..self.swarm.limits.members_min {
            self.spawn(0, false);
        }
    }

    /// An end closes a connection; the other one learns of it after all that was sent, or at once, and then that is lost.
    pub(crate) fn close(&mut self, connection: usize, by: usize, loses: bool) {
        let side = self.network.connections[connection].side(by);
        let known = &mut self.network.connections[connection];
        if !std::mem::replace(&mut known.open[side], false) {
            return;
        }
        let other = 1 - side;
        let end = known.ends[other];
        if loses {
            known.open[other] = false;
        }
        let delay_us = self.delay_us(by, end);
        let at_us = if loses {
            self.now_us + delay_us
        } else {
            self.network.drained(connection, side).max(self.now_us + delay_us)
        };
        let at_us = at_us.max(self.cut_until(by, end));
        if end == COORDINATOR {
            self.schedule_at(at_us, Event::Coordinator(OfCoordinator::Closed { connection }));
        } else {
            self.schedule_at(at_us, Event::In(end, Local::Closed { connection }));
        }
    }

    fn host_of(&self, end: usize) -> usize {
        if end == COORDINATOR { self.swarm.hosts } else { self.processes[end].host }
    }

    /// Whether nothing passes one way or the other.
    pub(crate) fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cut_until(one, other).max(self.cut_until(other, one)) > self.now_us
    }

    pub(crate) fn cut_until(&self, from: usize, to: usize) -> u64 {
        self.network.cut_until(self.host_of(from), self.host_of(to))
    }

    pub(crate) fn delay_us(&mut self, from: usize, to: usize) -> u64 {
        let near = self.host_of(from) == self.host_of(to);
        self.up_to(if near { 100 } else { self.swarm.latency_us })
    }

    /// Something travels on a lane, if the sender's end is open.
    pub(crate) fn send(&mut self, connection: usize, from: usize, lane: usize, packet: crate::event::Packet) {
        let side = self.network.connections[connection].side(from);
        if !self.network.connections[connection].open[side] {
            return;
        }
        let to = self.network.connections[connection].ends[1 - side];
        let delay_us = self.delay_us(from, to);
        let at_us = (self.now_us + delay_us).max(self.cut_until(from, to));
        let at_us = self.network.in_order(connection, side, lane, at_us);
        let event = if to == COORDINATOR {
            Event::Coordinator(OfCoordinator::Arrives { connection, packet })
        } else {
            Event::In(to, Local::Arrives { connection, lane, packet })
        };
        self.schedule_at(at_us, event);
    }
}
