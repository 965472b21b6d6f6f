//! The coordinator: the only one who makes epochs. It collects what members know, decides, writes that down, and then says so.
//!
//! A *change* begins with the first report of a loss: all that could have committed something since the last settled epoch, the
//! members of `base` and of the epoch in preparation, are recalled. When each has reported or is evicted, the greatest
//! number of steps that a report names stands. Between changes, joiners and leavers become planned epochs. What a
//! restarted coordinator has to know is in the journal; the rest its members tell again when they connect.

mod found;
mod looks;
mod loss;
mod planned;

use self::found::Found;
use super::shortage::Shortage;
use super::{Decision, Ending, Kind, Limits, Note, Order, PAUSE_MAX, Report};
use crate::planted::Bug;
use hocket_ids::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What happens to the coordinator.
#[derive(Clone, Debug)]
pub enum Event {
    /// A member says something.
    Note {
        /// Who.
        from: Member,
        /// What.
        note: Note,
    },
    /// A member's connection ended, or it was silent for too long.
    Unlinked(Member),
    /// Whoever started a member's process has seen it end: it writes no more.
    Gone(Member),
    /// The oldest record that was not acknowledged is in the journal and on the disk.
    Written,
    /// Time passes.
    Tick,
}

/// What its host has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell a member.
    Send {
        /// Whom.
        to: Member,
        /// What.
        order: Order,
    },
    /// Append this to the journal, synchronise it, then say [`Event::Written`].
    Write(Decision),
    /// End this member's process where that is possible: it is being evicted.
    Kill {
        /// Whose.
        member: Member,
        /// For people.
        why: String,
    },
    /// This member is being evicted because its script has ended: its process ends by itself.
    LetGo(Member),
    /// Too few members are left: the job waits for others to join.
    Wait {
        /// Members that could go on.
        left: usize,
        /// Who is missing.
        lost: Vec<Member>,
    },
    /// The job ends; members have been told.
    End(Ending),
}

/// A loss that is being worked on.
#[derive(Clone, Debug, Default)]
struct Change {
    since: Duration,
    reports: BTreeMap<Member, Report>,
    /// Whom, since when, and why.
    evicted: BTreeMap<Member, (Duration, String)>,
    /// What was found when all members were last looked at; none if it may not hold any more.
    found: Option<Found>,
}

/// The machine. Durations inside are its own waking time: a coordinator that was stopped does not blame members for it.
#[derive(Clone, Debug)]
pub struct Coordinator {
    limits: Limits,
    /// How many founders the first epoch waits for.
    founders: usize,
    base: Option<Decision>,
    /// A planned epoch that may have begun.
    pending: Option<(Decision, Duration)>,
    /// Being written.
    writing: Option<Decision>,
    /// Numbers of epochs that were in force, for leavers that come back for their release.
    begun: BTreeSet<u64>,
    planned: BTreeMap<u64, Vec<Member>>,
    number: u64,
    change: Option<Change>,
    entered: BTreeSet<Member>,
    links: BTreeSet<Member>,
    /// Members of a journal that have not come back since: they are given time for that, whoever misses them.
    awaited: BTreeSet<Member>,
    hosts: BTreeMap<Member, u32>,
    joiners: BTreeSet<Member>,
    leavers: BTreeSet<Member>,
    /// Founders that are there, before the first epoch.
    founding: BTreeSet<Member>,
    gone: BTreeSet<Member>,
    polled: Duration,
    awake: Duration,
    shortage: Shortage,
    /// After how many steps members last waited for each other though all were there.
    stuck_after: Option<u64>,
    ended: bool,
}

/// Epochs that are remembered for leavers.
const EPOCHS_MAX: usize = 1024;

impl Coordinator {
    /// Of a job of `founders` members, or of one that goes on after `history`, a journal's decisions.
    pub fn new(founders: usize, history: &[Decision], limits: Limits, now: Duration) -> Self {
        let mut this = Self {
            limits,
            founders,
            base: None,
            pending: None,
            writing: None,
            begun: BTreeSet::new(),
            planned: BTreeMap::new(),
            number: 0,
            change: None,
            entered: BTreeSet::new(),
            links: BTreeSet::new(),
            awaited: BTreeSet::new(),
            hosts: BTreeMap::new(),
            joiners: BTreeSet::new(),
            leavers: BTreeSet::new(),
            founding: BTreeSet::new(),
            gone: BTreeSet::new(),
            polled: now,
            awake: Duration::ZERO,
            shortage: Shortage::default(),
            stuck_after: None,
            ended: false,
        };
        for decision in history {
            this.record(decision.clone());
        }
        this.awaited = this.concerned();
        this
    }

    /// Entries of all tables: what memory depends on.
    pub fn entries(&self) -> usize {
        let reports = self.change.as_ref().map_or(0, |change| change.reports.len() + change.evicted.len());
        reports
            + self.links.len()
            + self.awaited.len()
            + self.hosts.len()
            + self.joiners.len()
            + self.leavers.len()
            + self.gone.len()
    }

    /// Takes note of an event; gives what is to be done, in order.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        self.awake += now.saturating_sub(self.polled).min(PAUSE_MAX);
        self.polled = now;
        if self.ended {
            return Vec::new();
        }
        // What these may change is known without a look at all members, of whom each says them once in every change.
        let is_apart = match &event {
            Event::Note { note: Note::Report(_) | Note::Entered { .. } | Note::Leave, .. } => true,
            Event::Note { note: Note::Gone { member }, .. } | Event::Gone(member) => {
                self.gone.contains(member)
            }
            Event::Note { note: Note::Hello { .. }, .. }
            | Event::Unlinked(_)
            | Event::Written
            | Event::Tick => false,
        };
        if let Some(change) = self.change.as_mut().filter(|_| !is_apart) {
            change.found = None;
        }
        let mut actions = match event {
            Event::Note { from, note } => self.note(from, note),
            Event::Unlinked(member) => {
                self.links.remove(&member);
                self.awaited.remove(&member);
                self.joiners.remove(&member);
                self.founding.remove(&member);
                // Nobody complains of a joiner that dies before its epoch begins.
                let is_fresh =
                    self.pending.as_ref().is_some_and(|(pending, _)| pending.fresh.contains(&member));
                if is_fresh { self.recall() } else { Vec::new() }
            }
            Event::Gone(member) => self.gone(member),
            Event::Written => self.written(),
            Event::Tick => Vec::new(),
        };
        actions.extend(self.advance());
        actions
    }

    fn note(&mut self, from: Member, note: Note) -> Vec<Action> {
        match note {
            Note::Hello { epoch, host, founds } => {
                if founds && self.base.is_none() {
                    self.founding.insert(from);
                }
                self.hello(from, epoch, host)
            }
            _ if !self.links.contains(&from) => Vec::new(),
            Note::Report(report) => self.report(from, report),
            Note::Entered { epoch } => {
                self.handle_entered(from, epoch);
                Vec::new()
            }
            Note::Gone { member } => self.gone(member),
            Note::Leave => {
                self.leavers.insert(from);
                Vec::new()
            }
        }
    }

    fn gone(&mut self, member: Member) -> Vec<Action> {
        if self.hosts.contains_key(&member) {
            self.gone.insert(member);
        }
        Vec::new()
    }

    fn hello(&mut self, from: Member, epoch: Option<u64>, host: u32) -> Vec<Action> {
        let newest = self.writing.as_ref().map_or(self.number, |decision| decision.epoch);
        if let Some(epoch) = epoch.filter(|&epoch| epoch > newest) {
            return self.end(Ending::OldJournal { member: from, epoch, newest });
        }
        self.links.insert(from);
        self.awaited.remove(&from);
        self.hosts.insert(from, host);
        let send = |order| Action::Send { to: from, order };
        let mut actions = Vec::new();
        // A planned epoch is the base only once all its members are in it.
        let behind =
            |base: &&Decision| base.has(from) && epoch < Some(base.epoch) && base.kind != Kind::Planned;
        if let Some(base) = self.base.as_ref().filter(behind) {
            actions.push(send(Order::Decide(base.clone())));
        }
        let knows = self.concerns(from);
        if let Some((pending, _)) = self.pending.as_ref().filter(|_| knows && self.change.is_none()) {
            actions.push(send(Order::Propose(pending.clone())));
        }
        if knows && self.change.is_some() {
            actions.push(send(Order::Recall { next: self.number + 1 }));
        }
        if !knows {
            match epoch {
                None => {
                    self.joiners.insert(from);
                }
                Some(epoch) => actions.push(send(self.farewell(from, epoch))),
            }
        }
        actions
    }

    /// For a member that is no member any more: a leaver whose last step stands, or one that was evicted.
    fn farewell(&self, member: Member, epoch: u64) -> Order {
        let left = self.begun.contains(&epoch)
            && self.planned.get(&epoch).is_some_and(|members| !members.contains(&member));
        if left {
            return Order::Released;
        }
        let why = "it could not be heard, and the others went on".into();
        Order::Evicted { epoch: self.number, why }
    }

    /// Whether what a member has committed can matter to the next decision.
    fn concerns(&self, member: Member) -> bool {
        [self.base.as_ref(), self.pending.as_ref().map(|(pending, _)| pending)]
            .into_iter()
            .flatten()
            .any(|decision| decision.has(member))
    }

    fn concerned(&self) -> BTreeSet<Member> {
        let pending = self.pending.iter().flat_map(|(pending, _)| &pending.members);
        self.base.iter().flat_map(|base| &base.members).chain(pending).copied().collect()
    }

    fn report(&mut self, from: Member, report: Report) -> Vec<Action> {
        let pending = self.pending.as_ref().map(|(pending, _)| pending.epoch);
        let base = self.base.as_ref().map(|base| base.epoch);
        let is_current = report.epoch.is_none() || report.epoch == base || report.epoch == pending;
        if !self.concerns(from) || !is_current {
            return Vec::new();
        }
        let actions = self.recall();
        self.take(from, report);
        actions
    }

    /// A change begins, if none has.
    fn recall(&mut self) -> Vec<Action> {
        if self.change.is_some() {
            return Vec::new();
        }
        self.change = Some(Change { since: self.awake, ..Change::default() });
        let order = Order::Recall { next: self.number + 1 };
        let linked = self.concerned().into_iter().filter(|member| self.links.contains(member));
        linked.map(|to| Action::Send { to, order: order.clone() }).collect()
    }

    fn handle_entered(&mut self, from: Member, epoch: u64) {
        let newest = self.pending.as_ref().map(|(pending, _)| pending).or(self.base.as_ref());
        if newest.is_some_and(|decision| decision.epoch == epoch) {
            self.entered.insert(from);
        }
    }

    /// Whatever can be done now.
    fn advance(&mut self) -> Vec<Action> {
        if self.ended || self.writing.is_some() {
            return Vec::new();
        }
        if self.base.is_none() {
            return self.found();
        }
        if self.change.is_some() {
            if self.rests() {
                return Vec::new();
            }
            let mut actions = self.evict();
            actions.extend(self.decide());
            self.note_found();
            return actions;
        }
        let mut actions = self.settle();
        actions.extend(self.plan());
        actions
    }

    fn found(&mut self) -> Vec<Action> {
        if self.founding.len() < self.founders {
            return Vec::new();
        }
        let members = std::mem::take(&mut self.founding).into_iter().collect();
        let decision =
            Decision { epoch: 1, base: 0, kind: Kind::Founded, members, fresh: vec![], evicted: vec![] };
        self.write(decision)
    }

    /// An epoch is in force.
    fn begin(&mut self, decision: Decision) {
        self.begun.insert(decision.epoch);
        if decision.kind == Kind::Planned {
            self.planned.insert(decision.epoch, decision.members.clone());
        }
        if self.begun.len() > EPOCHS_MAX {
            self.begun.pop_first();
            self.planned.pop_first();
        }
        let known = |member: &Member| decision.has(*member) || self.joiners.contains(member);
        self.leavers.retain(|member| decision.has(*member));
        self.hosts.retain(|member, _| known(member) || self.links.contains(member));
        self.gone.retain(|member| self.hosts.contains_key(member));
        self.base = Some(decision);
    }

    fn write(&mut self, decision: Decision) -> Vec<Action> {
        self.writing = Some(decision.clone());
        let mut actions = vec![Action::Write(decision)];
        if self.limits.rules.broken(Bug::DecideWithoutJournal) {
            actions.extend(self.written());
        }
        actions
    }

    /// The journal has what was being written: from now on it is so.
    fn written(&mut self) -> Vec<Action> {
        let Some(decision) = self.writing.take() else { return Vec::new() };
        let planned = decision.kind == Kind::Planned;
        let evicted: Vec<_> = match &self.change {
            Some(change) if !planned => {
                change.evicted.iter().map(|(&member, (_, why))| (member, why.clone())).collect()
            }
            Some(_) | None => Vec::new(),
        };
        let before = if planned { BTreeSet::new() } else { self.concerned() };
        self.record(decision.clone());
        let order = if planned { Order::Propose(decision.clone()) } else { Order::Decide(decision.clone()) };
        let mut told: BTreeSet<_> = decision.members.iter().copied().collect();
        told.extend(self.concerned());
        let mut actions = Vec::new();
        // While members stop, nobody prepares an epoch: it comes to nothing, and its joiners report like the others.
        let order = if self.change.is_some() { Order::Recall { next: self.number + 1 } } else { order };
        let linked = told.iter().filter(|member| self.links.contains(member));
        actions.extend(linked.map(|&to| Action::Send { to, order: order.clone() }));
        for (member, why) in evicted {
            actions.push(Action::Send { to: member, order: Order::Evicted { epoch: decision.epoch, why } });
        }
        // Leavers whose last step stands, and joiners of an epoch that came to nothing.
        for member in before.into_iter().filter(|&member| !decision.has(member)) {
            if decision.evicted.contains(&member) {
                continue;
            }
            if self.planned.get(&decision.base).is_some_and(|members| !members.contains(&member)) {
                actions.push(Action::Send { to: member, order: Order::Released });
            } else if self.links.contains(&member) {
                self.joiners.insert(member);
            }
        }
        actions
    }

    /// What the journal says is so, now or after a restart.
    fn record(&mut self, decision: Decision) {
        self.number = self.number.max(decision.epoch);
        for member in &decision.members {
            self.joiners.remove(member);
        }
        // What follows a planned epoch proves that it had begun; what follows its base, that it came to nothing.
        if let Some((pending, _)) = self.pending.take_if(|(pending, _)| pending.epoch == decision.base) {
            self.begin(pending);
        }
        self.entered.clear();
        if decision.kind == Kind::Planned {
            self.pending = Some((decision, self.awake));
            return;
        }
        (self.pending, self.change, self.shortage) = (None, None, Shortage::default());
        self.begin(decision);
    }

    fn lost(&self) -> Vec<Member> {
        self.change.iter().flat_map(|change| change.evicted.keys()).copied().collect()
    }

    fn end(&mut self, ending: Ending) -> Vec<Action> {
        self.ended = true;
        let told = self.links.iter().map(|&to| Action::Send { to, order: Order::End(ending.clone()) });
        let mut actions: Vec<_> = told.collect();
        actions.push(Action::End(ending));
        actions
    }
}
