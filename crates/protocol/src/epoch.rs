//! When a planned epoch begins: by votes that travel with the gradients, the same on every member.
//!
//! An epoch is ready at different members at different moments. In each step every member votes with the newest epoch that it is
//! ready for; the smallest vote comes back to all with that step's sums. When it is newer than the current epoch, all
//! know that all are ready: they begin it after that step, with no message of its own and nobody waiting.

use crate::planted::{Bug, Rules};

/// One member's knowledge. `vote` and `decide` once each per step, in turn.
#[derive(Clone, Debug)]
pub struct Votes<E> {
    current: u64,
    ready: Option<(u64, E)>,
    rules: Rules,
}

/// Votes that no sound members give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("members vote for epoch {vote}, this one is in epoch {current}")]
pub struct VoteError {
    /// The smallest.
    pub vote: u64,
    /// Ours.
    pub current: u64,
}

impl<E> Votes<E> {
    /// In epoch `current`, with nothing prepared.
    pub fn new(current: u64, rules: Rules) -> Self {
        Self { current, ready: None, rules }
    }

    /// A later epoch is ready here; what was prepared before it has lost its meaning.
    pub fn learn(&mut self, number: u64, epoch: E) {
        if number > self.current {
            self.ready = Some((number, epoch));
        }
    }

    /// The newest epoch that this member is ready for.
    pub fn vote(&self) -> u64 {
        self.ready.as_ref().map_or(self.current, |&(number, _)| number)
    }

    /// Of two votes the one that counts.
    pub fn smaller(one: u64, other: u64, rules: Rules) -> u64 {
        if rules.broken(Bug::NewestVote) { one.max(other) } else { one.min(other) }
    }

    /// The epoch that begins after this step, if one does.
    pub fn decide(&mut self, vote: u64) -> Result<Option<E>, VoteError> {
        if vote == self.current {
            return Ok(None);
        }
        match self.ready.take() {
            Some((number, epoch)) if number == vote => {
                self.current = vote;
                Ok(Some(epoch))
            }
            Some(_) | None => Err(VoteError { vote, current: self.current }),
        }
    }

    /// A loss was decided: its epoch is in force, and whatever was prepared is void.
    pub fn supersede(&mut self, number: u64) {
        *self = Self::new(number, self.rules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Members would begin an epoch at different steps, and wait for each other for ever.
        #[test]
        fn all_begin_at_one_step(ready in prop::collection::vec(0usize..6, 1..6)) {
            let mut members: Vec<_> = ready.iter().map(|_| Votes::new(3, Rules::default())).collect();
            for step in 0..6 {
                for (member, &at) in members.iter_mut().zip(&ready) {
                    if at == step { member.learn(5, "five"); }
                }
                let vote = members.iter().map(Votes::vote).min().unwrap();
                let begun: Vec<_> = members.iter_mut().map(|member| member.decide(vote).unwrap()).collect();
                let expected = (ready.iter().max() == Some(&step)).then_some("five");
                prop_assert!(begun.iter().all(|each| *each == expected));
            }
        }
    }

    /// A member that had not prepared the epoch would begin it with programs of another.
    #[test]
    fn a_vote_for_what_is_not_ready_is_refused() {
        let mut votes = Votes::<()>::new(1, Rules::default());
        assert_eq!(votes.decide(2), Err(VoteError { vote: 2, current: 1 }));
        votes.learn(3, ());
        votes.supersede(4);
        assert_eq!(votes.vote(), 4);
        assert_eq!(votes.decide(4), Ok(None));
    }
}
