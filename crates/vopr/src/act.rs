//! What happens inside a process: packets reach the machines, and the machines' actions reach the engine.

use crate::event::{Local, Packet};
use crate::hearing::Hearing;
use crate::net::{COORDINATOR, ConnectionId};
use crate::world::{TICK_US, World, member};
use hocket_protocol::drain::Verdict;
use hocket_protocol::liveness;
use hocket_protocol::membership::member::{Action, Event, Exit};
use hocket_protocol::membership::{Note, Order};
use std::time::Duration;

/// How long a script waits for others in a step.
const PATIENCE_US: u64 = 3_000_000;
/// Announcements of one peer that are kept for an epoch that has not begun here.
const HELD_MAX: usize = 64;

impl World {
    pub(crate) fn now(&self, process: usize) -> Duration {
        Duration::from_micros(self.now_us) + self.processes[process].skew
    }

    /// Something happens inside a process, unless it has ended; one that is stopped finds it when it goes on.
    pub(crate) fn local(&mut self, process: usize, local: Local) {
        let this = &mut self.processes[process];
        if !this.alive {
            return;
        }
        if this.stopped {
            return this.backlog.push_back(local);
        }
        if this.hangs && matches!(local, Local::Backward { .. } | Local::Script { .. }) {
            return this.script_backlog.push_back(local);
        }
        match local {
            Local::Arrives { connection, lane, packet } => self.arrives(process, connection, lane, packet),
            Local::Closed { connection } => self.closed(process, connection),
            Local::Gone(other) => {
                if self.processes[process].ranks.contains(&other) {
                    self.tell_member(process, Event::Gone(member(other)));
                    self.follow(process);
                }
            }
            Local::Backward { bucket, step } => self.backward(process, bucket, step),
            Local::Reduce { epoch, step, collective, block } => {
                self.reduce(process, epoch, step, collective, block);
            }
            Local::Write { epoch, step, collective, block, sum, targets } => {
                self.write(process, (epoch, step, collective, block), sum, targets);
            }
            Local::Taken => self.taken(process),
            Local::Fenced(epoch) => self.fenced(process, epoch),
            Local::Unreachable { epoch, peer } => {
                let this = &self.processes[process];
                if this.participant.in_force().is_some_and(|number| (this.generation, number) == epoch) {
                    self.tell_member(process, Event::Lost(peer));
                }
            }
            Local::LeaveAsked => {
                self.processes[process].leaves = true;
                self.tell_member(process, Event::LeaveAsked);
            }
            Local::Script { epoch, event } => {
                if self.processes[process].at() == epoch {
                    self.script_comes_to(process, event);
                }
            }
            Local::Tick => self.tick(process),
        }
    }

    fn tick(&mut self, process: usize) {
        self.schedule_in(process, TICK_US, Local::Tick);
        let now = self.now(process);
        let cut_from: Vec<_> = self.processes[process]
            .peers
            .keys()
            .copied()
            .filter(|&other| self.is_cut(process, other))
            .collect();
        let unlinked = self.is_cut(process, COORDINATOR);
        let this = &mut self.processes[process];
        let (mut asked, mut silent, mut unheard) = (Vec::new(), Vec::new(), false);
        // Between two steps, it needs nothing of the others.
        for (&other, peer) in this.peers.iter_mut().filter(|_| !this.at_edge) {
            match peer.hearing.poll(now, cut_from.contains(&other)) {
                liveness::Action::Wait => {}
                liveness::Action::Ask => asked.push(other),
                liveness::Action::GiveUp { .. } => silent.push(other),
            }
        }
        if let Some((connection, hearing)) = &mut this.link {
            let connection = *connection;
            match hearing.poll(now, unlinked) {
                liveness::Action::Wait => {}
                liveness::Action::Ask => self.send(connection, process, 0, Packet::Ask),
                liveness::Action::GiveUp { .. } => unheard = true,
            }
        }
        for other in asked {
            self.send_to(process, other, 0, Packet::Ask);
        }
        for other in silent {
            if let Some(peer) = self.processes[process].peers.get(&other) {
                let connection = peer.connection;
                self.close(connection, process, true);
                self.closed(process, connection);
            }
        }
        if unheard && let Some((connection, _)) = self.processes[process].link.take() {
            self.close(connection, process, true);
            self.tell_member(process, Event::Unlinked);
        }
        if self.processes[process].alive
            && self.processes[process].link.is_none()
            && let Some(connection) = self.link(process)
        {
            let hearing = Hearing::new(self.swarm.patience(), now);
            self.processes[process].link = Some((connection, hearing));
            self.tell_member(process, Event::Linked);
            self.say_edge(process);
            self.say_ready(process);
        }
        self.tell_member(process, Event::Tick);
        self.look_at_the_script(process);
    }

    /// Its script has waited too long.
    fn look_at_the_script(&mut self, process: usize) {
        let this = &mut self.processes[process];
        let in_step = this.epoch > 0 && !this.at_edge && this.state.is_some();
        if !(this.alive && in_step && this.participant.in_force().is_some() && this.script_waits()) {
            this.waits_since_us = None;
        } else if self.now_us > *this.waits_since_us.get_or_insert(self.now_us) + PATIENCE_US {
            this.waits_since_us = None;
            self.tell_member(process, Event::Overdue);
        }
    }

    /// Something that its script finds when it goes on.
    pub(crate) fn script_comes_to(&mut self, process: usize, event: Event) {
        let this = &mut self.processes[process];
        if this.hangs {
            let epoch = this.at();
            this.script_backlog.push_back(Local::Script { epoch, event });
        } else {
            self.tell_member(process, event);
        }
    }

    /// After a loss, its script comes to where it follows what is decided.
    pub(crate) fn say_that_it_waits(&mut self, process: usize) {
        let this = &self.processes[process];
        if this.quiescing && this.script_waits() {
            self.tell_member(process, Event::Waits);
        }
    }

    pub(crate) fn send_to(&mut self, process: usize, peer: usize, lane: usize, packet: Packet) {
        if let Some(peer) = self.processes[process].peers.get(&peer) {
            let connection = peer.connection;
            self.send(connection, process, lane, packet);
        }
    }

    fn closed(&mut self, process: usize, connection: ConnectionId) {
        self.close(connection, process, true);
        let this = &mut self.processes[process];
        if this.link.as_ref().is_some_and(|(each, _)| *each == connection) {
            this.link = None;
            return self.tell_member(process, Event::Unlinked);
        }
        let [one, other] = self.network.connections[connection].ends;
        let peer = if one == process { other } else { one };
        if this.peers.get(&peer).is_some_and(|each| each.connection == connection) {
            this.peers.remove(&peer);
            self.tell_member(process, Event::Lost(member(peer)));
        }
    }

    fn arrives(&mut self, process: usize, connection: ConnectionId, lane: usize, packet: Packet) {
        let known = &self.network.connections[connection];
        let side = known.side(process);
        if !known.open[side] {
            return;
        }
        let from = known.ends[1 - side];
        let now = self.now(process);
        let this = &mut self.processes[process];
        if let Some((_, hearing)) = this.link.as_mut().filter(|(each, _)| *each == connection) {
            hearing.handle_arrival(now);
            return self.of_link(process, connection, packet);
        }
        let Some(peer) = this.peers.get_mut(&from).filter(|peer| peer.connection == connection) else {
            return;
        };
        peer.hearing.handle_arrival(now);
        match packet {
            Packet::Ask => self.send(connection, process, 0, Packet::Alive),
            Packet::Alive => {}
            Packet::Marker(epoch) => {
                // An epoch that never begins here was skipped.
                peer.held.retain(|(of, _)| *of != lane);
                if let Err(error) = peer.drain.handle_marker(lane, epoch) {
                    self.fail(format!("member {process} refuses {from}: {error}"));
                }
            }
            packet => match peer.drain.verdict(lane) {
                Verdict::Take => self.take(process, from, &packet),
                Verdict::Discard => {}
                Verdict::Keep => {
                    peer.held.push((lane, packet));
                    if peer.held.len() > HELD_MAX {
                        self.fail(format!(
                            "I10: member {process} holds more than {HELD_MAX} announcements of {from}"
                        ));
                    }
                }
            },
        }
    }

    /// The coordinator says something.
    fn of_link(&mut self, process: usize, connection: ConnectionId, packet: Packet) {
        let own = self.processes[process].generation;
        match packet {
            Packet::Ask => self.send(connection, process, 0, Packet::Alive),
            // A newcomer keeps its machine until it meets the others.
            Packet::Order { generation, order } if own == 0 || generation == own => {
                self.log(|_| format!("  {process} < {order:?}"));
                self.tell_member(process, Event::Order(order));
            }
            Packet::Refused => {
                self.log(|_| format!("  {process} is refused"));
                let known = self.checker.handle_refused(process);
                self.check(known);
                self.kill(process, true);
            }
            _ => {}
        }
    }

    /// The machine hears of an event, and the engine does what it says.
    pub(crate) fn tell_member(&mut self, process: usize, event: Event) {
        if !self.processes[process].alive {
            return;
        }
        let now = self.now(process);
        let by_decision = matches!(event, Event::Order(Order::Decide(_) | Order::Released));
        for action in self.processes[process].participant.handle(event, now) {
            let this = &self.processes[process];
            let generation = this.generation;
            match action {
                Action::Send(note) => {
                    self.log(|_| format!("  {process} > {note:?}"));
                    if let Note::Report(report) = &note {
                        self.checker.handle_report(process, report.epoch.map(|epoch| (generation, epoch)));
                    }
                    if let Some((connection, _)) = self.processes[process].link {
                        self.send(connection, process, 0, Packet::Note { generation, note });
                    }
                }
                // The epoch's programs are made when it begins.
                Action::Prepare(decision) => self.tell_member(process, Event::Loaded(decision.epoch)),
                Action::Barrier { .. } => self.launch_barrier(process),
                Action::Commit { step, epoch } => self.commit(process, step, epoch, by_decision),
                Action::Quiesce => self.quiesce(process),
                Action::Enter(decision) => self.enter(process, &decision),
                Action::Exit(exit) => self.exit(process, &exit),
            }
        }
        self.go_on(process);
    }

    fn exit(&mut self, process: usize, exit: &Exit) {
        self.log(|_| format!("  {process} exits: {exit}"));
        match exit {
            Exit::Contradiction { .. } => self.fail(format!("member {process} exits: {exit}")),
            Exit::Left => {
                let known = self.checker.handle_released(process);
                self.check(known);
            }
            Exit::Evicted { epoch, .. } => {
                let this = &self.processes[process];
                let known = self.checker.shuts_out((this.generation, *epoch), member(process));
                if !known {
                    self.fail(format!("I9: member {process} exits, {exit}, and the journal does not say so"));
                }
            }
            Exit::CoordinatorLost { .. } | Exit::Ended(_) => {}
        }
        self.kill(process, true);
    }
}
