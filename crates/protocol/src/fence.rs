//! Which of our shared memory may be used again after neighbours were evicted.
//!
//! Neighbours write straight into our buckets. One that was stopped in the middle of that and then evicted may go on at any time
//! and finish its write. So memory that an evicted neighbour could reach is used again only once its process is known to
//! have ended; until then it is in quarantine, and the new epoch gets other memory. Who reported has stopped writing
//! and is no danger.

use crate::planted::{Bug, Rules};
use hocket_ids::Member;
use std::collections::{BTreeMap, BTreeSet};

/// Names a piece of our memory.
pub type Region = u64;

/// All our shared memory.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    /// Who may write where, but for ourselves.
    writers: BTreeMap<Region, BTreeSet<Member>>,
    /// Who was evicted, could write there, and is not known to be gone.
    quarantined: BTreeMap<Region, BTreeSet<Member>>,
    rules: Rules,
}

impl Fence {
    /// Of a process that shares nothing yet.
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// These neighbours may write there from now on, too.
    pub fn share(&mut self, region: Region, neighbours: impl IntoIterator<Item = Member>) {
        self.writers.entry(region).or_default().extend(neighbours);
    }

    /// An epoch begins that shuts `evicted` out; gives the regions that must be replaced, in order. `gone`: whose process has ended.
    pub fn enter(&mut self, evicted: &[Member], gone: &BTreeSet<Member>) -> Vec<Region> {
        let mut replaced = Vec::new();
        for (&region, writers) in &mut self.writers {
            let late: BTreeSet<_> = evicted.iter().copied().filter(|member| writers.remove(member)).collect();
            let late: BTreeSet<_> = late.difference(gone).copied().collect();
            if !late.is_empty() && !self.rules.broken(Bug::ReuseBeforeGone) {
                self.quarantined.insert(region, late);
                replaced.push(region);
            }
        }
        for region in &replaced {
            self.writers.remove(region);
        }
        replaced
    }

    /// A neighbour's process has ended; gives the regions that may be used again.
    pub fn handle_gone(&mut self, member: Member) -> Vec<Region> {
        for writers in self.quarantined.values_mut() {
            writers.remove(&member);
        }
        let free: Vec<_> =
            self.quarantined.iter().filter(|(_, late)| late.is_empty()).map(|(&region, _)| region).collect();
        for region in &free {
            self.quarantined.remove(region);
        }
        free
    }

    /// Regions in quarantine: how much memory evicted neighbours cost.
    pub fn quarantined(&self) -> usize {
        self.quarantined.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stopped neighbour that goes on would write an old sum into a new one.
    #[test]
    fn memory_waits_for_the_end_of_its_writers() {
        let mut fence = Fence::new(Rules::default());
        fence.share(0, [Member(1), Member(2)]);
        fence.share(1, [Member(2)]);
        let gone = BTreeSet::from([Member(2)]);
        assert_eq!(fence.enter(&[Member(1), Member(2)], &gone), [0]);
        assert_eq!(fence.quarantined(), 1);
        assert_eq!(fence.handle_gone(Member(3)), [0; 0]);
        assert_eq!(fence.handle_gone(Member(1)), [0]);
        assert_eq!(fence.quarantined(), 0);
    }

    /// Memory would be doubled by every eviction on another host.
    #[test]
    fn who_could_not_write_costs_nothing() {
        let mut fence = Fence::new(Rules::default());
        fence.share(0, [Member(1)]);
        assert_eq!(fence.enter(&[Member(9)], &BTreeSet::new()), [0; 0]);
        assert_eq!(fence.enter(&[], &BTreeSet::new()), [0; 0]);
    }
}
