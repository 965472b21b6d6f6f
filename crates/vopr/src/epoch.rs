//! What a step's end and an epoch's beginning do to a process: its model, its samples, its memory and its peers.

use crate::check::Seen;
use crate::event::{Epoch, Local, Packet};
use crate::memory::Sum;
use crate::net::LANES;
use crate::world::{World, member};
use hocket_protocol::drain::Verdict;
use hocket_protocol::membership::{Decision, Kind};
use hocket_protocol::planted::Bug;
use hocket_protocol::sampler::mixed;

/// How long a neighbour that an epoch shuts out may take to end before it is killed.
const FENCE_US: u64 = 200_000;

impl World {
    /// A step of the generation stands, as its machine counts them.
    pub(crate) fn commit(&mut self, process: usize, step: u64, epoch: u64, by_decision: bool) {
        let this = &self.processes[process];
        let at = (this.generation, epoch);
        let step = step + this.steps_before;
        let members = self.checker.trained(at);
        let sums: Vec<Sum> =
            this.buckets.iter().flat_map(|bucket| self.memory.piece(bucket.region).blocks.clone()).collect();
        let rules = self.swarm.limits.rules;
        let this = &mut self.processes[process];
        let draw = std::mem::take(&mut this.draw);
        let votes = this.votes();
        let vote = this.collectives[votes].results[0].map_or(epoch, |sum| sum.vote);
        this.at_edge = true;
        let Some(state) = &mut this.state else {
            return self.fail(format!("member {process} commits step {step} without a state"));
        };
        let data_epoch = state.sampler.data_epoch();
        let positions = state.sampler.commit(&draw, &members, rules);
        state.steps = step + 1;
        for (at, block) in state.blocks.iter_mut().enumerate() {
            *block = sums.iter().fold(mixed(*block ^ at as u64), |hash, sum| mixed(hash ^ sum.digest()));
        }
        // The next step is for the members of the epoch that this one's votes begin.
        state.drawers = self.checker.trained((at.0, vote));
        let state = state.clone();
        let seen =
            Seen { process, epoch: at, step, by_decision, sums: &sums, positions, data_epoch, state: &state };
        let known = self.checker.handle_commit(&seen);
        self.check(known);
        self.log(|_| format!("  {process} commits step {step} of epoch {at:?}"));
    }

    /// The machine is in an epoch. Its engine begins that where the script can follow.
    pub(crate) fn enter(&mut self, process: usize, decision: &Decision) {
        let this = &mut self.processes[process];
        let at = (this.generation, decision.epoch);
        if this.generation == 0 {
            // It has taken a lost member's place, but has met nobody yet.
            return;
        }
        let before = std::mem::replace(&mut this.current, decision.members.clone());
        // Some may be in the second epoch without a leaver: it was not evicted in that.
        this.left
            .extend(before.iter().filter(|each| !decision.has(**each) && !decision.evicted.contains(each)));
        let (ranks, peers) = (this.ranks.iter().copied(), &this.peers);
        let lost = ranks.filter(|&each| each != process && !peers.contains_key(&each)).map(member);
        let lost: Vec<_> = lost.filter(|&each| decision.has(each)).collect();
        let joins = this.has_newcomers();
        let known = self.checker.handle_entered(process, at, decision);
        self.check(known);
        self.log(|_| format!("  {process} is in epoch {at:?}"));
        match decision.kind {
            Kind::Planned if joins => self.leave_alone(process),
            Kind::Planned => self.begin_epoch(process, decision),
            Kind::Founded => {
                let this = &mut self.processes[process];
                (this.epoch, this.members) = (decision.epoch, this.ranks.clone());
                if this.leaves {
                    self.schedule_in(process, 0, Local::LeaveAsked);
                }
            }
            Kind::Loss { .. } => {
                self.processes[process].pending = Some(decision.clone());
                self.follow(process);
            }
        }
        for peer in lost {
            self.schedule_in(process, 0, Local::Unreachable { epoch: at, peer });
        }
    }

    /// The engine begins the newest epoch that was decided, where the script can follow and the neighbours that it shuts out have ended.
    pub(crate) fn follow(&mut self, process: usize) {
        let this = &mut self.processes[process];
        let in_force = this.participant.in_force();
        this.pending.take_if(|pending| Some(pending.epoch) != in_force);
        let Some(pending) = this.pending.clone().filter(|_| this.alive && this.script_waits()) else {
            return;
        };
        let at = (this.generation, pending.epoch);
        let waits =
            !self.late(process, &pending).is_empty() && !self.swarm.limits.rules.broken(Bug::BeginBeforeGone);
        if !waits {
            self.processes[process].pending = None;
            self.begin_epoch(process, &pending);
        } else if self.processes[process].fencing.replace(at) != Some(at) {
            self.schedule_in(process, FENCE_US, Local::Fenced(at));
        }
    }

    /// Neighbours that an epoch shuts out, and that may still write into this process's memory.
    fn late(&self, process: usize, decision: &Decision) -> Vec<usize> {
        let this = &self.processes[process];
        let shut_out = |&other: &usize| {
            let near = other != process && self.processes[other].host == this.host;
            near && !decision.has(member(other)) && !this.left.contains(&member(other))
        };
        let lives = |&other: &usize| self.processes[other].alive;
        this.members.iter().copied().filter(shut_out).filter(lives).collect()
    }

    /// Neighbours that have not ended in time are killed.
    pub(crate) fn fenced(&mut self, process: usize, at: Epoch) {
        let this = &self.processes[process];
        let Some(pending) = this.pending.clone().filter(|_| this.fencing == Some(at)) else { return };
        if (this.generation, pending.epoch) == at {
            for other in self.late(process, &pending) {
                self.log(|_| format!("  {process} kills {other}"));
                let known = self.checker.handle_killed(other);
                self.check(known);
                self.kill(other, true);
            }
            self.follow(process);
        }
    }

    fn begin_epoch(&mut self, process: usize, decision: &Decision) {
        self.log(|_| format!("  {process} begins epoch {}", decision.epoch));
        let planned = decision.kind == Kind::Planned;
        let this = &mut self.processes[process];
        let ours = |each: &usize| decision.has(member(*each));
        (this.epoch, this.members) = (decision.epoch, this.ranks.iter().copied().filter(ours).collect());
        (this.quiescing, this.waits_since_us, this.fencing) = (false, None, None);
        this.clears.clear();
        this.published.clear();
        this.begin_collectives();
        let (epoch, members) = (this.epoch, this.members.clone());
        for peer in this.peers.values_mut() {
            peer.drain.enter(epoch);
        }
        // Leavers have voted and stop by themselves; whoever a loss shut out is not heard any more.
        let keeps = planned && !self.swarm.parts_early;
        let strangers: Vec<_> =
            this.peers.keys().copied().filter(|peer| !keeps && !members.contains(peer)).collect();
        for peer in strangers {
            if let Some(peer) = self.processes[process].peers.remove(&peer) {
                self.close(peer.connection, process, false);
            }
        }
        if !members.contains(&process) {
            self.processes[process].members.clear();
            return;
        }
        for &peer in members.iter().filter(|&&peer| peer != process) {
            for lane in 0..LANES {
                self.send_to(process, peer, lane, Packet::Marker(epoch));
            }
        }
        self.go_on(process);
        self.launch_all(process);
        for &from in &members {
            self.take_held(process, from);
        }
    }

    /// What a peer has said of the epoch that has begun here since.
    fn take_held(&mut self, process: usize, from: usize) {
        let Some(peer) = self.processes[process].peers.get_mut(&from) else { return };
        for (lane, packet) in std::mem::take(&mut peer.held) {
            let Some(peer) = self.processes[process].peers.get_mut(&from) else { return };
            match peer.drain.verdict(lane) {
                Verdict::Take => self.take(process, from, &packet),
                Verdict::Keep => peer.held.push((lane, packet)),
                Verdict::Discard => {}
            }
        }
    }

    /// Between two steps: the next one begins, unless newcomers are to be met before it.
    pub(crate) fn go_on(&mut self, process: usize) {
        let this = &mut self.processes[process];
        let stands = this.alive && this.at_edge && !this.hangs && this.state.is_some();
        let Some(epoch) = this.participant.in_force().filter(|_| stands && this.pending.is_none()) else {
            return;
        };
        if !this.has_newcomers() {
            if this.epoch == epoch {
                self.begin_step(process);
            }
        } else if this.said_edge.replace(epoch) != Some(epoch) {
            self.say_edge(process);
        }
    }

    /// A member tells the coordinator that it waits for newcomers, if it does.
    pub(crate) fn say_edge(&mut self, process: usize) {
        let this = &self.processes[process];
        if let (Some(epoch), Some((connection, _))) = (this.said_edge, &this.link) {
            let packet = Packet::AtEdge { generation: this.generation, epoch };
            self.send(*connection, process, 0, packet);
        }
    }
}
