//! The coordinator's host: the real machine, its connections, and a journal on a disk that a crash can tear.

use crate::coordinator_host::SYNC_US;
use crate::event::{Event, OfCoordinator, Packet};
use crate::hearing::Hearing;
use crate::net::{COORDINATOR, ConnectionId};
use crate::world::{TICK_US, World, member};
use hocket_protocol::liveness;
use hocket_protocol::membership::coordinator::{Action, Coordinator, Event as Told};
use hocket_protocol::membership::{Ending, journal};
use std::time::Duration;

/// Entries of the coordinator's tables for each process that ever was.
const ENTRIES_MAX: usize = 7;

impl World {
    pub(crate) fn coordinator_now(&self) -> Duration {
        Duration::from_micros(self.now_us) + self.host.skew
    }

    pub(crate) fn start_coordinator(&mut self) {
        if self.host.machine.is_some() || self.host.ended.is_some() {
            return;
        }
        let history = match journal::decode(&self.host.durable, self.host.limits.rules) {
            Ok(history) => history,
            Err(error) => return self.fail(format!("a crash makes the journal unreadable: {error}")),
        };
        self.host.durable.truncate(history.bytes);
        let generation = self.host.head.generation;
        for decision in &history.decisions {
            let known = self.checker.handle_durable(generation, decision);
            self.check(known);
        }
        self.restored(&history.decisions);
        let (founders, limits) = (self.host.head.members.len(), self.host.limits.clone());
        self.log(|_| {
            format!(
                "the coordinator starts with {} records of generation {generation}",
                history.decisions.len()
            )
        });
        let now = self.coordinator_now();
        self.host.machine = Some(Coordinator::new(founders, &history.decisions, limits, now));
        self.host.life += 1;
        self.schedule(TICK_US, Event::Coordinator(OfCoordinator::Tick));
    }

    /// It ends, and starts again after a while.
    pub(crate) fn crash_coordinator(&mut self, for_us: u64) {
        self.kill_coordinator();
        self.schedule(for_us, Event::Coordinator(OfCoordinator::Start));
    }

    fn kill_coordinator(&mut self) {
        if self.host.machine.take().is_none() {
            return;
        }
        self.log(|_| "the coordinator ends".into());
        self.host.life += 1;
        self.host.stopped = false;
        self.host.backlog.clear();
        self.host.new_head = None;
        for (connection, _) in std::mem::take(&mut self.host.links).into_values() {
            let loses = self.rng.bool();
            self.close(connection, COORDINATOR, loses);
        }
        // Of what was not synchronised, some may be on the disk.
        for decision in std::mem::take(&mut self.host.unsynced) {
            let record = journal::encode(&decision);
            let kept = match self.rng.u8(..3) {
                0 => 0,
                1 => record.len(),
                _ => self.rng.usize(..record.len()),
            };
            self.host.durable.extend(&record[..kept]);
            if kept < record.len() {
                if self.rng.bool() {
                    self.host.durable.resize(self.host.durable.len() + record.len() - kept, 0);
                }
                break;
            }
        }
    }

    pub(crate) fn of_coordinator(&mut self, event: OfCoordinator) {
        match event {
            OfCoordinator::Start => return self.start_coordinator(),
            OfCoordinator::Crash { .. } if self.frozen => return,
            OfCoordinator::Crash { for_us } => return self.crash_coordinator(for_us),
            OfCoordinator::Resume => {
                if std::mem::take(&mut self.host.stopped) {
                    let jump = self.clock_jump();
                    self.host.skew += jump;
                }
                for event in std::mem::take(&mut self.host.backlog) {
                    self.of_coordinator(event);
                }
                return;
            }
            _ if self.host.machine.is_none() => return,
            event if self.host.stopped => return self.host.backlog.push(event),
            _ => {}
        }
        match event {
            OfCoordinator::Arrives { connection, packet } => self.hear(connection, packet),
            OfCoordinator::Closed { connection } => self.unlink(connection),
            OfCoordinator::Written { life } if life == self.host.life => self.written(),
            OfCoordinator::Head { life } if life == self.host.life => self.head_written(),
            OfCoordinator::Written { .. }
            | OfCoordinator::Head { .. }
            | OfCoordinator::Start
            | OfCoordinator::Resume
            | OfCoordinator::Crash { .. } => {}
            OfCoordinator::Tick => self.coordinator_tick(),
        }
    }

    fn hear(&mut self, connection: ConnectionId, packet: Packet) {
        let known = &self.network.connections[connection];
        let from = known.ends[1 - known.side(COORDINATOR)];
        if !known.open[known.side(COORDINATOR)] {
            return;
        }
        let now = self.coordinator_now();
        let Some((current, hearing)) = self.host.links.get_mut(&from) else { return };
        if *current != connection {
            return;
        }
        hearing.handle_arrival(now);
        match packet {
            Packet::Note { generation, note } => {
                self.log(|_| format!("  coordinator < {from}: {note:?}"));
                self.hear_note(from, generation, note);
            }
            Packet::Ready => {
                self.host.waiting.ready.insert(member(from));
                self.let_in();
            }
            Packet::AtEdge { generation, epoch } if generation == self.host.gathering.number => {
                self.log(|_| format!("  coordinator < {from}: at the edge in epoch {epoch}"));
                self.host.gathering.at_edge.insert(member(from), epoch);
                self.at_the_edge();
            }
            Packet::Ask => self.send(connection, COORDINATOR, 0, Packet::Alive),
            _ => {}
        }
    }

    fn unlink(&mut self, connection: ConnectionId) {
        let found =
            self.host.links.iter().find(|(_, (each, _))| *each == connection).map(|(&process, _)| process);
        if let Some(process) = found {
            self.host.links.remove(&process);
            self.close(connection, COORDINATOR, false);
            self.unlinked(process);
        }
    }

    fn written(&mut self) {
        let Some(decision) = self.host.unsynced.pop_front() else { return };
        self.host.durable.extend(journal::encode(&decision));
        let known = self.checker.handle_durable(self.host.gathering.number, &decision);
        self.check(known);
        self.log(|_| format!("  journal: {decision:?}"));
        self.follow_decision(&decision);
        self.tell(Told::Written);
        self.let_in();
    }

    fn coordinator_tick(&mut self) {
        let now = self.coordinator_now();
        let mut silent = Vec::new();
        let mut asked = Vec::new();
        let cut: Vec<_> =
            self.host.links.keys().copied().filter(|&process| self.is_cut(process, COORDINATOR)).collect();
        for (process, (connection, hearing)) in &mut self.host.links {
            match hearing.poll(now, cut.contains(process)) {
                liveness::Action::Wait => {}
                liveness::Action::Ask => asked.push(*connection),
                liveness::Action::GiveUp { .. } => silent.push((*process, *connection)),
            }
        }
        for connection in asked {
            self.send(connection, COORDINATOR, 0, Packet::Ask);
        }
        for (process, connection) in silent {
            self.host.silent.insert(member(process));
            self.unlink(connection);
        }
        self.expire();
        self.tell(Told::Tick);
        let entries = self.host.machine.as_ref().map_or(0, Coordinator::entries);
        if entries > ENTRIES_MAX * self.processes.len() {
            self.fail(format!(
                "I10: the coordinator keeps {entries} entries for {} processes",
                self.processes.len()
            ));
        }
        self.schedule(TICK_US, Event::Coordinator(OfCoordinator::Tick));
    }

    /// Where that fault is due, it ends about when the disk has what it writes now.
    pub(crate) fn crash_if_doomed(&mut self) {
        if let Some(for_us) = self.host.doomed.take() {
            let crash_us = self.up_to(SYNC_US);
            self.schedule(crash_us, Event::Coordinator(OfCoordinator::Crash { for_us }));
        }
    }

    pub(crate) fn tell(&mut self, event: Told) {
        let now = self.coordinator_now();
        let Some(machine) = &mut self.host.machine else { return };
        for action in machine.handle(event, now) {
            match action {
                Action::Send { to, order } => {
                    let to = to.0 as usize;
                    self.log(|_| format!("  coordinator > {to}: {order:?}"));
                    let generation = self.host.gathering.number;
                    self.say(to, Packet::Order { generation, order });
                }
                Action::Write(decision) => {
                    self.host.unsynced.push_back(decision);
                    let (after_us, life) = (self.up_to(SYNC_US), self.host.life);
                    self.crash_if_doomed();
                    self.schedule(after_us, Event::Coordinator(OfCoordinator::Written { life }));
                }
                Action::Wait { .. } => {
                    self.host.waiting.short = true;
                    self.let_in();
                }
                Action::Kill { member, .. } if self.swarm.leash => {
                    let after_us = self.up_to(100_000);
                    self.schedule(after_us, Event::Leash(member.0 as usize));
                }
                Action::Kill { .. } | Action::LetGo(_) => {}
                Action::End(ending) => {
                    self.log(|_| format!("the job ends: {ending}"));
                    // Two that hang in one step, one after the other, and each come just in time, look like scripts that differ.
                    let stuck = matches!(ending, Ending::Stuck { .. }) && self.checker.hung_at_most_once();
                    if stuck || matches!(ending, Ending::OldJournal { .. } | Ending::Contradiction { .. }) {
                        self.fail(format!("the coordinator ends the job: {ending}"));
                    }
                    self.host.ended = Some(ending);
                }
            }
        }
    }

    /// Something is said to a process, if it is connected.
    pub(crate) fn say(&mut self, process: usize, packet: Packet) {
        if let Some(&(connection, _)) = self.host.links.get(&process) {
            self.send(connection, COORDINATOR, 0, packet);
        }
    }

    pub(crate) fn link(&mut self, process: usize) -> Option<ConnectionId> {
        let up = self.host.machine.is_some() && self.host.ended.is_none();
        if !up || self.is_cut(process, COORDINATOR) {
            return None;
        }
        let now = self.coordinator_now();
        self.host.silent.remove(&member(process));
        let connection = self.network.connect([process, COORDINATOR]);
        let hearing = Hearing::new(self.swarm.patience(), now);
        if let Some((before, _)) = self.host.links.insert(process, (connection, hearing)) {
            self.close(before, COORDINATOR, true);
        }
        Some(connection)
    }
}
