//! Who is at fault when a wait is over: not the rank that is waited for, if it waits for others itself.
//!
//! The waiting rank asks all others whom they wait for ([`crate::word`]), and follows their answers to ranks that wait for
//! nobody: their scripts are elsewhere, or they do not even answer. No I/O and no clock: the caller decides how long to
//! wait for answers.

use crate::word::Part;
use hocket_ids::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// The answers to one question.
#[derive(Debug)]
pub struct Inquiry {
    own: Rank,
    awaited: Vec<Rank>,
    answers: BTreeMap<Rank, Answer>,
}

#[derive(Debug, Default)]
struct Answer {
    part: Option<Part>,
    waits: BTreeSet<Rank>,
    whole: bool,
}

impl Inquiry {
    /// `own` waits for `awaited`, and asks the ranks `asked`.
    pub fn new(own: Rank, awaited: Vec<Rank>, asked: impl Iterator<Item = Rank>) -> Self {
        Self { own, awaited, answers: asked.map(|rank| (rank, Answer::default())).collect() }
    }

    /// `from`, whose part is `part`, waits for `rank`; or that was all. `Err`: there is no such rank.
    pub fn handle_waits(&mut self, from: Rank, part: Part, rank: Option<Rank>) -> Result<(), String> {
        if let Some(rank) = rank
            && rank != self.own
            && !self.answers.contains_key(&rank)
        {
            return Err(format!("waits for rank {rank}, which the job does not have"));
        }
        let Some(answer) = self.answers.get_mut(&from) else { return Ok(()) };
        answer.part = Some(part);
        answer.waits.extend(rank.filter(|rank| *rank != from));
        answer.whole |= rank.is_none();
        Ok(())
    }

    /// Whether all have answered.
    pub fn is_answered(&self) -> bool {
        self.answers.values().all(|answer| answer.whole)
    }

    /// The ranks at the ends of all chains of waits, ascending; those that are awaited if the chains are circles.
    pub fn culprits(&self) -> Vec<Rank> {
        let mut reached: BTreeSet<Rank> = self.awaited.iter().copied().collect();
        let mut next: Vec<Rank> = self.awaited.clone();
        while let Some(rank) = next.pop() {
            let waits = self.answers.get(&rank).into_iter().flat_map(|answer| &answer.waits);
            next.extend(waits.filter(|of| **of != self.own && reached.insert(**of)));
        }
        let ends = reached.iter().filter_map(|rank| self.answers.get(rank).map(|answer| (*rank, answer)));
        let ends: Vec<_> = ends.filter(|(_, answer)| answer.waits.is_empty()).collect();
        // Whoever has done its part is at fault only if nobody else is: what it sent does not arrive.
        let idle = |(_, answer): &&(Rank, &Answer)| answer.part != Some(Part::Done);
        let found: Vec<Rank> = ends.iter().filter(idle).map(|(rank, _)| *rank).collect();
        match (found.is_empty(), ends.is_empty()) {
            (false, _) => found,
            (true, false) => ends.into_iter().map(|(rank, _)| rank).collect(),
            (true, true) => self.awaited.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Part::{Absent, Done, Working};
    use proptest::prelude::*;

    /// Rank 0 of `world` waits for `awaited`; answers by rank.
    fn asked(world: u32, awaited: &[u32], answers: &[(u32, Part, &[u32])]) -> Inquiry {
        let awaited = awaited.iter().copied().map(Rank).collect();
        let mut inquiry = Inquiry::new(Rank(0), awaited, (1..world).map(Rank));
        for (from, part, waits) in answers {
            for rank in *waits {
                inquiry.handle_waits(Rank(*from), *part, Some(Rank(*rank))).unwrap();
            }
            inquiry.handle_waits(Rank(*from), *part, None).unwrap();
        }
        inquiry
    }

    fn culprits(world: u32, awaited: &[u32], answers: &[(u32, Part, &[u32])]) -> Vec<u32> {
        asked(world, awaited, answers).culprits().into_iter().map(|rank| rank.0).collect()
    }

    /// A neighbour in a ring, which waits itself, would be blamed for a rank in an endless loop.
    #[test]
    fn waits_are_followed_to_whoever_waits_for_nobody() {
        assert_eq!(culprits(3, &[1, 2], &[(1, Absent, &[]), (2, Working, &[0, 1])]), [1]);
        assert_eq!(
            culprits(5, &[1, 4], &[(1, Working, &[0, 2]), (2, Working, &[1, 3]), (3, Absent, &[])]),
            [3, 4]
        );
        let around: &[(u32, Part, &[u32])] =
            &[(1, Working, &[0, 2]), (2, Absent, &[]), (3, Working, &[2, 4]), (4, Working, &[3, 0])];
        assert_eq!(culprits(5, &[1, 4], around), [2]);
    }

    /// A stopped rank says nothing; those that wait for it do.
    #[test]
    fn whoever_does_not_answer_waits_for_nobody() {
        let inquiry = asked(3, &[1], &[(1, Working, &[2])]);
        assert!(!inquiry.is_answered());
        assert_eq!(inquiry.culprits(), [Rank(2)]);
    }

    /// A rank that has sent all it had would be blamed beside the one that never began.
    #[test]
    fn whoever_has_done_its_part_is_the_last_to_blame() {
        assert_eq!(culprits(3, &[1, 2], &[(1, Done, &[]), (2, Absent, &[])]), [2]);
        assert_eq!(culprits(3, &[1, 2], &[(1, Done, &[]), (2, Working, &[1])]), [1]);
    }

    /// Ranks that call in another order wait for each other: nobody else is to blame.
    #[test]
    fn a_circle_is_as_before() {
        assert_eq!(culprits(3, &[1], &[(1, Absent, &[2]), (2, Absent, &[1, 0])]), [1]);
        assert_eq!(culprits(2, &[1], &[(1, Absent, &[0])]), [1]);
    }

    /// A rank outside of the job would be indexed.
    #[test]
    fn ranks_that_do_not_exist_are_refused() {
        let mut inquiry = asked(3, &[1], &[]);
        assert!(inquiry.handle_waits(Rank(1), Absent, Some(Rank(3))).is_err());
        assert_eq!(inquiry.handle_waits(Rank(7), Absent, Some(Rank(1))), Ok(()));
    }

    proptest! {
        /// Somebody is always named, and never the rank that asks.
        #[test]
        fn there_is_always_a_culprit(waits in prop::collection::vec((1..6u32, 0..6u32, 0..3usize), 0..30), awaited in 1..6u32) {
            let mut inquiry = asked(6, &[awaited], &[]);
            for (from, rank, part) in waits {
                inquiry.handle_waits(Rank(from), [Absent, Working, Done][part], (rank != from).then_some(Rank(rank))).unwrap();
            }
            let found = inquiry.culprits();
            prop_assert!(!found.is_empty() && !found.contains(&Rank(0)) && found.is_sorted());
        }
    }
}
