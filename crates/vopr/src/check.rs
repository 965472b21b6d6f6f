//! The invariants, checked after every event by what the world has seen, not by what the machines say.

use crate::event::Epoch;
use crate::memory::Sum;
use crate::process::State;
use crate::swarm::Swarm;
use hocket_ids::Member;
use hocket_protocol::membership::Decision;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

/// What members committed as one step in one epoch.
#[derive(Clone, Debug)]
pub struct Commit {
    members: Vec<Member>,
    sum: u64,
    state: u64,
    data_epoch: u64,
    positions: Vec<u64>,
    by: Vec<usize>,
}

#[derive(Debug, Default)]
pub struct Checker {
    /// Nothing fails in this world.
    peaceful: bool,
    /// Nothing fails in it but scripts, which hang.
    only_hangs: bool,
    /// Those whose scripts have, and how often any has.
    hung: BTreeSet<Member>,
    hangs: u32,
    /// Members of each generation.
    generations: BTreeMap<u64, Vec<Member>>,
    /// Evicted by a decision, or left out of a meeting.
    shut_out: BTreeSet<Member>,
    decisions: BTreeMap<Epoch, Decision>,
    entered: BTreeSet<(usize, Epoch)>,
    reported: BTreeMap<usize, Epoch>,
    prepared: BTreeSet<(Epoch, u64, usize)>,
    /// By step; in each, by epoch.
    commits: BTreeMap<u64, BTreeMap<Epoch, Commit>>,
    steps: BTreeMap<usize, u64>,
    released: BTreeSet<usize>,
}

/// One member's commit, as the world saw it.
pub struct Seen<'a> {
    pub process: usize,
    pub epoch: Epoch,
    pub step: u64,
    /// A decision made it commit, not the barrier.
    pub by_decision: bool,
    /// All blocks of all buckets.
    pub sums: &'a [Sum],
    pub positions: Vec<u64>,
    pub data_epoch: u64,
    pub state: &'a State,
}

type Check = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

impl Checker {
    pub fn new(swarm: &Swarm) -> Self {
        Self { peaceful: swarm.is_peaceful(), only_hangs: swarm.only_hangs(), ..Self::default() }
    }

    pub fn handle_hang(&mut self, process: usize) {
        self.hung.insert(Member(process as u64));
        self.hangs += 1;
    }

    /// In a world where nothing else happens.
    pub fn hung_at_most_once(&self) -> bool {
        self.only_hangs && self.hangs <= 1
    }

    /// Members of an epoch whose wire its steps go over: those of its generation.
    pub fn trained(&self, epoch: Epoch) -> Vec<Member> {
        let met = self.generations.get(&epoch.0).map_or(&[][..], |members| members);
        let of = self.decisions.get(&epoch).map_or(&[][..], |decision| &decision.members);
        of.iter().copied().filter(|each| met.contains(each)).collect()
    }

    pub fn last(&self) -> Option<(Epoch, &Decision)> {
        self.decisions.last_key_value().map(|(&epoch, decision)| (epoch, decision))
    }

    /// Whether an epoch is without a member; a newcomer may have heard of that in any generation.
    pub fn shuts_out(&self, epoch: Epoch, member: Member) -> bool {
        let known = |&(&(generation, number), _): &(&Epoch, &Decision)| {
            number == epoch.1 && (generation == epoch.0 || epoch.0 == 0)
        };
        self.decisions.iter().filter(known).any(|(_, decision)| !decision.has(member))
    }

    pub fn handle_convened(&mut self, generation: u64, members: &[Member]) {
        self.generations.insert(generation, members.to_vec());
    }

    /// Members that could not be heard when the others met.
    pub fn handle_left_out(&mut self, lost: &[Member]) -> Check {
        self.shut_out.extend(lost);
        ensure(!self.peaceful || lost.is_empty(), || {
            format!("I11: nothing has failed, and the others meet without {lost:?}")
        })
    }

    /// A process hears that the others have gone on without it.
    pub fn handle_refused(&self, process: usize) -> Check {
        let member = Member(process as u64);
        let newest = self.generations.last_key_value().is_some_and(|(_, members)| members.contains(&member));
        ensure(!newest || self.shut_out.contains(&member), || {
            format!("I9: member {process} is refused, and the others have not gone on without it")
        })
    }

    /// A neighbour ends a process that it could not wait for.
    pub fn handle_killed(&self, process: usize) -> Check {
        ensure(self.shut_out.contains(&Member(process as u64)), || {
            format!("I9: member {process} is killed, and no decision shuts it out")
        })
    }

    pub fn handle_durable(&mut self, generation: u64, decision: &Decision) -> Check {
        ensure(!self.peaceful || decision.evicted.is_empty(), || {
            format!("I11: nothing has failed, and members are evicted: {decision:?}")
        })?;
        let innocent = decision.evicted.iter().find(|member| !self.hung.contains(member));
        ensure(!self.only_hangs || innocent.is_none(), || {
            format!(
                "I12: nothing has failed but the scripts of {:?}, and {innocent:?} is evicted: {decision:?}",
                self.hung
            )
        })?;
        let epoch = (generation, decision.epoch);
        self.shut_out.extend(&decision.evicted);
        let before = self.decisions.insert(epoch, decision.clone());
        ensure(before.as_ref().is_none_or(|before| before == decision), || {
            format!("I1: epoch {epoch:?} is decided twice: {before:?} and {decision:?}")
        })
    }

    pub fn handle_entered(&mut self, process: usize, epoch: Epoch, decision: &Decision) -> Check {
        ensure(self.decisions.get(&epoch) == Some(decision), || {
            format!("I9: member {process} begins epoch {epoch:?}, which is not in the journal: {decision:?}")
        })?;
        ensure(self.entered.insert((process, epoch)), || {
            format!("I1: member {process} begins epoch {epoch:?} twice")
        })
    }

    pub fn handle_report(&mut self, process: usize, epoch: Option<Epoch>) {
        if let Some(epoch) = epoch {
            self.reported.insert(process, epoch);
        }
    }

    pub fn handle_prepared(&mut self, process: usize, epoch: Epoch, step: u64) {
        self.prepared.insert((epoch, step, process));
    }

    pub fn handle_commit(&mut self, seen: &Seen) -> Check {
        let Seen { process, epoch, step, .. } = *seen;
        let members = self.trained(epoch);
        for member in &members {
            ensure(self.prepared.contains(&(epoch, step, member.0 as usize)), || {
                format!(
                    "I2: member {process} commits step {step} of epoch {epoch:?}, which member {member} has not prepared"
                )
            })?;
        }
        let expected = Sum::each_once(&members, step);
        ensure(seen.sums.iter().all(|sum| sum.same(&expected)), || {
            format!(
                "I3: member {process} commits step {step} of epoch {epoch:?} with {:?}, not {expected:?}",
                seen.sums
            )
        })?;
        ensure(seen.by_decision || self.reported.get(&process) != Some(&epoch), || {
            format!("I4: member {process} commits step {step} of epoch {epoch:?} after its report")
        })?;
        let before = self.steps.insert(process, step);
        ensure(before.is_none_or(|before| before + 1 == step), || {
            format!("I6: member {process} commits step {step} after {before:?}")
        })?;
        let commit = Commit {
            members,
            sum: expected.digest(),
            state: seen.state.digest(),
            data_epoch: seen.data_epoch,
            positions: seen.positions.clone(),
            by: vec![],
        };
        let of_step = self.commits.entry(step).or_default();
        let known = of_step.entry(epoch).or_insert_with(|| commit.clone());
        let same = (known.sum, known.state, known.data_epoch, &known.positions)
            == (commit.sum, commit.state, commit.data_epoch, &commit.positions);
        ensure(same, || {
            format!(
                "I7: members differ after step {step} of epoch {epoch:?}: {known:?}, {commit:?} of {process}"
            )
        })?;
        known.by.push(process);
        self.one_chain(step)
    }

    /// A step that was committed in two epochs was committed in the earlier one by nobody who goes on.
    fn one_chain(&self, step: u64) -> Check {
        let Some(of_step) = self.commits.get(&step) else { return Ok(()) };
        for (low, early) in of_step {
            for (high, late) in of_step.range((Excluded(*low), Unbounded)) {
                let both = early
                    .by
                    .iter()
                    .find(|&&by| late.members.contains(&Member(by as u64)) || self.released.contains(&by));
                ensure(both.is_none(), || {
                    format!(
                        "I6: step {step} is committed in epochs {low:?} and {high:?}, and member {both:?} goes on from the first"
                    )
                })?;
            }
        }
        Ok(())
    }

    pub fn handle_released(&mut self, process: usize) -> Check {
        self.released.insert(process);
        let steps: Vec<_> = self.commits.keys().copied().collect();
        steps.into_iter().try_for_each(|step| self.one_chain(step))
    }

    /// All that meet, each with its state: that of the last step that those among them have committed that train.
    pub fn handle_met(&mut self, states: &[(usize, &State)]) -> Check {
        let last = states.iter().filter_map(|(process, _)| self.steps.get(process)).max().copied();
        let of_step = last.and_then(|last| self.commits.get(&last));
        for (process, state) in states {
            let same = state.digest() == states[0].1.digest();
            let stands =
                of_step.is_none_or(|of_step| of_step.values().any(|commit| commit.state == state.digest()));
            ensure(same && stands && last.map_or(0, |last| last + 1) == state.steps, || {
                format!(
                    "I7: {process} meets others with a state after {} steps, after step {last:?}",
                    state.steps
                )
            })?;
        }
        let newcomers = states.iter().filter_map(|&(process, _)| Some((process, last?)));
        self.steps.extend(newcomers);
        Ok(())
    }

    /// Steps that the job has made, as far as members went that go on.
    pub fn samples_once(&self, steps: u64, samples: u64) -> Check {
        let mut counted = BTreeSet::new();
        let mut data_epoch = 0;
        for (step, of_step) in self.commits.range(..steps) {
            let Some((_, commit)) = of_step.last_key_value() else { continue };
            if commit.data_epoch != data_epoch {
                ensure(counted.len() as u64 == samples, || {
                    format!(
                        "I8: epoch {data_epoch} of the data ends with {} of {samples} samples",
                        counted.len()
                    )
                })?;
                data_epoch = commit.data_epoch;
                counted.clear();
            }
            for &position in &commit.positions {
                ensure(counted.insert(position), || {
                    format!(
                        "I8: position {position} is committed twice in epoch {data_epoch} of the data, at step {step}"
                    )
                })?;
            }
        }
        Ok(())
    }
}
