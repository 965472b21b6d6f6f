//! How joiners and leavers become epochs between losses: the next one is planned once the last one has begun for good.

use super::{Action, Coordinator};
use crate::membership::{Decision, Kind, Order};
use hocket_ids::Member;
use std::collections::BTreeSet;

impl Coordinator {
    /// A planned epoch in which all its members are has begun for good; leavers may go.
    pub(super) fn settle(&mut self) -> Vec<Action> {
        let entered = &self.entered;
        let Some((pending, _)) = self.pending.take_if(|(pending, _)| are_in(&pending.members, entered))
        else {
            let late = self
                .pending
                .as_ref()
                .is_some_and(|(_, since)| self.awake > *since + self.limits.load_patience);
            return if late { self.give_up_joiners() } else { Vec::new() };
        };
        let leavers = self.base.iter().flat_map(|base| &base.members).filter(|member| !pending.has(**member));
        let released = leavers.copied().map(|to| Action::Send { to, order: Order::Released }).collect();
        self.begin(pending);
        released
    }

    /// A planned epoch takes too long: it goes on without the joiners that are not in it.
    fn give_up_joiners(&mut self) -> Vec<Action> {
        let mut actions = self.recall();
        let why = format!("it did not begin its epoch within {:?}", self.limits.load_patience);
        if let (Some((pending, _)), Some(change)) = (&self.pending, &mut self.change) {
            for member in pending.fresh.iter().filter(|member| !self.entered.contains(member)) {
                change.evicted.insert(*member, (self.awake, why.clone()));
                actions.push(Action::Kill { member: *member, why: why.clone() });
            }
        }
        actions
    }

    /// Joiners and leavers make the next epoch, once the last one is settled.
    pub(super) fn plan(&mut self) -> Vec<Action> {
        let Some(base) = &self.base else { return Vec::new() };
        if self.pending.is_some() || !are_in(&base.members, &self.entered) {
            return Vec::new();
        }
        let mut members: Vec<_> =
            base.members.iter().copied().filter(|member| !self.leavers.contains(member)).collect();
        // The state must stay with somebody, and the job must be able to go on.
        if members.is_empty() || members.len() < self.limits.members_min {
            members.clone_from(&base.members);
        }
        // One after the other: who leaves is released when all others go on, and need not wait for joiners.
        let stay = members.len() == base.members.len();
        let room = if stay { self.limits.members_max.saturating_sub(members.len()) } else { 0 };
        let fresh: Vec<_> = self.joiners.iter().copied().take(room).collect();
        members.extend(&fresh);
        if members == base.members {
            return Vec::new();
        }
        let decision = Decision {
            epoch: self.number + 1,
            base: base.epoch,
            kind: Kind::Planned,
            members,
            fresh,
            evicted: Vec::new(),
        };
        self.write(decision)
    }
}

/// Whether all members of the newest epoch are in it. Counted first: each says once that it is.
fn are_in(members: &[Member], entered: &BTreeSet<Member>) -> bool {
    entered.len() >= members.len() && members.iter().all(|member| entered.contains(member))
}
