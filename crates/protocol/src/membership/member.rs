//! One member's side of the membership: stops when a peer is lost, reports, obeys each decision once.
//!
//! The engine tells what happens to it ([`Event`]) and does what it is told ([`Action`]), in order. While nothing is lost, the machine
//! only counts steps. The rule that all depends on: after its report a member commits nothing of that epoch by itself.

mod loss;

use super::{Decision, Ending, Limits, Note, Order, PAUSE_MAX, Report, Script};
use crate::epoch::Votes;
use crate::planted::Bug;
use hocket_ids::Member;
use std::collections::BTreeSet;
use std::time::Duration;

/// What happens to a member.
#[derive(Clone, Debug)]
pub enum Event {
    /// A connection to the coordinator is there, the first or another.
    Linked,
    /// It ended.
    Unlinked,
    /// The coordinator says something.
    Order(Order),
    /// A peer of the epoch cannot be heard: its connection ended, it was silent for too long, or it could not be reached.
    Lost(Member),
    /// A neighbour's process has ended.
    Gone(Member),
    /// The proposed epoch is connected, compiled and loaded here.
    Loaded(u64),
    /// All sums of a step are here.
    Prepared {
        /// Which, from zero.
        step: u64,
        /// The smallest vote.
        vote: u64,
    },
    /// The barrier at a step's end is complete here.
    Done {
        /// Which step.
        step: u64,
    },
    /// Nothing runs here any more.
    Quiesced,
    /// The script has come to where it follows what is decided: it hangs nowhere else.
    Waits,
    /// The script has waited for others as long as it may.
    Overdue,
    /// The script has ended, and makes no more steps.
    Ended,
    /// The user wants this member to leave.
    LeaveAsked,
    /// Time passes.
    Tick,
}

/// What the engine has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell the coordinator.
    Send(Note),
    /// Connect, compile, verify and load this epoch beside training, then say [`Event::Loaded`].
    Prepare(Decision),
    /// Enter the barrier of a step.
    Barrier {
        /// Which.
        step: u64,
    },
    /// The step stands: give its sums to the script.
    Commit {
        /// Which.
        step: u64,
        /// The epoch whose members it is the mean of.
        epoch: u64,
    },
    /// Start nothing, let what runs end, then say [`Event::Quiesced`].
    Quiesce,
    /// Begin an epoch: drop who is not in it, mark it on every lane, and reduce the step that was aborted, if one was, again.
    Enter(Decision),
    /// This process takes no further part.
    Exit(Exit),
}

/// Why a process takes no further part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exit {
    /// It left in order.
    #[error("left the job")]
    Left,
    /// The job goes on without it.
    #[error("evicted in epoch {epoch}: {why}")]
    Evicted {
        /// Since when.
        epoch: u64,
        /// For people.
        why: String,
    },
    /// It cannot go on alone, and the coordinator is not there to decide.
    #[error("the coordinator was not heard for {waited:?}, and this member cannot go on without a decision")]
    CoordinatorLost {
        /// How long.
        waited: Duration,
    },
    /// The coordinator ended the job.
    #[error("the job ends: {0}")]
    Ended(Ending),
    /// Something that only a fault of ours, or a forged message, can do.
    #[error("the membership contradicts itself: {what}")]
    Contradiction {
        /// For people.
        what: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before its first epoch.
    Waiting,
    Training,
    Quiescing,
    /// Waits for a decision.
    Reported,
    /// Its last step is committed; waits to be released.
    Leaving,
    Ended,
}

/// One member.
#[derive(Clone, Debug)]
pub struct Participant {
    me: Member,
    host: u32,
    limits: Limits,
    phase: Phase,
    epoch: Option<Decision>,
    proposed: Option<Decision>,
    votes: Votes<Decision>,
    steps: Option<u64>,
    prepared: Option<u64>,
    script: Script,
    suspects: BTreeSet<Member>,
    wants_to_leave: bool,
    linked: bool,
    polled: Duration,
    /// How long nobody was there who could decide, in our own waking time.
    waited: Duration,
}

impl Participant {
    /// A process that wants to be `me`, on `host`. `steps`: of the state that it brings, which is how a founder begins; none for a joiner.
    pub fn new(me: Member, host: u32, steps: Option<u64>, limits: Limits, now: Duration) -> Self {
        let votes = Votes::new(0, limits.rules);
        Self {
            me,
            host,
            limits,
            phase: Phase::Waiting,
            epoch: None,
            proposed: None,
            votes,
            steps,
            prepared: None,
            script: Script::Computes,
            suspects: BTreeSet::new(),
            wants_to_leave: false,
            linked: false,
            polled: now,
            waited: Duration::ZERO,
        }
    }

    /// What it votes in this step.
    pub fn vote(&self) -> u64 {
        self.votes.vote()
    }

    /// The epoch that it trains in; none while it has stopped, or waits for one.
    pub fn in_force(&self) -> Option<u64> {
        let epoch = self.epoch.as_ref().filter(|_| self.phase == Phase::Training);
        epoch.map(|decision| decision.epoch)
    }

    /// Takes note of an event; gives what is to be done, in order.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        if self.phase == Phase::Ended {
            return Vec::new();
        }
        let actions = match event {
            Event::Linked => self.linked(now),
            Event::Unlinked => {
                (self.linked, self.polled, self.waited) = (false, now, Duration::ZERO);
                Vec::new()
            }
            Event::Order(order) => self.order(order),
            Event::Lost(peer) => self.lost(peer),
            Event::Gone(member) => self.say(Note::Gone { member }),
            Event::Loaded(epoch) => self.loaded(epoch),
            Event::Prepared { step, vote } => self.prepared(step, vote),
            Event::Done { step } => self.done(step),
            Event::Quiesced if self.phase == Phase::Quiescing => {
                self.phase = Phase::Reported;
                self.report()
            }
            Event::Quiesced => Vec::new(),
            // What it waits for while all train is no matter of the coordinator's, and it goes on from there.
            Event::Waits if self.phase == Phase::Training => Vec::new(),
            Event::Overdue if self.phase == Phase::Training => {
                self.script = Script::Overdue;
                self.quiesce()
            }
            Event::Waits | Event::Overdue => self.script_is(Script::Waits),
            Event::Ended => self.script_is(Script::Ended),
            Event::LeaveAsked => {
                self.wants_to_leave = true;
                self.say(Note::Leave)
            }
            Event::Tick => self.tick(now),
        };
        if actions.iter().any(|action| matches!(action, Action::Exit(_))) {
            self.phase = Phase::Ended;
        }
        actions
    }

    /// To the coordinator; whatever is not said because it is not there, [`Self::linked`] says.
    fn say(&self, note: Note) -> Vec<Action> {
        if self.linked { vec![Action::Send(note)] } else { Vec::new() }
    }

    fn linked(&mut self, now: Duration) -> Vec<Action> {
        (self.linked, self.polled, self.waited) = (true, now, Duration::ZERO);
        if self.steps.is_none() {
            // A joiner has nothing to lose, and the coordinator may be of a generation that knows nothing of its epochs.
            (self.phase, self.epoch, self.proposed) = (Phase::Waiting, None, None);
        }
        let epoch = self.epoch.as_ref().map(|each| each.epoch);
        let mut actions = self.say(Note::Hello {
            epoch,
            host: self.host,
            founds: epoch.is_none() && self.steps == Some(0),
        });
        if self.phase == Phase::Reported {
            actions.extend(self.report());
        } else if let Some(epoch) = epoch {
            actions.extend(self.say(Note::Entered { epoch }));
        }
        if self.wants_to_leave {
            actions.extend(self.say(Note::Leave));
        }
        actions
    }

    fn report(&self) -> Vec<Action> {
        self.say(Note::Report(Report {
            epoch: self.epoch.as_ref().map(|each| each.epoch),
            steps: self.steps,
            prepared: self.prepared.is_some(),
            script: self.script,
            suspects: self.suspects.iter().copied().collect(),
        }))
    }

    /// The script has come on.
    fn script_is(&mut self, script: Script) -> Vec<Action> {
        let before = self.script;
        if before == Script::Computes || script == Script::Ended {
            self.script = script;
        }
        if self.phase == Phase::Reported && self.script != before { self.report() } else { Vec::new() }
    }

    fn order(&mut self, order: Order) -> Vec<Action> {
        match order {
            Order::Propose(proposal) => self.proposed(proposal),
            Order::Recall { next } => self.recalled(next),
            Order::Decide(decision) => self.decided(decision),
            Order::Evicted { epoch, why } => vec![Action::Exit(Exit::Evicted { epoch, why })],
            Order::Released => self.released(),
            Order::End(ending) => vec![Action::Exit(Exit::Ended(ending))],
        }
    }

    fn proposed(&mut self, proposal: Decision) -> Vec<Action> {
        let follows = match &self.epoch {
            Some(current) => self.phase == Phase::Training && proposal.base == current.epoch,
            None => proposal.has(self.me),
        };
        if !follows || self.proposed.as_ref() == Some(&proposal) {
            return Vec::new();
        }
        self.proposed = Some(proposal.clone());
        vec![Action::Prepare(proposal)]
    }

    fn loaded(&mut self, epoch: u64) -> Vec<Action> {
        if let Some(proposal) = self.proposed.as_ref().filter(|each| each.epoch == epoch)
            && self.epoch.is_some()
        {
            self.votes.learn(epoch, proposal.clone());
        }
        Vec::new()
    }

    fn prepared(&mut self, step: u64, vote: u64) -> Vec<Action> {
        if self.phase != Phase::Training || self.steps != Some(step) {
            return Vec::new();
        }
        self.prepared = Some(vote);
        let mut actions = vec![Action::Barrier { step }];
        if self.limits.rules.broken(Bug::CommitWithoutBarrier) {
            actions.extend(self.done(step));
        }
        actions
    }

    fn done(&mut self, step: u64) -> Vec<Action> {
        let late = self.limits.rules.broken(Bug::CommitAfterReport) && self.phase == Phase::Reported;
        if self.phase != Phase::Training && !late || self.steps != Some(step) {
            return Vec::new();
        }
        let Some(vote) = self.prepared.take() else { return Vec::new() };
        let mut actions = self.commit(step);
        match self.votes.decide(vote) {
            Ok(None) => {}
            Ok(Some(next)) => actions.extend(self.enter(next)),
            Err(error) => actions.push(contradiction(error.to_string())),
        }
        actions
    }

    fn commit(&mut self, step: u64) -> Vec<Action> {
        self.steps = Some(step + 1);
        match &self.epoch {
            Some(Decision { epoch, .. }) => vec![Action::Commit { step, epoch: *epoch }],
            None => vec![contradiction(format!("step {step} is committed in no epoch"))],
        }
    }

    /// Begins an epoch, or leaves with it.
    fn enter(&mut self, decision: Decision) -> Vec<Action> {
        let epoch = decision.epoch;
        let is_in = decision.has(self.me);
        self.votes.supersede(epoch);
        self.suspects.clear();
        (self.prepared, self.proposed) = (None, None);
        if self.script != Script::Ended {
            self.script = Script::Computes;
        }
        self.phase = if is_in { Phase::Training } else { Phase::Leaving };
        self.epoch = Some(decision.clone());
        if !is_in && self.limits.rules.broken(Bug::LeaveUnreleased) {
            return vec![Action::Exit(Exit::Left)];
        }
        let mut actions = vec![Action::Enter(decision)];
        actions.extend(self.say(Note::Entered { epoch }));
        if is_in && self.wants_to_leave {
            actions.extend(self.say(Note::Leave));
        }
        actions
    }

    /// The epoch without this member has begun: so its last step, which it may only have prepared, stands.
    fn released(&mut self) -> Vec<Action> {
        let last = self.steps.filter(|_| self.prepared.take().is_some());
        let mut actions = last.map_or(Vec::new(), |step| self.commit(step));
        actions.push(Action::Exit(Exit::Left));
        actions
    }

    fn tick(&mut self, now: Duration) -> Vec<Action> {
        self.waited += now.saturating_sub(self.polled).min(PAUSE_MAX);
        self.polled = now;
        let stuck = !matches!(self.phase, Phase::Training | Phase::Ended);
        if self.linked || !stuck {
            self.waited = Duration::ZERO;
        } else if self.waited > self.limits.coordinator_patience {
            return vec![Action::Exit(Exit::CoordinatorLost { waited: self.waited })];
        }
        Vec::new()
    }
}

fn contradiction(what: String) -> Action {
    Action::Exit(Exit::Contradiction { what })
}
