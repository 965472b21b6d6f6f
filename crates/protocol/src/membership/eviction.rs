//! Who has to go when members cannot hear each other: a pure function of their complaints.
//!
//! A complaint is not a verdict: in a cut between two members both complain, and either could be right. Whom nobody else
//! misses stays. Every complaint costs one of its two ends its place, because a step needs both.

use hocket_ids::Member;
use std::collections::{BTreeMap, BTreeSet};

/// `complaints` are pairs of who cannot hear whom. Evicts first whoever has more complaints against it, then the younger (the larger
/// number), until nobody complains of anybody who stays. Gives each with how many complained of it at that moment.
pub fn evicted(complaints: &BTreeSet<(Member, Member)>) -> Vec<(Member, usize)> {
    let mut against: BTreeMap<Member, usize> = BTreeMap::new();
    let mut accused_by: BTreeMap<Member, Vec<Member>> = BTreeMap::new();
    for &(by, accused) in complaints {
        *against.entry(accused).or_default() += 1;
        accused_by.entry(by).or_default().push(accused);
    }
    let mut gone = Vec::new();
    // An accuser nobody complains of is not a candidate: where one cannot hear another that is well, the word of one counts.
    while let Some((member, count)) =
        against.iter().map(|(&member, &count)| (member, count)).max_by_key(|&(m, n)| (n, m))
    {
        gone.push((member, count));
        against.remove(&member);
        for accused in accused_by.remove(&member).unwrap_or_default() {
            if let Some(open) = against.get_mut(&accused) {
                *open -= 1;
                if *open == 0 {
                    against.remove(&accused);
                }
            }
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(complaints: &[(u64, u64)]) -> Vec<u64> {
        let set = complaints.iter().map(|&(by, of)| (Member(by), Member(of))).collect();
        evicted(&set).into_iter().map(|(member, _)| member.0).collect()
    }

    /// One dead member would take a live one with it.
    #[test]
    fn whom_all_miss_goes_alone() {
        assert_eq!(of(&[(1, 2), (3, 2), (2, 1)]), [2]);
        assert_eq!(of(&[(1, 2)]), [2]);
        assert_eq!(of(&[]), [0; 0]);
    }

    /// A cut between two members would end both, or neither.
    #[test]
    fn of_two_that_miss_each_other_the_younger_goes() {
        assert_eq!(of(&[(4, 9), (9, 4)]), [9]);
    }

    /// Halves of a partition that both reach the coordinator would mix.
    #[test]
    fn of_two_halves_one_stays_whole() {
        assert_eq!(of(&[(1, 3), (1, 4), (2, 3), (2, 4), (3, 1), (3, 2), (4, 1), (4, 2)]), [4, 3]);
    }

    proptest! {
        /// An epoch would begin whose members cannot hear each other, or a member would go of whom nobody complained.
        #[test]
        fn complaints_end(pairs in prop::collection::btree_set((0u64..6, 0u64..6), 0..20)) {
            let complaints = pairs.into_iter().filter(|(by, of)| by != of).map(|(by, of)| (Member(by), Member(of))).collect();
            let gone: BTreeSet<_> = evicted(&complaints).into_iter().map(|(member, _)| member).collect();
            prop_assert!(complaints.iter().all(|(by, of)| gone.contains(by) || gone.contains(of)));
            prop_assert!(gone.iter().all(|member| complaints.iter().any(|(_, of)| of == member)));
        }
    }
}
