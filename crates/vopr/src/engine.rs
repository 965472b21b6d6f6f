//! The data plane of a step: gradients are copied to where they are summed up, reduced block by block and written back there. A step
//! that is aborted leaves the gradients as they are, and is reduced again from them.
//!
//! Each block has one member that reduces it. Neighbours' contributions it reads out of their sums, and writes the result into them;
//! others send theirs once it has announced that it is ready, and get the result. The votes and the barrier are collectives
//! of one block that always travel as messages.

use crate::event::{Epoch, Local, Packet};
use crate::memory::{Region, Sum};
use crate::net::LANES;
use crate::world::World;
use hocket_protocol::epoch::Votes;
use hocket_protocol::membership::member::Event;
use hocket_protocol::planted::Bug;

impl World {
    /// Samples are drawn and backward begins.
    pub(crate) fn begin_step(&mut self, process: usize) {
        let batch = self.swarm.batch;
        let this = &mut self.processes[process];
        this.begin_collectives();
        (this.waits_since_us, this.at_edge) = (None, false);
        let Some(state) = &this.state else { return };
        this.draw = state.sampler.draw(&state.drawers, batch);
        let step = state.steps;
        for bucket in &mut this.buckets {
            (bucket.gradients, bucket.used) = (None, false);
        }
        let keep = |key: &(u64, usize, usize)| key.0 >= step;
        this.clears.retain(keep);
        this.published.retain(|key, _| keep(key));
        for bucket in 0..self.swarm.buckets {
            let after_us = self.up_to(self.swarm.compute_us);
            self.schedule_in(process, after_us, Local::Backward { bucket, step });
        }
    }

    pub(crate) fn backward(&mut self, process: usize, bucket: usize, step: u64) {
        let this = &mut self.processes[process];
        let is_open = this.state.as_ref().is_some_and(|state| state.steps == step) && !this.at_edge;
        if !is_open || this.buckets[bucket].gradients.is_some() {
            return;
        }
        this.buckets[bucket].gradients = Some(Sum::of(process, step, u64::MAX));
        self.launch(process, bucket);
        self.follow(process);
        self.say_that_it_waits(process);
    }

    /// Everything whose gradients are there.
    pub(crate) fn launch_all(&mut self, process: usize) {
        for bucket in 0..self.swarm.buckets {
            self.launch(process, bucket);
        }
    }

    fn can_work(&self, process: usize) -> bool {
        let this = &self.processes[process];
        this.epoch > 0 && !this.quiescing && !this.at_edge && this.state.is_some()
    }

    fn launch(&mut self, process: usize, bucket: usize) {
        let ready = self.can_work(process) && !self.processes[process].hangs;
        let this = &mut self.processes[process];
        let own = &mut this.buckets[bucket];
        let Some(gradients) = own.gradients.filter(|_| ready && !this.collectives[bucket].launched) else {
            return;
        };
        let again = std::mem::replace(&mut own.used, true);
        if !(again && self.swarm.limits.rules.broken(Bug::RedoIntoUsedSums)) {
            self.memory.piece_mut(own.region).blocks.fill(gradients);
        }
        self.start(process, bucket);
        let this = &self.processes[process];
        if this.collectives[..this.votes()].iter().all(|each| each.launched)
            && !this.collectives[this.votes()].launched
        {
            let votes = this.votes();
            self.start(process, votes);
        }
    }

    pub(crate) fn launch_barrier(&mut self, process: usize) {
        let barrier = self.processes[process].barrier();
        if self.can_work(process) && !self.processes[process].collectives[barrier].launched {
            self.start(process, barrier);
        }
    }

    fn steps(&self, process: usize) -> u64 {
        self.processes[process].state.as_ref().map_or(0, |state| state.steps)
    }

    fn is_near(&self, process: usize, other: usize, collective: usize) -> bool {
        collective < self.swarm.buckets && self.processes[process].host == self.processes[other].host
    }

    /// What this member gives to a block.
    fn own(&self, process: usize, collective: usize, block: usize) -> Sum {
        let this = &self.processes[process];
        match this.buckets.get(collective) {
            Some(bucket) => self.memory.piece(bucket.region).blocks[block],
            None => Sum::of(process, self.steps(process), this.participant.vote()),
        }
    }

    fn start(&mut self, process: usize, collective: usize) {
        let step = self.steps(process);
        let this = &mut self.processes[process];
        this.collectives[collective].launched = true;
        let blocks = this.blocks(collective);
        let reducers: Vec<_> = (0..blocks).map(|block| this.reducer(collective, block)).collect();
        let peers: Vec<_> = this.members.iter().copied().filter(|&peer| peer != process).collect();
        for (block, _) in reducers.iter().enumerate().filter(|(_, reducer)| **reducer == process) {
            let this = &mut self.processes[process];
            this.collectives[collective].contributed[block] |= 1 << process;
            for &peer in &peers {
                if self.is_near(process, peer, collective)
                    && self.processes[process].published.contains_key(&(step, collective, peer))
                {
                    self.processes[process].collectives[collective].contributed[block] |= 1 << peer;
                }
            }
        }
        for &peer in &peers {
            let near = self.is_near(process, peer, collective);
            if !near && reducers.contains(&process) {
                self.send_to(process, peer, 0, Packet::Clear { collective, step });
            }
            if near && reducers.contains(&peer) {
                let region = self.processes[process].buckets[collective].region;
                self.send_to(process, peer, 0, Packet::Publish { collective, step, region });
            }
            if !near && self.processes[process].clears.contains(&(step, collective, peer)) {
                self.contribute(process, peer, collective);
            }
        }
        for block in 0..blocks {
            self.try_reduce(process, collective, block);
        }
    }

    /// All contributions to blocks that a peer reduces, which is ready for them.
    fn contribute(&mut self, process: usize, peer: usize, collective: usize) {
        let step = self.steps(process);
        for block in 0..self.processes[process].blocks(collective) {
            if self.processes[process].reducer(collective, block) == peer {
                let sum = self.own(process, collective, block);
                let data = Packet::Data { collective, step, block, sum, is_result: false };
                self.send_to(process, peer, lane(collective, block), data);
            }
        }
    }

    /// Something of the epoch in force.
    pub(crate) fn take(&mut self, process: usize, from: usize, packet: &Packet) {
        let current = self.steps(process);
        match *packet {
            Packet::Clear { collective, step } => {
                self.processes[process].clears.insert((step, collective, from));
                if step == current
                    && self.can_work(process)
                    && self.processes[process].collectives[collective].launched
                {
                    self.contribute(process, from, collective);
                }
            }
            Packet::Publish { collective, step, region } => {
                self.processes[process].published.insert((step, collective, from), region);
                let this = &mut self.processes[process];
                if step == current && this.collectives[collective].launched {
                    for block in 0..this.blocks(collective) {
                        let this = &mut self.processes[process];
                        if this.reducer(collective, block) == process {
                            this.collectives[collective].contributed[block] |= 1 << from;
                            self.try_reduce(process, collective, block);
                        }
                    }
                }
            }
            Packet::Data { collective, step, block, sum, is_result } => {
                let is_open = step == current && self.processes[process].collectives[collective].launched;
                if !is_open {
                    return self.fail(format!(
                        "member {process} is at step {current} and gets data of {from} for collective {collective} of step {step} (result: {is_result})"
                    ));
                }
                if is_result {
                    if let Some(bucket) = self.processes[process].buckets.get(collective) {
                        self.memory.piece_mut(bucket.region).blocks[block] = sum;
                    }
                    self.landed(process, collective, block, sum);
                } else {
                    let rules = self.swarm.limits.rules;
                    let this = &mut self.processes[process].collectives[collective];
                    match &mut this.scratch[block] {
                        Some(scratch) => {
                            scratch.add(&sum, |one, other| Votes::<()>::smaller(one, other, rules));
                        }
                        None => this.scratch[block] = Some(sum),
                    }
                    this.contributed[block] |= 1 << from;
                    self.try_reduce(process, collective, block);
                }
            }
            Packet::Landed { collective, step, block } if step == current => {
                let sum = self.own(process, collective, block);
                self.landed(process, collective, block, sum);
            }
            _ => {}
        }
    }

    fn try_reduce(&mut self, process: usize, collective: usize, block: usize) {
        let (epoch, step) = (self.processes[process].at(), self.steps(process));
        let ready = self.can_work(process);
        let this = &mut self.processes[process];
        let all = this.everybody();
        let ours = this.reducer(collective, block) == process;
        let state = &mut this.collectives[collective];
        if !ready || !ours || !state.launched || state.started[block] || state.contributed[block] != all {
            return;
        }
        state.started[block] = true;
        this.running += 1;
        let after_us = self.up_to(self.swarm.write_us);
        self.schedule_in(process, after_us, Local::Reduce { epoch, step, collective, block });
    }

    /// Reads all contributions; what was begun is ended, whatever has happened meanwhile.
    pub(crate) fn reduce(
        &mut self,
        process: usize,
        epoch: Epoch,
        step: u64,
        collective: usize,
        block: usize,
    ) {
        let rules = self.swarm.limits.rules;
        if self.processes[process].at() != epoch {
            return self.end_op(process);
        }
        let smaller = |one, other| Votes::<()>::smaller(one, other, rules);
        let mut sum = self.own(process, collective, block);
        if let Some(scratch) = &self.processes[process].collectives[collective].scratch[block] {
            sum.add(scratch, smaller);
        }
        let this = &self.processes[process];
        let mut targets = Vec::new();
        for &peer in
            this.members.iter().filter(|&&peer| peer != process && self.is_near(process, peer, collective))
        {
            if let Some(&region) = this.published.get(&(step, collective, peer)) {
                sum.add(&self.memory.piece(region).blocks[block], smaller);
                targets.push((peer, region));
            }
        }
        if let Some(bucket) = this.buckets.get(collective) {
            targets.push((process, bucket.region));
        }
        self.write(process, (epoch, step, collective, block), sum, targets);
    }

    /// Writes a result into the sums of one member after the other.
    pub(crate) fn write(
        &mut self,
        process: usize,
        key: (Epoch, u64, usize, usize),
        sum: Sum,
        mut targets: Vec<(usize, Region)>,
    ) {
        let (epoch, step, collective, block) = key;
        if let Some((target, region)) = targets.pop() {
            let piece = self.memory.piece_mut(region);
            let owner = piece.owner;
            piece.blocks[block] = sum;
            let of_owner = &self.processes[owner];
            if owner != process
                && of_owner.alive
                && !of_owner.members.contains(&process)
                && !of_owner.members.is_empty()
            {
                return self
                    .fail(format!("I5: {process} writes into memory that member {owner} uses without it"));
            }
            if target != process {
                self.send_to(process, target, 0, Packet::Landed { collective, step, block });
            }
            let after_us = self.up_to(self.swarm.write_us);
            let local = Local::Write { epoch, step, collective, block, sum, targets };
            return self.schedule_in(process, after_us, local);
        }
        let this = &self.processes[process];
        if this.at() == epoch {
            let far: Vec<_> = this
                .members
                .iter()
                .copied()
                .filter(|&peer| peer != process && !self.is_near(process, peer, collective))
                .collect();
            if !this.quiescing {
                for peer in far {
                    let data = Packet::Data { collective, step, block, sum, is_result: true };
                    self.send_to(process, peer, lane(collective, block), data);
                }
            }
            self.landed(process, collective, block, sum);
        }
        self.end_op(process);
    }

    fn end_op(&mut self, process: usize) {
        let this = &mut self.processes[process];
        this.running = this.running.saturating_sub(1);
        if this.quiescing && this.running == 0 {
            self.tell_member(process, Event::Quiesced);
        }
    }

    /// A block of a collective is what it shall be, here.
    fn landed(&mut self, process: usize, collective: usize, block: usize, sum: Sum) {
        let step = self.steps(process);
        let this = &mut self.processes[process];
        this.collectives[collective].results[block] = Some(sum);
        let (votes, barrier) = (this.votes(), this.barrier());
        let since = step - this.steps_before;
        if collective == barrier {
            return self.script_comes_to(process, Event::Done { step: since });
        }
        let epoch = this.epoch;
        if this.collectives[..=votes].iter().all(crate::process::Collective::complete) {
            let vote = this.collectives[votes].results[0].map_or(epoch, |sum| sum.vote);
            let at = self.processes[process].at();
            self.checker.handle_prepared(process, at, step);
            self.script_comes_to(process, Event::Prepared { step: since, vote });
        }
    }

    pub(crate) fn quiesce(&mut self, process: usize) {
        let this = &mut self.processes[process];
        this.quiescing = true;
        this.peers.values_mut().for_each(|peer| peer.drain.stop());
        self.say_that_it_waits(process);
        if self.processes[process].running == 0 {
            self.tell_member(process, Event::Quiesced);
        }
    }
}

fn lane(collective: usize, block: usize) -> usize {
    (collective + block) % LANES
}
