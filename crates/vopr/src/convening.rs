//! How the coordinator's host calls members to meet, and what it passes on to its machine: the rules of the launcher's coordination
//! (`python/hocket/members/coordination.py`, `convening.py`).

use crate::coordinator_host::SYNC_US;
use crate::event::{Event, OfCoordinator, Packet};
use crate::gathering::{Gathering, Head, Waiting};
use crate::world::{World, member};
use hocket_ids::Member;
use hocket_protocol::membership::coordinator::{Coordinator, Event as Told};
use hocket_protocol::membership::shortage::{Outcome, Shortage};
use hocket_protocol::membership::{Decision, Note};
use hocket_protocol::planted::Bug;

impl World {
    fn is_linked(&self, member: Member) -> bool {
        self.host.links.contains_key(&(member.0 as usize))
    }

    /// Members that go on and cannot be heard.
    fn missing(&self) -> Vec<Member> {
        self.host.roster.iter().copied().filter(|&each| !self.is_linked(each)).collect()
    }

    /// Newcomers that have the state, or all where the job cannot go on without them, are made known to the machine.
    pub(crate) fn let_in(&mut self) {
        let host = &mut self.host;
        if host.gathering.under_way || host.shortage.lasts() {
            return;
        }
        for (from, note) in host.waiting.let_in(host.waiting.short) {
            self.tell(Told::Note { from, note });
        }
    }

    /// The loss of that member is no matter of the machine: a meeting with it is under way.
    pub(crate) fn meets(&self, member: Member) -> bool {
        let gathering = &self.host.gathering;
        gathering.number > 1 && gathering.under_way && gathering.members.contains(&member)
    }

    /// Members that wait between two steps are called to meet, once all do.
    pub(crate) fn at_the_edge(&mut self) {
        if self.host.machine.is_none() || self.host.ended.is_some() {
            return;
        }
        let any = self.swarm.limits.rules.broken(Bug::MeetBeforeEdge);
        let host = &self.host;
        let Some(members) = host.gathering.due(|each| self.is_linked(each), &host.silent, any) else {
            return;
        };
        if host.back_until.is_some() && members.iter().any(|&each| !self.is_linked(each)) {
            return;
        }
        self.host.roster = members;
        self.without_missing();
    }

    /// Members are called to meet, without those that cannot be heard.
    pub(crate) fn without_missing(&mut self) {
        self.host.back_until = None;
        let lost = self.missing();
        for &each in &lost {
            self.log(|_| format!("member {each} is left out of the meeting"));
            self.host.shut_out.insert(each);
            if self.swarm.leash {
                let after_us = self.up_to(100_000);
                self.schedule(after_us, Event::Leash(each.0 as usize));
            }
        }
        let known = self.checker.handle_left_out(&lost);
        self.check(known);
        let now = self.coordinator_now();
        let host = &mut self.host;
        host.roster.retain(|each| !lost.contains(each));
        let waiting: Vec<_> =
            host.waiting.notes.keys().copied().filter(|each| !host.silent.contains(each)).collect();
        let waiting = waiting.into_iter();
        let (left, holders) = (&host.roster, &host.gathering.holders);
        match host.shortage.follow_between_steps(left, holders, waiting, &lost, &host.limits, now) {
            Outcome::Joined(joiners) => {
                self.host.roster.extend(joiners);
                self.convene();
            }
            Outcome::Waits { .. } => {}
            Outcome::Ends(ending) => {
                self.log(|_| format!("the job ends: {ending}"));
                self.host.ended = Some(ending);
            }
        }
    }

    /// Those on the roster meet: the next generation, with a machine of its own.
    fn convene(&mut self) {
        let now = self.coordinator_now();
        let host = &mut self.host;
        let gathering = &mut host.gathering;
        let members = host.roster.clone();
        gathering.begin(&members);
        for &each in &members {
            host.waiting.drop(each);
        }
        host.machine = Some(Coordinator::new(members.len(), &[], host.limits.clone(), now));
        host.unsynced.clear();
        host.life += 1;
        let (number, holders) = (gathering.number, gathering.holders.clone());
        self.log(|_| format!("generation {number} meets: {members:?}"));
        self.checker.handle_convened(number, &members);
        let head = Head { generation: number, members: members.clone(), holders: holders.clone() };
        self.write_head(head);
        self.meet(number, &members, &holders);
    }

    /// The journal is replaced by one of the next generation, without records.
    fn write_head(&mut self, head: Head) {
        let rules = self.swarm.limits.rules;
        let life = self.host.life;
        self.host.new_head = Some(head);
        self.crash_if_doomed();
        if rules.broken(Bug::AnnounceBeforeHead) {
            let after_us = self.up_to(SYNC_US);
            self.schedule(after_us, Event::Coordinator(OfCoordinator::Head { life }));
        } else {
            self.head_written();
        }
    }

    pub(crate) fn head_written(&mut self) {
        let Some(head) = self.host.new_head.take() else { return };
        self.host.head = head;
        if !self.swarm.limits.rules.broken(Bug::KeepOldRecords) {
            self.host.durable.clear();
        }
    }

    /// A decision is in the journal.
    pub(crate) fn follow_decision(&mut self, decision: &Decision) {
        let host = &mut self.host;
        host.roster.clone_from(&decision.members);
        host.shut_out.extend(&decision.evicted);
        host.gathering.decide(decision);
        host.waiting.short = false;
        if std::mem::take(&mut host.gathering.under_way) {
            host.gathering.holders.clone_from(&decision.members);
            host.waiting.heard.clear();
        }
    }

    /// A note of a member, or of a process that waits to become one.
    pub(crate) fn hear_note(&mut self, process: usize, generation: u64, note: Note) {
        let from = member(process);
        let gathering = &self.host.gathering;
        let (number, is_member) = (gathering.number, gathering.members.contains(&from));
        if generation > number {
            return self.fail(format!("member {process} has met others since the journal was written"));
        }
        if self.host.shut_out.contains(&from) || !is_member && generation > 0 {
            return self.say(process, Packet::Refused);
        }
        if is_member && generation < number {
            return; // to the machine of a generation before
        }
        if self.meets(from) && self.host.back_until.is_some() {
            // The store of their meeting has died with the coordinator.
            if self.missing().is_empty() {
                self.without_missing();
            }
            return;
        }
        let host = &mut self.host;
        let meets = host.gathering.under_way || host.shortage.lasts();
        if !is_member && (!host.waiting.note(from, &note) || meets) {
            return;
        }
        self.tell(Told::Note { from, note });
    }

    /// A process's connection to the coordinator has ended, or it cannot be heard.
    pub(crate) fn unlinked(&mut self, process: usize) {
        let lost = member(process);
        self.host.waiting.drop(lost);
        self.host.gathering.at_edge.remove(&lost);
        if !self.meets(lost) {
            self.tell(Told::Unlinked(lost));
            // The machine does not wait for newcomers of an epoch that has begun.
            self.at_the_edge();
        } else if self.host.back_until.is_none() && !self.swarm.limits.rules.broken(Bug::MeetTheLost) {
            self.without_missing();
        }
    }

    /// Members that have not come back to a coordinator that has started again count as lost.
    pub(crate) fn expire(&mut self) {
        let now = self.coordinator_now();
        if self.host.back_until.take_if(|until| now > *until).is_some() {
            for lost in self.missing() {
                self.unlinked(lost.0 as usize);
            }
        }
        if self.host.shortage.lasts() {
            self.without_missing();
        }
        self.at_the_edge();
        self.let_in();
    }

    /// The coordinator has started again from a journal.
    pub(crate) fn restored(&mut self, decisions: &[Decision]) {
        let now = self.coordinator_now();
        let host = &mut self.host;
        host.gathering = Gathering::of(&host.head, decisions.is_empty());
        host.roster.clone_from(&host.head.members);
        host.waiting = Waiting::default();
        host.shortage = Shortage::default();
        host.shut_out.clear();
        host.silent.clear();
        let again = host.life > 0 && (host.head.generation > 1 || !decisions.is_empty());
        host.back_until = again.then(|| now + host.limits.heartbeat);
        for decision in decisions {
            self.follow_decision(decision);
        }
    }
}
