//! How a joiner gets the model's state from all its peers at once: which block from whom.
//!
//! The state is cut into blocks. Each source names the digest of every block; sources that differ have diverged, which is a fault that must
//! be loud. The joiner asks each source for a few blocks at a time, so that faster sources send more, and asks again for what
//! a lost source owed. Near the end it asks another source, too, for what the slowest still owes. Blocks that are already
//! here and match are kept, so that a joiner whose epoch came to nothing does not begin anew.

use crate::planted::{Bug, Rules};
use hocket_ids::Member;
use std::collections::BTreeMap;

/// Blocks asked of one source and not there yet: one that travels and one that follows it.
const OPEN_MAX: usize = 2;
/// Blocks of one source that may come damaged: more are no accident.
const DAMAGED_MAX: usize = 8;

/// What the state is, as a source tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Steps in the state.
    pub steps: u64,
    /// Digest of each block.
    pub digests: Vec<u32>,
}

/// A question to a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whom.
    pub source: Member,
    /// For which block.
    pub block: usize,
}

/// What no sound source does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// Replicas differ: training has gone wrong before this.
    #[error("members {one} and {other} have different states after {steps} steps (block {block})")]
    Diverged {
        /// The first source.
        one: Member,
        /// The one that differs.
        other: Member,
        /// Steps in both states.
        steps: u64,
        /// The first block that differs.
        block: usize,
    },
    /// Sources are at different steps, or count blocks differently.
    #[error("member {other} offers {blocks} blocks after {steps} steps, another source does not")]
    Shape {
        /// The one that differs.
        other: Member,
        /// As it says.
        steps: u64,
        /// As it says.
        blocks: usize,
    },
    /// What came is not what was announced.
    #[error("{blocks} blocks of member {source_member} do not match their digests, block {block} the last")]
    Damaged {
        /// Who sent it.
        source_member: Member,
        /// Which.
        block: usize,
        /// How many, with it.
        blocks: usize,
    },
}

/// A joiner's side.
#[derive(Clone, Debug, Default)]
pub struct Fetch {
    wanted: Option<(Member, Manifest)>,
    /// Digest of what is here.
    here: Vec<Option<u32>>,
    /// Blocks asked of each source that can be asked.
    sources: BTreeMap<Member, Vec<usize>>,
    damaged: BTreeMap<Member, usize>,
    rules: Rules,
}

impl Fetch {
    /// With nothing here.
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Another epoch: sources and their manifest are others. What is here is kept for as long as it matches.
    pub fn restart(&mut self) {
        self.sources.clear();
        self.damaged.clear();
        if !self.rules.broken(Bug::KeepStaleBlocks) {
            self.wanted = None;
        }
    }

    /// A source says what it has.
    pub fn handle_manifest(&mut self, source: Member, manifest: Manifest) -> Result<Vec<Ask>, TransferError> {
        match &self.wanted {
            Some(_) if self.rules.broken(Bug::KeepStaleBlocks) => {}
            None => {
                self.here.resize(manifest.digests.len(), None);
                for (here, digest) in self.here.iter_mut().zip(&manifest.digests) {
                    *here = here.filter(|here| here == digest);
                }
                self.wanted = Some((source, manifest));
            }
            Some((one, wanted)) => same(*one, wanted, source, &manifest)?,
        }
        self.sources.insert(source, Vec::new());
        Ok(self.asks())
    }

    /// A block came, and `digest` is its own: what to ask next. A damaged block is asked for again.
    pub fn handle_block(
        &mut self,
        source: Member,
        block: usize,
        digest: u32,
    ) -> Result<Vec<Ask>, TransferError> {
        let Some(open) = self.sources.get_mut(&source) else { return Ok(Vec::new()) };
        open.retain(|&each| each != block);
        let announced = self.wanted.as_ref().and_then(|(_, wanted)| wanted.digests.get(block));
        if announced == Some(&digest) || self.rules.broken(Bug::KeepUncheckedBlock) {
            if let Some(here) = self.here.get_mut(block) {
                *here = Some(digest);
            }
            return Ok(self.asks());
        }
        let damaged = self.damaged.entry(source).or_default();
        *damaged += 1;
        if *damaged > DAMAGED_MAX {
            return Err(TransferError::Damaged { source_member: source, block, blocks: *damaged });
        }
        Ok(self.asks())
    }

    /// Whether that block is here, with that digest.
    pub fn has(&self, block: usize, digest: u32) -> bool {
        self.here.get(block) == Some(&Some(digest))
    }

    /// How many blocks of each source came damaged and were asked for again: for the log.
    pub fn damaged(&self) -> &BTreeMap<Member, usize> {
        &self.damaged
    }

    /// A source is lost: others are asked for what it owed.
    pub fn handle_lost(&mut self, source: Member) -> Vec<Ask> {
        self.sources.remove(&source);
        self.asks()
    }

    /// Steps of the state, once all of it is here.
    pub fn complete(&self) -> Option<u64> {
        let (_, wanted) = self.wanted.as_ref()?;
        self.here.iter().all(Option::is_some).then_some(wanted.steps)
    }

    fn asks(&mut self) -> Vec<Ask> {
        let mut asks = Vec::new();
        // The source that owes least first; by number where they owe the same.
        while let Some((source, open)) = self
            .sources
            .iter()
            .map(|(&source, open)| (source, open.len()))
            .min_by_key(|&(source, open)| (open, source))
        {
            if open >= OPEN_MAX {
                break;
            }
            let asked = |block: &usize| self.sources.values().flatten().filter(|each| *each == block).count();
            let missing = (0..self.here.len()).filter(|&block| self.here[block].is_none());
            let next = missing
                .map(|block| (asked(&block), block))
                .filter(|&(times, block)| times == 0 || open == 0 && times == 1 && !self.owes(source, block))
                .min();
            let Some((_, block)) = next else { break };
            self.sources.entry(source).or_default().push(block);
            asks.push(Ask { source, block });
        }
        asks
    }

    fn owes(&self, source: Member, block: usize) -> bool {
        self.sources.get(&source).is_some_and(|open| open.contains(&block))
    }
}

fn same(one: Member, wanted: &Manifest, other: Member, found: &Manifest) -> Result<(), TransferError> {
    let (steps, blocks) = (found.steps, found.digests.len());
    if steps != wanted.steps || blocks != wanted.digests.len() {
        return Err(TransferError::Shape { other, steps, blocks });
    }
    match wanted.digests.iter().zip(&found.digests).position(|(wanted, found)| wanted != found) {
        Some(block) => Err(TransferError::Diverged { one, other, steps, block }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn manifest(blocks: usize) -> Manifest {
        Manifest { steps: 7, digests: (0..blocks as u32).collect() }
    }

    proptest! {
        /// A joiner would wait for ever for a block that a lost source owed, or get one twice from everybody.
        #[test]
        fn every_block_comes_whoever_is_lost(blocks in 1usize..20, sources in 1u64..5, chance in prop::collection::vec(any::<prop::sample::Index>(), 300)) {
            let mut fetch = Fetch::new(Rules::default());
            let mut open = Vec::new();
            let mut asked = 0;
            for source in 0..sources {
                open.extend(fetch.handle_manifest(Member(source), manifest(blocks)).unwrap());
            }
            let mut live = sources;
            for chance in chance {
                if open.is_empty() { break; }
                let at = chance.index(open.len() * 8);
                if at < open.len() {
                    let Ask { source, block } = open.remove(at);
                    asked += 1;
                    open.extend(fetch.handle_block(source, block, block as u32).unwrap());
                } else if live > 1 && at == open.len() * 8 - 1 {
                    live -= 1;
                    open.retain(|ask| ask.source != Member(live));
                    open.extend(fetch.handle_lost(Member(live)));
                }
                prop_assert!((0..sources).all(|source| open.iter().filter(|ask| ask.source == Member(source)).count() <= OPEN_MAX));
            }
            while let Some(Ask { source, block }) = open.pop() {
                asked += 1;
                open.extend(fetch.handle_block(source, block, block as u32).unwrap());
            }
            prop_assert_eq!(fetch.complete(), Some(7));
            prop_assert!(asked <= 2 * blocks);
        }
    }

    /// A joiner would train on a mixture of two models.
    #[test]
    fn sources_that_differ_are_named() {
        let mut fetch = Fetch::new(Rules::default());
        fetch.handle_manifest(Member(1), manifest(3)).unwrap();
        let mut other = manifest(3);
        other.digests[2] = 9;
        let error = TransferError::Diverged { one: Member(1), other: Member(2), steps: 7, block: 2 };
        assert_eq!(fetch.handle_manifest(Member(2), other), Err(error));
        assert!(fetch.handle_manifest(Member(2), manifest(2)).is_err());
        for _ in 0..DAMAGED_MAX {
            assert!(
                fetch.handle_block(Member(1), 1, 5).unwrap().contains(&Ask { source: Member(1), block: 1 })
            );
        }
        let error = TransferError::Damaged { source_member: Member(1), block: 1, blocks: DAMAGED_MAX + 1 };
        assert_eq!(fetch.handle_block(Member(1), 1, 5), Err(error));
        assert_eq!(fetch.damaged(), &BTreeMap::from([(Member(1), DAMAGED_MAX + 1)]));
        assert!(!fetch.has(1, 5));
    }

    /// A joiner would fetch a gigabyte anew because somebody else was lost, or keep blocks of a step that was done again.
    #[test]
    fn what_still_matches_is_kept() {
        let mut fetch = Fetch::new(Rules::default());
        fetch.handle_manifest(Member(1), manifest(2)).unwrap();
        for block in 0..2 {
            fetch.handle_block(Member(1), block, block as u32).unwrap();
        }
        fetch.restart();
        assert_eq!(fetch.complete(), None);
        let changed = Manifest { steps: 8, digests: vec![0, 5] };
        assert_eq!(fetch.handle_manifest(Member(2), changed).unwrap(), [Ask { source: Member(2), block: 1 }]);
    }
}
