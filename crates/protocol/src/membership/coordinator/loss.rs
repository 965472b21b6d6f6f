//! How the coordinator ends a loss: who is evicted, and the decision once all that it depends on is known.

use super::{Action, Coordinator};
use crate::membership::eviction::evicted;
use crate::membership::shortage::Outcome;
use crate::membership::{Decision, Ending, Kind, Report, Script};
use crate::planted::Bug;
use hocket_ids::Member;
use std::collections::{BTreeMap, BTreeSet};

impl Coordinator {
    /// Who does not report, or cannot be heard by others, will not be in the next epoch.
    pub(super) fn evict(&mut self) -> Vec<Action> {
        let awake = self.awake;
        let concerned = self.concerned();
        let is_joiner = |member: Member| !self.base.as_ref().is_some_and(|base| base.has(member));
        let (complaints, absent) = (self.complaints(), self.absent());
        let Some(change) = &mut self.change else { return Vec::new() };
        let mut new: Vec<(Member, String)> = Vec::new();
        let age = awake.saturating_sub(change.since);
        let mut against: BTreeMap<Member, usize> = BTreeMap::new();
        for (_, of) in &complaints {
            *against.entry(*of).or_default() += 1;
        }
        for &member in concerned.iter().filter(|member| !change.evicted.contains_key(member)) {
            let count = against.get(&member).copied().unwrap_or_default();
            let comes_back = self.awaited.contains(&member) && !self.gone.contains(&member);
            let linked = self.links.contains(&member) || comes_back;
            let report = change.reports.get(&member);
            if count > 0 && report.is_some_and(|report| report.script == Script::Ended) {
                new.push((member, "its script has ended, and the others go on".to_owned()));
            } else if !linked && (count > 0 || is_joiner(member)) {
                new.push((member, format!("the coordinator and {} cannot hear it", counted(count))));
            } else if report.is_none() && age > self.limits.heartbeat {
                new.push((member, format!("it did not report within {:?}", self.limits.heartbeat)));
            }
        }
        // One round for all complaints that cross, so that one cut does not dissolve the job.
        if new.is_empty() && age > self.limits.heartbeat / 2 {
            let stays = |member: &Member| concerned.contains(member) && !change.evicted.contains_key(member);
            let open = complaints.into_iter().filter(|(by, of)| stays(by) && stays(of)).collect();
            let round = evicted(&open);
            new.extend(round.into_iter().map(|(member, by)| {
                let late = absent.iter().any(|(_, of)| *of == member);
                let why = if late { "waited for it in vain" } else { "cannot hear it" };
                (member, format!("{} {why}", counted(by)))
            }));
        }
        for (member, why) in &new {
            change.evicted.insert(*member, (awake, why.clone()));
        }
        let action = |(member, why)| {
            if self.has_ended(member) { Action::LetGo(member) } else { Action::Kill { member, why } }
        };
        new.into_iter().map(action).collect()
    }

    /// Whether a member's script has ended: its process ends by itself, and has stopped whatever wrote into others' memory.
    fn has_ended(&self, member: Member) -> bool {
        let report = self.change.as_ref().and_then(|change| change.reports.get(&member));
        report.is_some_and(|report| report.script == Script::Ended)
    }

    /// Who waited for whom in vain. All have been told to stop: a script that is well comes soon to where it follows what is decided.
    /// One that hangs does not, though its machine may report.
    fn absent(&self) -> BTreeSet<(Member, Member)> {
        let Some(change) = &self.change else { return BTreeSet::new() };
        let script =
            |member: &Member| change.reports.get(member).map_or(Script::Computes, |each| each.script);
        let blames_all = self.limits.rules.broken(Bug::BlameWhoWaits);
        let concerned = self.concerned();
        let comes_not = |of: &Member| match script(of) {
            Script::Computes => true,
            Script::Waits => blames_all,
            Script::Overdue | Script::Ended => false,
        };
        let absent: Vec<_> = concerned.iter().copied().filter(comes_not).collect();
        let overdue = concerned.iter().filter(|by| script(by) == Script::Overdue);
        overdue.flat_map(|&by| absent.iter().map(move |&of| (by, of))).collect()
    }

    /// Who cannot hear whom, as far as it is held against anybody.
    ///
    /// Whoever has come to the end of the last step before a planned epoch may close connections to those that leave with it: members of
    /// that epoch, and other leavers. A leaver that is still in the step notices that as a loss. So its word counts against
    /// another only if that one says itself that it has not come so far. If it says nothing, it is evicted for that.
    fn complaints(&self) -> BTreeSet<(Member, Member)> {
        let Some(change) = &self.change else { return BTreeSet::new() };
        let base = self.base.as_ref().map(|base| base.epoch);
        let in_base = |member: &Member| change.reports.get(member).is_some_and(|each| each.epoch == base);
        let leaves = |by: &Member| self.pending.as_ref().is_some_and(|(pending, _)| !pending.has(*by));
        let heeded = |(by, of): &(Member, Member)| {
            !leaves(by) || in_base(of) || self.limits.rules.broken(Bug::HeedLeavers)
        };
        let suspects =
            change.reports.iter().flat_map(|(&by, report)| report.suspects.iter().map(move |&of| (by, of)));
        suspects.chain(self.absent()).filter(heeded).collect()
    }

    /// Of whom others complain, and who has not reported since the coordinator asked for it. If it cannot be reached either, it is
    /// lost.
    pub fn doubted(&self) -> Vec<Member> {
        let Some(change) = &self.change else { return Vec::new() };
        let of: BTreeSet<_> = self.complaints().into_iter().map(|(_, of)| of).collect();
        let is_open =
            |member: &Member| !change.reports.contains_key(member) && !change.evicted.contains_key(member);
        of.into_iter().filter(is_open).collect()
    }

    /// The decision, once everything is known that it depends on.
    pub(super) fn decide(&mut self) -> Vec<Action> {
        let (Some(base), Some(change)) = (&self.base, &self.change) else { return Vec::new() };
        let rules = self.limits.rules;
        let concerned = self.concerned();
        let stays: BTreeSet<_> =
            concerned.iter().copied().filter(|member| !change.evicted.contains_key(member)).collect();
        let reported = |member: &Member| change.reports.contains_key(member);
        let enough = if rules.broken(Bug::DecideWithoutReport) {
            stays.iter().filter(|member| reported(member)).count() * 2 > stays.len()
        } else {
            stays.iter().all(reported)
        };
        let reports: BTreeMap<_, _> =
            change.reports.iter().filter(|(member, _)| stays.contains(member)).collect();
        let disputed = self.complaints().iter().any(|(by, of)| stays.contains(by) && stays.contains(of));
        if !enough || disputed || !self.fenced(&stays) {
            return Vec::new();
        }
        let has_begun = |pending: &Decision| {
            let knows = |report: &&Report| report.epoch == Some(pending.epoch) && report.steps.is_some();
            reports.values().copied().any(|report| knows(&report)) && !rules.broken(Bug::ForgetPlannedEpoch)
        };
        let pending = self.pending.as_ref().map(|(pending, _)| pending);
        let basis = pending.filter(|pending| has_begun(pending)).unwrap_or(base);
        let states = reports.values().filter_map(|report| report.steps);
        let steps = if rules.broken(Bug::DecideLeastStep) { states.min() } else { states.max() };
        let mut members: Vec<_> =
            basis.members.iter().copied().filter(|member| stays.contains(member)).collect();
        let holds = |member: &Member| reports.get(member).is_some_and(|report| report.steps.is_some());
        let Some(steps) = steps.filter(|_| members.iter().any(holds)) else {
            let lost = self.lost();
            return self.end(Ending::StateLost { lost });
        };
        // A leaver's last step may be long ago.
        let goes_on: BTreeSet<_> = members.iter().copied().collect();
        let behind = reports.iter().filter(|(member, _)| goes_on.contains(**member)).find(|(_, report)| {
            report.steps.is_some_and(|own| own != steps && !(own + 1 == steps && report.prepared))
        });
        if let Some((&&member, &report)) = behind.filter(|_| !rules.broken(Bug::DecideLeastStep)) {
            let report = report.clone();
            return self.end(Ending::Contradiction { steps, member, report });
        }
        // A member may come just when another has lost patience with it. If they wait once more and do not get on, it is of no use.
        let in_vain =
            change.evicted.is_empty() && reports.values().any(|report| report.script == Script::Overdue);
        let stuck = in_vain && self.stuck_after == Some(steps);
        let after = in_vain.then_some(steps);
        // Those of a planned epoch that comes to nothing have reported, too.
        let planned = pending.iter().flat_map(|pending| &pending.fresh);
        let planned = planned.filter(|member| stays.contains(member) && !goes_on.contains(member));
        let others = self.joiners.iter().filter(|member| !concerned.contains(member));
        let (left, lost, waiting) = (members.len(), self.lost(), planned.chain(others).copied());
        let joiners = match self.shortage.follow(left, waiting, &lost, &self.limits, self.awake) {
            Outcome::Joined(joiners) => joiners,
            Outcome::Waits { begins: true } => return vec![Action::Wait { left, lost }],
            Outcome::Waits { begins: false } => return Vec::new(),
            Outcome::Ends(ending) => return self.end(ending),
        };
        let fresh = members.iter().copied().filter(|member| !holds(member)).chain(joiners.clone()).collect();
        members.extend(joiners);
        let evicted = change.evicted.keys().copied().collect();
        let (epoch, base) = (self.number + 1, basis.epoch);
        self.stuck_after = after;
        if stuck {
            return self.end(Ending::Stuck { members: members.len(), steps });
        }
        self.write(Decision { epoch, base, kind: Kind::Loss { steps }, members, fresh, evicted })
    }

    /// Whether evicted processes that share memory with a survivor have ended, or were waited for.
    fn fenced(&self, stays: &BTreeSet<Member>) -> bool {
        let Some(change) = &self.change else { return true };
        let hosts: BTreeSet<_> = stays.iter().filter_map(|member| self.hosts.get(member)).collect();
        change.evicted.iter().all(|(member, (since, _))| {
            let neighbour = self.hosts.get(member).is_some_and(|host| hosts.contains(host));
            !neighbour
                || self.has_ended(*member)
                || self.gone.contains(member)
                || self.awake > *since + self.limits.fence_patience
        })
    }
}

fn counted(members: usize) -> String {
    format!("{members} member{}", if members == 1 { "" } else { "s" })
}
