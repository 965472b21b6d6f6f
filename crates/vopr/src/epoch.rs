//! What a step's end and an epoch's beginning do to a process: its model, its samples, its memory and its peers.

use crate::check::Seen;
use crate::memory::{Piece, Sum};
use crate::world::World;
use hocket_ids::Member;
use hocket_protocol::drain::Verdict;
use hocket_protocol::membership::{Decision, Kind};
use hocket_protocol::sampler::mixed;

impl World {
    pub(crate) fn commit(&mut self, process: usize, step: u64, epoch: u64, by_decision: bool) {
        let members = self.checker.decision(epoch).map_or(Vec::new(), |decision| decision.members.clone());
        let this = &self.processes[process];
        let sums: Vec<Sum> =
            this.buckets.iter().flat_map(|bucket| self.memory.piece(bucket.region).blocks.clone()).collect();
        let rules = self.swarm.limits.rules;
        let this = &mut self.processes[process];
        let draw = std::mem::take(&mut this.draw);
        let votes = this.votes();
        let vote = this.collectives[votes].results[0].map_or(epoch, |sum| sum.vote);
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
        state.layout = vec![self.checker.decision(vote).map_or(members, |decision| decision.members.clone())];
        let state = state.clone();
        let seen =
            Seen { process, epoch, step, by_decision, sums: &sums, positions, data_epoch, state: &state };
        let known = self.checker.handle_commit(&seen);
        self.check(known);
        self.log(|_| format!("  {process} commits step {step} of epoch {epoch}"));
        self.begin_step(process);
    }

    pub(crate) fn enter(&mut self, process: usize, decision: &Decision) {
        let known = self.checker.handle_entered(process, decision);
        self.check(known);
        self.log(|_| format!("  {process} begins epoch {}", decision.epoch));
        let planned = decision.kind == Kind::Planned;
        let this = &mut self.processes[process];
        this.epoch = decision.epoch;
        this.members = decision.members.iter().map(|each| each.0 as usize).collect();
        this.entered_us = self.now_us;
        this.meshed = false;
        this.quiescing = false;
        this.waits_since_us = None;
        this.clears.clear();
        this.published.clear();
        this.begin_collectives();
        self.replace_memory(process, decision);
        let this = &mut self.processes[process];
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
            self.mark(process, peer);
        }
        self.extend_draw(process);
        if planned {
            self.leave_alone(process, &decision.fresh);
        }
        self.mesh(process);
        for &from in &members {
            let held = self.processes[process]
                .peers
                .get_mut(&from)
                .map_or(Vec::new(), |peer| std::mem::take(&mut peer.held));
            for (lane, packet) in held {
                let verdict = self.processes[process].peers.get(&from).map(|peer| peer.drain.verdict(lane));
                match verdict {
                    Some(Verdict::Take) => self.take(process, from, packet),
                    Some(Verdict::Keep) => {
                        if let Some(peer) = self.processes[process].peers.get_mut(&from) {
                            peer.held.push((lane, packet));
                        }
                    }
                    Some(Verdict::Discard) | None => {}
                }
            }
        }
    }

    fn replace_memory(&mut self, process: usize, decision: &Decision) {
        let this = &mut self.processes[process];
        let quarantined = this.fence.enter(&decision.evicted, &this.gone);
        for region in quarantined {
            let Some(at) = this.buckets.iter().position(|bucket| bucket.region == region) else { continue };
            let blocks = self.memory.piece(region).blocks.clone();
            self.memory.piece_mut(region).live = false;
            let new = match this.free.pop() {
                Some(free) => {
                    *self.memory.piece_mut(free) = Piece { owner: process, live: true, blocks };
                    free
                }
                None => self.memory.allocate(process, blocks),
            };
            this.buckets[at].region = new;
        }
        let (host, regions) =
            (this.host, this.buckets.iter().map(|bucket| bucket.region).collect::<Vec<_>>());
        let near =
            |other: &&Member| self.processes[other.0 as usize].host == host && other.0 as usize != process;
        let neighbours: Vec<_> = decision.members.iter().filter(near).copied().collect();
        for region in regions {
            self.processes[process].fence.share(region, neighbours.iter().copied());
        }
    }
}
