//! Which samples each member draws, so that every sample is committed once per epoch of the data, whoever is lost.
//!
//! The order of samples is a keyed bijection: it needs no memory and can be asked anywhere. Its positions are drawn from a pool: first
//! those never drawn, then those returned. A step's draw follows from the committed state alone, so members agree on it
//! without a word. When the step is committed, positions of members that are not in its mean go back to the pool; they
//! are drawn again at the end of the same epoch of the data.

use crate::planted::{Bug, Rules};
use hocket_ids::Member;
use std::collections::{BTreeSet, VecDeque};

/// The committed state. It is part of the model's state, equal on all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampler {
    seed: u64,
    samples: u64,
    /// Which pass over the data.
    data_epoch: u64,
    /// Positions before it were drawn.
    next: u64,
    /// Drawn by members that were lost, in the order of their loss.
    returned: VecDeque<u64>,
}

/// Positions of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// By rank; empty for some where fewer positions are left than there are members.
    pub slices: Vec<(Member, Vec<u64>)>,
    /// How many came from positions never drawn.
    fresh: u64,
    /// How many came from those returned.
    returned: usize,
}

impl Draw {
    /// A member's positions; none where it draws nothing.
    pub fn of(&self, member: Member) -> &[u64] {
        self.slices.iter().find(|(each, _)| *each == member).map_or(&[], |(_, slice)| slice)
    }
}

impl Sampler {
    /// At the beginning of `samples`, which is at least one.
    pub fn new(seed: u64, samples: u64) -> Self {
        assert!(samples > 0, "a sampler needs samples");
        Self { seed, samples, data_epoch: 0, next: 0, returned: VecDeque::new() }
    }

    /// As one was left: `None` where these numbers are of no sampler.
    pub fn resumed(seed: u64, samples: u64, data_epoch: u64, next: u64, returned: Vec<u64>) -> Option<Self> {
        let each: BTreeSet<_> = returned.iter().collect();
        let is_sound = samples > 0
            && next <= samples
            && each.len() == returned.len()
            && returned.iter().all(|&position| position < next);
        is_sound.then(|| Self { seed, samples, data_epoch, next, returned: returned.into() })
    }

    /// Another pass over the data begins, whatever is left of the one before.
    pub fn begin(&mut self, data_epoch: u64) {
        (self.data_epoch, self.next) = (data_epoch, 0);
        self.returned.clear();
    }

    /// Positions before it were drawn.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Positions that were drawn by members that were lost, in the order of their loss.
    pub fn returned(&self) -> impl Iterator<Item = u64> {
        self.returned.iter().copied()
    }

    /// Which pass over the data, from zero.
    pub fn data_epoch(&self) -> u64 {
        self.data_epoch
    }

    /// The next step's: up to `batch` positions for each member, by rank.
    pub fn draw(&self, members: &[Member], batch: u64) -> Draw {
        self.draw_by(members, &|_| batch)
    }

    /// The next step's, with as many positions for each member as `batch` says; without any where fewer are left than that.
    pub fn draw_whole(&self, members: &[Member], batch: &dyn Fn(Member) -> u64) -> Draw {
        let mut draw = Draw::default();
        if self.left() >= members.iter().map(|&member| batch(member)).sum() {
            for &member in members {
                let slice = (0..batch(member)).map(|_| self.take(&mut draw)).collect();
                draw.slices.push((member, slice));
            }
        }
        draw
    }

    /// The next step's, with a batch of its own for each member.
    ///
    /// Where fewer are left than all could take, they are shared in proportion to the members' batches, at least one for each while
    /// there are as many. So that nobody is without any in the last step, the last two share what is left where the last one had less
    /// than one for each.
    pub fn draw_by(&self, members: &[Member], batch: &dyn Fn(Member) -> u64) -> Draw {
        let mut draw = Draw::default();
        let mut others = members.len() as u64;
        let left = self.left();
        let mut full: u64 = members.iter().map(|&member| batch(member)).sum();
        let halves = full >= 2 * others && left > full && left - full < others;
        let mut taken = if halves { left.div_ceil(2) } else { left.min(full) };
        for &member in members {
            let own = batch(member);
            others -= 1;
            let share = (u128::from(taken) * u128::from(own)).div_ceil(u128::from(full.max(1))) as u64;
            let share = share.min(taken.saturating_sub(others)).max(taken.min(1));
            (taken, full) = (taken - share, full - own);
            let slice = (0..share).map(|_| self.take(&mut draw)).collect();
            draw.slices.push((member, slice));
        }
        draw
    }

    /// Positions of this pass that are not committed.
    pub fn left(&self) -> u64 {
        self.samples - self.next + self.returned.len() as u64
    }

    /// The next position, of which there is one.
    fn take(&self, draw: &mut Draw) -> u64 {
        let fresh = self.next + draw.fresh;
        if fresh < self.samples {
            draw.fresh += 1;
            return fresh;
        }
        draw.returned += 1;
        self.returned[draw.returned - 1]
    }

    /// The step is committed as the mean of `members`; gives the positions that count.
    pub fn commit(&mut self, draw: &Draw, members: &[Member], rules: Rules) -> Vec<u64> {
        self.next += draw.fresh;
        self.returned.drain(..draw.returned.min(self.returned.len()));
        let mut counted = Vec::new();
        for (member, slice) in &draw.slices {
            if members.contains(member) {
                counted.extend(slice);
            } else if !rules.broken(Bug::LoseSamples) {
                self.returned.extend(slice);
            }
        }
        if self.next >= self.samples && self.returned.is_empty() {
            (self.data_epoch, self.next) = (self.data_epoch + 1, 0);
        }
        counted
    }

    /// The sample at a position: a Feistel network over the next power of four, walked until it is below the number of samples
    /// (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). Less than four turns on average.
    pub fn sample(&self, position: u64) -> u64 {
        let half_bits =
            u64::BITS.saturating_sub(self.samples.saturating_sub(1).leading_zeros()).div_ceil(2).max(1);
        let mask = (1 << half_bits) - 1;
        let mut at = position;
        loop {
            let (mut left, mut right) = (at >> half_bits, at & mask);
            for round in 0..4 {
                let key = mixed(self.seed ^ mixed(self.data_epoch << 2 | round));
                (left, right) = (right, left ^ (mixed(key ^ right) & mask));
            }
            at = left << half_bits | right;
            if at < self.samples {
                return at;
            }
        }
    }
}

/// The finalizer of `SplitMix64` (Steele, Lea and Flood 2014).
#[must_use]
pub fn mixed(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Samples would be missed or come twice in an epoch: of a plain order, and of one that begins anew.
        #[test]
        fn the_order_is_a_permutation(seed: u64, samples in 1u64..300) {
            let sampler = Sampler::new(seed, samples);
            let seen: BTreeSet<_> = (0..samples).map(|position| sampler.sample(position)).collect();
            prop_assert_eq!(seen, (0..samples).collect());
        }

        /// A lost member's samples would never be trained on, or somebody's twice.
        #[test]
        fn each_position_counts_once_whoever_is_lost(samples in 1u64..40, batch in 1u64..4, losses in prop::collection::vec((1u64..5, 0u64..5), 200)) {
            let mut sampler = Sampler::new(1, samples);
            let mut counted = Vec::new();
            for (world, lost) in losses {
                let members: Vec<_> = (0..world).map(Member).collect();
                let draw = sampler.draw(&members, batch);
                let left: Vec<_> = members.into_iter().filter(|member| member.0 != lost || world == 1).collect();
                let before = sampler.data_epoch();
                counted.extend(sampler.commit(&draw, &left, Rules::default()));
                if sampler.data_epoch() != before {
                    counted.sort_unstable();
                    prop_assert_eq!(std::mem::take(&mut counted), (0..samples).collect::<Vec<_>>());
                }
            }
        }
    }

    proptest! {
        /// A rank would have no batch while others have one, though there are samples for all, and they would wait for it.
        #[test]
        fn all_have_equally_many_steps(world in 1u64..7, batch in 2u64..5, more in 0u64..60) {
            let members: Vec<_> = (0..world).map(Member).collect();
            let mut sampler = Sampler::new(1, world + more);
            while sampler.data_epoch() == 0 {
                let draw = sampler.draw(&members, batch);
                let shares: Vec<_> = draw.slices.iter().map(|(_, slice)| slice.len() as u64).collect();
                let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
                prop_assert!(1 <= *least && *most <= (*least + 1).min(batch), "{shares:?}");
                sampler.commit(&draw, &members, Rules::default());
            }
        }
    }

    proptest! {
        /// Broken: with batches of unequal sizes, a rank would be without samples while there are some for all, get more than it asked
        /// for, or draw others than its share.
        #[test]
        fn batches_of_unequal_sizes_end_together(batches in prop::collection::vec(1u64..9, 1..6), more in 0u64..60) {
            let members: Vec<_> = (0..batches.len() as u64).map(Member).collect();
            let (full, world) = (batches.iter().sum::<u64>(), members.len() as u64);
            let batch = |member: Member| batches[member.0 as usize];
            let mut sampler = Sampler::new(1, world + more);
            while sampler.data_epoch() == 0 {
                let left = sampler.left();
                let draw = sampler.draw_by(&members, &batch);
                let shares: Vec<_> = draw.slices.iter().map(|(_, slice)| slice.len() as u64).collect();
                prop_assert!(shares.iter().zip(&batches).all(|(share, most)| share <= most), "{shares:?}");
                prop_assert!(left < full + world || shares == batches, "{shares:?}");
                prop_assert!(left < world || full < 2 * world || shares.iter().all(|&share| share > 0), "{shares:?}");
                sampler.commit(&draw, &members, Rules::default());
            }
        }
    }

    /// Each epoch would show the samples in the same order, which trains worse.
    #[test]
    fn orders_of_epochs_differ() {
        let mut sampler = Sampler::new(3, 100);
        let order = |sampler: &Sampler| (0..100).map(|position| sampler.sample(position)).collect::<Vec<_>>();
        let first = order(&sampler);
        let draw = sampler.draw(&[Member(0)], 100);
        sampler.commit(&draw, &[Member(0)], Rules::default());
        assert_eq!(sampler.data_epoch(), 1);
        assert_ne!(order(&sampler), first);
    }
}
