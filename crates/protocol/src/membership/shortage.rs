//! Who goes on after a loss: the members that are left, and so many that wait to join as the job must have. If there are too few of
//! them, the job waits for others, then ends.

use super::{Ending, Limits};
use hocket_ids::Member;
use std::time::Duration;

/// A wait for more members, during a step or between two.
#[derive(Clone, Debug, Default)]
pub struct Shortage {
    since: Option<Duration>,
}

/// What follows a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The members that are left go on, and these join them.
    Joined(Vec<Member>),
    /// They wait for others.
    Waits {
        /// They did not wait before.
        begins: bool,
    },
    /// The job ends.
    Ends(Ending),
}

impl Shortage {
    /// Whether the job waits.
    pub fn lasts(&self) -> bool {
        self.since.is_some()
    }

    /// During a step, with so many members left. `waiting`: who would join.
    pub fn follow(
        &mut self,
        left: usize,
        waiting: impl Iterator<Item = Member>,
        lost: &[Member],
        limits: &Limits,
        now: Duration,
    ) -> Outcome {
        let (needed, waited) = (limits.members_min, limits.rejoin_patience);
        let missing = needed.saturating_sub(left);
        let joiners: Vec<_> = waiting.take(missing).collect();
        if joiners.len() == missing {
            self.since = None;
            return Outcome::Joined(joiners);
        }
        let begins = self.since.is_none();
        let since = *self.since.get_or_insert(now);
        if !waited.is_zero() && now <= since + waited {
            return Outcome::Waits { begins };
        }
        Outcome::Ends(Ending::BelowMinimum { left, needed, waited, lost: lost.to_vec() })
    }

    /// Between two steps, with the members `left`. `holders`: who has the state. Of those `waiting`, some may have been taken in before.
    pub fn follow_between_steps(
        &mut self,
        left: &[Member],
        holders: &[Member],
        waiting: impl Iterator<Item = Member>,
        lost: &[Member],
        limits: &Limits,
        now: Duration,
    ) -> Outcome {
        if !left.iter().any(|member| holders.contains(member)) {
            return Outcome::Ends(Ending::StateLost { lost: lost.to_vec() });
        }
        let others = waiting.filter(|each| !left.contains(each));
        self.follow(left.len(), others, lost, limits, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A job that lacks members between two steps would go on with too few, with joiners that it does not need, with one that it counts
    /// twice, or without state.
    #[test]
    fn members_wait_between_two_steps_until_joiners_fill_up() {
        let limits = Limits { members_min: 2, rejoin_patience: SECOND * 10, ..Limits::default() };
        let mut shortage = Shortage::default();
        let (left, lost, joiners) = ([Member(0)], [Member(1)], [Member(7), Member(8)]);
        let mut at = |seconds, holders: &[Member], waiting: &[Member]| {
            let waiting = waiting.iter().copied();
            let now = SECOND * seconds;
            let outcome = shortage.follow_between_steps(&left, holders, waiting, &lost, &limits, now);
            (outcome, shortage.lasts())
        };
        assert_eq!(at(1, &left, &[]), (Outcome::Waits { begins: true }, true));
        assert_eq!(at(11, &left, &[]), (Outcome::Waits { begins: false }, true));
        assert_eq!(
            at(11, &left, &[Member(0), Member(7), Member(8)]),
            (Outcome::Joined(vec![Member(7)]), false)
        );
        assert_eq!(at(12, &left, &[]), (Outcome::Waits { begins: true }, true));
        let ended = Ending::BelowMinimum { left: 1, needed: 2, waited: SECOND * 10, lost: lost.to_vec() };
        assert_eq!(at(23, &left, &[]).0, Outcome::Ends(ended));
        let ended = Ending::StateLost { lost: lost.to_vec() };
        assert_eq!(at(12, &[Member(1)], &joiners).0, Outcome::Ends(ended));
    }
}
