//! How a member comes through a loss: it stops, reports, and obeys the decision.

use super::{Action, Exit, Participant, Phase, contradiction};
use crate::membership::{Decision, Kind, Script};
use crate::planted::Bug;
use hocket_ids::Member;

impl Participant {
    pub(super) fn lost(&mut self, peer: Member) -> Vec<Action> {
        let ours = self.epoch.as_ref().is_some_and(|each| each.has(peer));
        if !ours || !self.suspects.insert(peer) {
            return Vec::new();
        }
        match self.phase {
            Phase::Training => self.quiesce(),
            // The coordinator has to know whom else we cannot hear.
            Phase::Reported => self.report(),
            Phase::Quiescing | Phase::Waiting | Phase::Leaving | Phase::Ended => Vec::new(),
        }
    }

    pub(super) fn quiesce(&mut self) -> Vec<Action> {
        self.phase = Phase::Quiescing;
        let mut actions = vec![Action::Quiesce];
        if self.limits.rules.broken(Bug::ReportBeforeQuiesced) {
            self.phase = Phase::Reported;
            actions.extend(self.report());
        }
        actions
    }

    pub(super) fn recalled(&mut self, next: u64) -> Vec<Action> {
        if self.epoch.as_ref().is_some_and(|each| each.epoch >= next) {
            return Vec::new();
        }
        match self.phase {
            Phase::Training => self.quiesce(),
            // Nothing runs in these, and the script does nothing else.
            Phase::Waiting | Phase::Leaving => {
                self.script_is(Script::Waits);
                self.phase = Phase::Reported;
                self.report()
            }
            Phase::Reported => self.report(),
            Phase::Quiescing | Phase::Ended => Vec::new(),
        }
    }

    pub(super) fn decided(&mut self, decision: Decision) -> Vec<Action> {
        let rules = self.limits.rules;
        let current = self.epoch.as_ref().map_or(0, |each| each.epoch);
        if decision.epoch < current || decision.epoch == current && !rules.broken(Bug::ObeyTwice) {
            return Vec::new();
        }
        if !decision.has(self.me) {
            let why = "the coordinator decided without this member".into();
            return vec![Action::Exit(Exit::Evicted { epoch: decision.epoch, why })];
        }
        let steps = match decision.kind {
            Kind::Loss { steps } => steps,
            Kind::Founded => 0,
            Kind::Planned => return vec![contradiction("a planned epoch was decided, not proposed".into())],
        };
        // A joiner has nothing to report, and may not have heard that it should.
        if self.steps.is_none() && decision.fresh.contains(&self.me) {
            return self.enter(decision);
        }
        if self.epoch.is_some() && self.phase != Phase::Reported && !rules.broken(Bug::ObeyTwice) {
            return vec![contradiction(format!(
                "epoch {} was decided before this member reported",
                decision.epoch
            ))];
        }
        let own = self.steps;
        let stands = own.is_some_and(|own| own + 1 == steps) && self.prepared.is_some();
        if stands && !rules.broken(Bug::RedoWhatStands) {
            let mut actions = self.commit(steps - 1);
            actions.extend(self.enter(decision));
            return actions;
        }
        if own != Some(steps) && !stands {
            let what = format!("{steps} steps stand, this member has {own:?}");
            return vec![contradiction(what)];
        }
        self.enter(decision)
    }
}
