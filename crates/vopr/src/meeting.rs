//! Newcomers, and the meeting of a generation as the processes see it: one act of the world, after which all that live have the same
//! state, connections to each other and a machine anew. `tests/meetings` simulates what is inside that act.

use crate::event::{Local, Packet};
use crate::hearing::Hearing;
use crate::net::LANES;
use crate::process::{Peer, Process, State};
use crate::world::{TICK_US, World, member};
use hocket_ids::Member;
use hocket_protocol::drain::Drain;
use hocket_protocol::membership::member::{Event, Participant};
use hocket_protocol::planted::Bug;

impl World {
    /// A newcomer has the state of a member that trains, as it is now.
    pub(crate) fn taken(&mut self, process: usize) {
        if self.processes[process].generation > 0 {
            return;
        }
        let trains = |each: &&Process| each.alive && each.generation > 0;
        let state = self.processes.iter().filter(trains).find_map(|each| each.state.clone());
        if state.is_none() {
            return self.schedule_in(process, TICK_US, Local::Taken);
        }
        self.processes[process].taken = state;
        self.say_ready(process);
    }

    /// A newcomer tells the coordinator that it has the state, if it has.
    pub(crate) fn say_ready(&mut self, process: usize) {
        let this = &self.processes[process];
        if let (0, Some(_), Some((connection, _))) = (this.generation, &this.taken, &this.link) {
            self.send(*connection, process, 0, Packet::Ready);
        }
    }

    /// Members of a generation meet, as far as they live. `holders`: who has the state.
    pub(crate) fn meet(&mut self, generation: u64, members: &[Member], holders: &[Member]) {
        let ranks: Vec<_> = members.iter().map(|each| each.0 as usize).collect();
        let here: Vec<_> = ranks.iter().copied().filter(|&each| self.processes[each].alive).collect();
        let mut held = here.iter().filter(|&&each| holders.contains(&member(each)));
        let Some(state) = held.find_map(|&each| self.processes[each].state.clone()) else {
            return; // the coordinator will see that the state is lost
        };
        let keeps = self.swarm.limits.rules.broken(Bug::KeepStateTaken);
        for &process in &here {
            let this = &mut self.processes[process];
            if !holders.contains(&member(process)) {
                this.state = this.taken.clone().filter(|_| keeps).or_else(|| Some(state.clone()));
            }
        }
        let states: Vec<_> =
            here.iter().filter_map(|&each| Some((each, self.processes[each].state.as_ref()?))).collect();
        let known = self.checker.handle_met(&states);
        self.check(known);
        for &process in &here {
            self.part(process, &ranks);
        }
        for (at, &one) in ranks.iter().enumerate() {
            for &other in &ranks[at + 1..] {
                self.connect(one, other);
            }
        }
        for &process in &here {
            self.found(process, generation, &ranks, &state);
        }
    }

    /// Connections of the generation before end; who comes along does not mind.
    fn part(&mut self, process: usize, ranks: &[usize]) {
        for (other, peer) in std::mem::take(&mut self.processes[process].peers) {
            if ranks.contains(&other) {
                self.network.connections[peer.connection].open = [false; 2];
            } else {
                self.close(peer.connection, process, false);
            }
        }
    }

    fn connect(&mut self, one: usize, other: usize) {
        let connection = self.network.connect([one, other]);
        let (patience, rules) = (self.swarm.patience(), self.swarm.limits.rules);
        for (end, peer) in [(one, other), (other, one)] {
            let now = self.now(end);
            if !self.processes[end].alive {
                let side = self.network.connections[connection].side(end);
                self.network.connections[connection].open[side] = false;
                continue;
            }
            let new = Peer {
                connection,
                drain: Drain::opened(LANES, 1, rules),
                hearing: Hearing::new(patience, now),
                held: Vec::new(),
            };
            self.processes[end].peers.insert(peer, new);
        }
    }

    /// A process is in a generation, whose first epoch its machine waits for.
    fn found(&mut self, process: usize, generation: u64, ranks: &[usize], state: &State) {
        let now = self.now(process);
        let limits = self.swarm.limits.clone();
        let this = &mut self.processes[process];
        let busy = this.running > 0;
        this.participant = Participant::new(member(process), this.host as u32, Some(0), limits, now);
        (this.generation, this.steps_before) = (generation, state.steps);
        this.ranks = ranks.to_vec();
        (this.pending, this.fencing, this.said_edge) = (None, None, None);
        this.current = ranks.iter().map(|&each| member(each)).collect();
        this.left.clear();
        (this.at_edge, this.quiescing, this.waits_since_us) = (true, false, None);
        (this.epoch, this.members) = (0, Vec::new());
        this.clears.clear();
        this.published.clear();
        this.begin_collectives();
        if let Some(own) = &mut this.state {
            // Who was lost on the way draws nothing.
            own.drawers.clone_from(&this.current);
        }
        if busy {
            self.fail(format!("member {process} meets others while its engine still writes"));
        }
        self.log(|_| format!("  {process} meets {ranks:?} after {} steps", state.steps));
        if self.processes[process].link.is_some() {
            self.tell_member(process, Event::Linked);
        }
    }
}
