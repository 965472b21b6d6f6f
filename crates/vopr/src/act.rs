//! What happens inside a process: packets reach the machines, and the machines' actions reach the engine.

use crate::event::{Local, Packet};
use crate::hearing::Hearing;
use crate::net::{COORDINATOR, ConnectionId, LANES};
use crate::process::{Peer, State};
use crate::world::{TICK_US, World, member};
use hocket_protocol::drain::{Drain, Verdict};
use hocket_protocol::liveness;
use hocket_protocol::membership::member::{Action, Event, Exit};
use hocket_protocol::membership::{Note, Order};
use hocket_protocol::transfer::{Ask, Manifest, TransferError};
use std::time::Duration;

/// How long a member of an epoch may take to be connected.
const CONNECT_US: u64 = 2_500_000;
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
                self.processes[process].gone.insert(member(other));
                let free = self.processes[process].fence.handle_gone(member(other));
                self.processes[process].free.extend(free);
                self.tell_member(process, Event::Gone(member(other)));
            }
            Local::Backward { bucket, step } => self.backward(process, bucket, step),
            Local::Reduce { epoch, step, collective, block } => {
                self.reduce(process, epoch, step, collective, block);
            }
            Local::Write { epoch, step, collective, block, sum, targets } => {
                self.write(process, (epoch, step, collective, block), sum, targets);
            }
            Local::Serve { to, epoch, block } => self.serve(process, to, epoch, block),
            Local::Load(epoch) => self.load(process, epoch),
            Local::LeaveAsked => self.tell_member(process, Event::LeaveAsked),
            Local::Script { epoch, event } => {
                if self.processes[process].epoch == epoch {
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
        for (&other, peer) in &mut this.peers {
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
        }
        self.mesh(process);
        self.tell_member(process, Event::Tick);
        self.look_at_the_script(process);
    }

    /// Its script has waited too long.
    fn look_at_the_script(&mut self, process: usize) {
        let this = &mut self.processes[process];
        let in_step = this.meshed && this.state.is_some() && this.participant.in_force().is_some();
        if !(this.alive && in_step && this.script_waits()) {
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
            let epoch = this.epoch;
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

    /// Connects to members of the epoch that are not yet, and begins to work when all are.
    pub(crate) fn mesh(&mut self, process: usize) {
        let this = &self.processes[process];
        if !this.alive || this.meshed || this.members.is_empty() {
            return;
        }
        let late = self.now_us > this.entered_us + CONNECT_US;
        for other in this.members.clone() {
            if other != process
                && !self.processes[process].peers.contains_key(&other)
                && !self.connect(process, other)
                && late
            {
                self.tell_member(process, Event::Lost(member(other)));
            }
        }
        let this = &mut self.processes[process];
        let has = |other: &usize| *other == process || this.peers.contains_key(other);
        if this.alive && !this.meshed && this.members.iter().all(has) {
            this.meshed = true;
            self.launch_all(process);
        }
    }

    /// One more connection between two processes, if they can reach each other.
    fn connect(&mut self, process: usize, other: usize) -> bool {
        if !self.processes[other].alive || self.is_cut(process, other) {
            return false;
        }
        let connection = self.network.connect([process, other]);
        let (patience, rules) = (self.swarm.patience(), self.swarm.limits.rules);
        for (end, peer) in [(process, other), (other, process)] {
            let now = self.now(end);
            let epoch = self.processes[end].epoch;
            let new = Peer {
                connection,
                drain: Drain::new(LANES, epoch, rules),
                hearing: Hearing::new(patience, now),
                held: Vec::new(),
            };
            let before = self.processes[end].peers.insert(peer, new);
            // Whoever had worked over the connection before does not know what was lost with it.
            if let Some(before) = before {
                self.close(before.connection, end, true);
                if self.processes[end].meshed {
                    self.schedule_in(end, 0, Local::Closed { connection: before.connection });
                }
            }
        }
        // Who had all connections of its epoch will get another epoch before it uses this one.
        for (end, peer) in [(process, other), (other, process)] {
            if self.processes[end].members.contains(&peer) && !self.processes[end].meshed {
                self.mark(end, peer);
            }
        }
        true
    }

    /// The epoch begins on all lanes to a peer.
    pub(crate) fn mark(&mut self, process: usize, peer: usize) {
        let epoch = self.processes[process].epoch;
        for lane in 0..LANES {
            self.send_to(process, peer, lane, Packet::Marker(epoch));
        }
        let decision = self.checker.decision(epoch).cloned();
        if decision.is_some_and(|decision| {
            decision.fresh.contains(&member(peer)) && !decision.fresh.contains(&member(process))
        }) && let Some(state) = &self.processes[process].state
        {
            let manifest = Manifest {
                steps: state.steps,
                digests: state.blocks.iter().map(|&block| block as u32).collect(),
            };
            let (sampler, layout) = (state.sampler.clone(), state.layout.clone());
            self.send_to(process, peer, 0, Packet::Have { manifest, sampler, layout });
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
        let this = &mut self.processes[process];
        if this.peers.get(&peer).is_some_and(|each| each.connection == connection) {
            this.peers.remove(&peer);
        } else if !this.meshed {
            return;
        }
        let asks = self.processes[process].fetch.handle_lost(member(peer));
        self.ask_blocks(process, asks);
        if self.processes[process].meshed {
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
        if let Packet::Order(order) = packet {
            if let Some((_, hearing)) = this.link.as_mut().filter(|(each, _)| *each == connection) {
                hearing.handle_arrival(now);
                self.log(|_| format!("  {process} < {order:?}"));
                self.tell_member(process, Event::Order(order));
            }
            return;
        }
        if let Some((_, hearing)) = this.link.as_mut().filter(|(each, _)| *each == connection) {
            hearing.handle_arrival(now);
            if matches!(packet, Packet::Ask) {
                self.send(connection, process, 0, Packet::Alive);
            }
            return;
        }
        let Some(peer) = this.peers.get_mut(&from).filter(|peer| peer.connection == connection) else {
            return;
        };
        peer.hearing.handle_arrival(now);
        match packet {
            Packet::Ask => self.send(connection, process, 0, Packet::Alive),
            Packet::Alive => {}
            Packet::Marker(epoch) => {
                if let Err(error) = peer.drain.handle_marker(lane, epoch) {
                    self.fail(format!("member {process} refuses {from}: {error}"));
                }
                self.tell_member(process, Event::Begun(epoch));
            }
            packet => match peer.drain.verdict(lane) {
                Verdict::Take => self.take(process, from, packet),
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

    /// Something of the epoch in force.
    pub(crate) fn take(&mut self, process: usize, from: usize, packet: Packet) {
        match packet {
            Packet::Have { manifest, sampler, layout } => {
                let this = &mut self.processes[process];
                this.offer = Some((manifest.steps, sampler, layout));
                let asks = this.fetch.handle_manifest(member(from), manifest);
                self.fetching(process, asks);
            }
            Packet::AskBlock(block) => {
                let (after_us, epoch) = (self.up_to(self.swarm.block_us), self.processes[process].epoch);
                self.schedule_in(process, after_us, Local::Serve { to: from, epoch, block });
            }
            Packet::Block { block, value } => {
                let this = &mut self.processes[process];
                let asks = this.fetch.handle_block(member(from), block, value as u32);
                if this.fetch.has(block, value as u32) {
                    this.fetched[block] = value;
                }
                self.fetching(process, asks);
            }
            packet => self.take_part(process, from, &packet),
        }
    }

    fn fetching(&mut self, process: usize, asks: Result<Vec<Ask>, TransferError>) {
        match asks {
            Ok(asks) => self.ask_blocks(process, asks),
            Err(error) => self.fail(format!("joiner {process}: {error}")),
        }
        let this = &mut self.processes[process];
        if this.state.is_none()
            && let Some(steps) = this.fetch.complete()
            && let Some((_, sampler, layout)) = this.offer.clone()
        {
            let state = State { steps, blocks: this.fetched, sampler, layout };
            let known = self.checker.handle_fetched(process, &state);
            self.check(known);
            self.processes[process].state = Some(state);
            self.log(|_| format!("  {process} has the state after {steps} steps"));
            self.tell_member(process, Event::Fetched { steps });
            self.begin_step(process);
            self.extend_draw(process);
        }
    }

    fn serve(&mut self, process: usize, to: usize, epoch: u64, block: usize) {
        let this = &self.processes[process];
        if let Some(state) = this.state.as_ref().filter(|_| this.epoch == epoch) {
            let every = self.swarm.damaged_every;
            let is_damaged = every > 0 && !self.frozen && self.rng.u32(..every) == 0;
            let value = state.blocks[block] ^ u64::from(is_damaged);
            self.send_to(process, to, 1, Packet::Block { block, value });
        }
    }

    fn ask_blocks(&mut self, process: usize, asks: Vec<Ask>) {
        for Ask { source, block } in asks {
            self.send_to(process, source.0 as usize, 0, Packet::AskBlock(block));
        }
    }

    fn load(&mut self, process: usize, epoch: u64) {
        let Some(decision) = self.checker.decision(epoch).cloned() else { return };
        if self.processes[process].epoch >= epoch {
            return;
        }
        let mut all = true;
        for other in decision.members.iter().map(|each| each.0 as usize).filter(|&each| each != process) {
            all &= self.processes[process].peers.contains_key(&other) || self.connect(process, other);
        }
        if all {
            self.tell_member(process, Event::Loaded(epoch));
        } else if self.checker.last() == Some(&decision) {
            self.schedule_in(process, TICK_US, Local::Load(epoch));
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
            match action {
                Action::Send(note) => {
                    self.log(|_| format!("  {process} > {note:?}"));
                    if let Note::Report(report) = &note {
                        self.checker.handle_report(process, report.epoch);
                    }
                    if let Some((connection, _)) = self.processes[process].link {
                        self.send(connection, process, 0, Packet::Note(note));
                    }
                }
                Action::Prepare(decision) => {
                    let after_us = self.up_to(300_000);
                    self.schedule_in(process, after_us, Local::Load(decision.epoch));
                }
                Action::Barrier { .. } => self.launch_barrier(process),
                Action::Commit { step, epoch } => self.commit(process, step, epoch, by_decision),
                Action::Quiesce => self.quiesce(process),
                Action::Restore => self.restore(process),
                Action::Enter(decision) => self.enter(process, &decision),
                Action::Fetch => {
                    self.processes[process].state = None;
                    self.processes[process].fetch.restart();
                }
                Action::Redo { step } => self.log(|_| format!("  {process} reduces step {step} again")),
                Action::Exit(exit) => self.exit(process, exit),
            }
        }
    }

    fn exit(&mut self, process: usize, exit: Exit) {
        self.log(|_| format!("  {process} exits: {exit}"));
        match &exit {
            Exit::Contradiction { .. } => self.fail(format!("member {process} exits: {exit}")),
            Exit::Left => {
                let known = self.checker.handle_released(process);
                self.check(known);
            }
            Exit::Evicted { epoch, .. } => {
                let known =
                    self.checker.decision(*epoch).is_some_and(|decision| !decision.has(member(process)));
                if !known {
                    self.fail(format!("I9: member {process} exits, {exit}, and the journal does not say so"));
                }
            }
            Exit::CoordinatorLost { .. } | Exit::Ended(_) => {}
        }
        self.processes[process].exit = Some(exit);
        self.kill(process, true);
    }
}
