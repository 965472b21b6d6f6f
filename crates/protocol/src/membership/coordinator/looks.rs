//! Which reports of a loss can matter: each member makes one, and most say what is known already.
//!
//! Who has to go and what is decided depend on all members. So all are looked at when something happens, but not for a report after
//! which nobody could be evicted, nor anything be decided, that could not before.

use super::Coordinator;
use super::found::Found;
use crate::membership::{Report, Script};
use hocket_ids::Member;
use std::time::Duration;

impl Coordinator {
    /// Whether nothing can have come of the last event, and no time is up.
    pub(super) fn rests(&self) -> bool {
        let Some(change) = &self.change else { return false };
        let Some(found) = &change.found else { return false };
        let is_up = |until: Duration| found.at <= until && self.awake > until;
        let mut fences = change.evicted.values().map(|(since, _)| *since + self.limits.fence_patience);
        let is_late = self.awake > change.since + self.limits.heartbeat / 2;
        !is_late && !self.shortage.lasts() && !fences.any(is_up)
    }

    /// Notes what there is to know of all members, after they were looked at.
    pub(super) fn note_found(&mut self) {
        let concerned = self.concerned();
        let Some(change) = &mut self.change else { return };
        let mut found = Found { at: self.awake, ..Found::default() };
        for &member in concerned.iter().filter(|member| !change.evicted.contains_key(member)) {
            let report = change.reports.get(&member);
            if report.is_none() {
                found.open.insert(member);
            }
            let comes_back = self.awaited.contains(&member) && !self.gone.contains(&member);
            if !self.links.contains(&member) && !comes_back {
                found.unheard.insert(member);
            }
            found.note_script(member, report.map_or(Script::Computes, |report| report.script));
        }
        change.found = Some(found);
    }

    /// Takes a report of a member whose word matters. If it can matter now, all members will be looked at.
    pub(super) fn take(&mut self, from: Member, report: Report) {
        // What leavers of a planned epoch hold against others may not count.
        let all_count = self.pending.is_none();
        let Some(change) = &mut self.change else { return };
        let says_more = change.reports.get(&from).is_none_or(|before| {
            before.script == Script::Overdue || *before != Report { script: before.script, ..report.clone() }
        });
        // Complaints of whoever goes count, too.
        let goes = change.evicted.contains_key(&from);
        if let Some(mut found) = change.found.take().filter(|_| !goes) {
            found.open.remove(&from);
            found.note_script(from, report.script);
            let may_evict = found.one_has_ended
                || report.suspects.iter().any(|of| found.unheard.contains(of))
                || !found.overdue.is_empty() && !found.unheard.is_empty();
            let may_decide = found.open.is_empty()
                && !(all_count && found.disputed())
                && (says_more || !found.overdue.is_empty());
            change.found = (!may_evict && !may_decide).then_some(found);
        }
        change.reports.insert(from, report);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Event};
    use super::*;
    use crate::membership::{Decision, Kind, Limits, Note};
    use proptest::prelude::*;

    const WORLD: u64 = 5;

    fn founded() -> Coordinator {
        let members = (0..WORLD).map(Member).collect();
        let first =
            Decision { epoch: 1, base: 0, kind: Kind::Founded, members, fresh: vec![], evicted: vec![] };
        let limits = Limits { rejoin_patience: Duration::from_secs(2), ..Limits::default() };
        let mut made = Coordinator::new(WORLD as usize, &[first], limits, Duration::ZERO);
        for from in (0..WORLD).map(Member) {
            let host = from.0 as u32 / 2;
            let hello = Note::Hello { epoch: Some(1), host, founds: false };
            made.handle(Event::Note { from, note: hello }, Duration::ZERO);
            made.handle(Event::Note { from, note: Note::Entered { epoch: 1 } }, Duration::ZERO);
        }
        made
    }

    fn script() -> impl Strategy<Value = Script> {
        let usual = Just(Script::Computes);
        prop_oneof![4 => usual, 4 => Just(Script::Waits), 2 => Just(Script::Overdue), 1 => Just(Script::Ended)]
    }

    fn event() -> impl Strategy<Value = Event> {
        // The last two are joiners.
        let who = || (0..WORLD + 2).prop_map(Member);
        let suspects = prop::collection::vec((0..WORLD).prop_map(Member), 0..2);
        let report = (1..4u64, script(), suspects).prop_map(|(epoch, script, suspects)| {
            Note::Report(Report { epoch: Some(epoch), steps: Some(5), prepared: false, script, suspects })
        });
        let hello =
            (prop::option::of(1..3u64)).prop_map(|epoch| Note::Hello { epoch, host: 0, founds: false });
        let entered = (1..4u64).prop_map(|epoch| Note::Entered { epoch });
        let note = prop_oneof![8 => report, 1 => hello, 1 => entered, 1 => Just(Note::Leave)];
        prop_oneof![
            8 => (who(), note).prop_map(|(from, note)| Event::Note { from, note }),
            1 => who().prop_map(Event::Unlinked),
            1 => who().prop_map(Event::Gone),
            1 => Just(Event::Tick),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        /// A loss would be decided later than all was known, by another decision, or never.
        #[test]
        fn a_report_that_makes_nobody_look_at_all_members_changes_nothing(
            events in prop::collection::vec((event(), 0..3u32), 1..40)
        ) {
            let (mut usual, mut looks) = (founded(), founded());
            let mut now = Duration::ZERO;
            for (event, pause) in events {
                now += Duration::from_millis(300) * (pause / 2);
                if let Some(change) = &mut looks.change {
                    change.found = None;
                }
                let actions = usual.handle(event.clone(), now);
                prop_assert_eq!(&actions, &looks.handle(event, now));
                if actions.iter().any(|action| matches!(action, Action::Write(_))) {
                    prop_assert_eq!(usual.handle(Event::Written, now), looks.handle(Event::Written, now));
                }
            }
        }
    }
}
