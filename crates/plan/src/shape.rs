//! A route as a search over routes changes it: an order, groups of it, and who reduces for these.
//!
//! The members of a group pass their sums to its first one along a chain. The firsts then reduce in a ring, or owners reduce for them,
//! among whom may be ranks that do not train. Groups of one and a ring are the ring; one group is a chain there and back.

use crate::exchange::Exchange;
use hocket_algorithms::{Algorithm, Owned, Via};

/// An owner's share is a multiple of this part.
const SHARE_MAX: u32 = 24;

/// An order, groups and owners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Ranks that train.
    pub order: Vec<u32>,
    /// Sizes of consecutive groups.
    pub sizes: Vec<u32>,
    /// By rank: its share; none: the first of each group are a ring.
    pub shares: Vec<u32>,
}

impl Shape {
    /// The shape of a route among the first `workers` of a world; `None` where it is of another kind.
    pub fn of(exchange: &Exchange, order: &[u32], workers: usize, world: usize) -> Option<Self> {
        let own = || order.iter().copied().filter(|&rank| (rank as usize) < workers).collect();
        let single = || vec![1; workers];
        match exchange {
            Exchange::AllReduce(Algorithm::Ring) => {
                Some(Self { order: own(), sizes: single(), shares: Vec::new() })
            }
            Exchange::AllReduce(Algorithm::TwoLevel { sizes }) => {
                Some(Self { order: own(), sizes: sizes.clone(), shares: Vec::new() })
            }
            Exchange::Owned(owned) => {
                let mut shares = vec![0; world];
                order.iter().zip(&owned.shares).for_each(|(&rank, &share)| shares[rank as usize] = share);
                let sizes = match &owned.via {
                    Via::Direct => single(),
                    Via::Stations(sizes) => sizes.clone(),
                    Via::Ring => return None,
                };
                Some(Self { order: own(), sizes, shares })
            }
            _ => None,
        }
    }

    /// What it is as a route: the exchange, and its members.
    pub fn route(&self) -> (Exchange, Vec<u32>) {
        let grouped = self.sizes.iter().any(|&size| size > 1);
        if self.shares.is_empty() {
            let sizes = self.sizes.clone();
            let algorithm = if grouped { Algorithm::TwoLevel { sizes } } else { Algorithm::Ring };
            return (Exchange::AllReduce(algorithm), self.order.clone());
        }
        let workers = self.order.len();
        let mut order = self.order.clone();
        if !grouped {
            // Everybody talks to owners by itself: any order will do.
            order.sort_unstable();
        }
        order.extend((workers as u32..self.shares.len() as u32).filter(|&rank| self.share(rank) > 0));
        let divisor = self.shares.iter().copied().fold(0, greatest_common_divisor);
        let shares = order.iter().map(|&rank| self.share(rank) / divisor).collect();
        let via = if grouped { Via::Stations(self.sizes.clone()) } else { Via::Direct };
        (Exchange::Owned(Owned { shares, workers, via }), order)
    }

    fn share(&self, rank: u32) -> u32 {
        self.shares[rank as usize]
    }

    /// A shape with one difference; with `owners`, it may have some.
    pub fn changed(&self, world: usize, owners: bool, random: &mut fastrand::Rng) -> Self {
        let mut found = self.clone();
        match random.u32(..if owners { 9 } else { 6 }) {
            0 => found.swap(random),
            1 => found.reverse(random),
            2 => found.regroup(random),
            3 | 4 => found.move_between_groups(random),
            5 => found.swap_groups(random),
            6 | 7 => found.share_otherwise(world, random),
            _ => found.reduce_elsewhere(world, random),
        }
        found
    }

    fn swap(&mut self, random: &mut fastrand::Rng) {
        let n = self.order.len();
        self.order.swap(random.usize(..n), random.usize(..n));
    }

    fn reverse(&mut self, random: &mut fastrand::Rng) {
        let n = self.order.len();
        let (one, other) = (random.usize(..=n), random.usize(..=n));
        self.order[one.min(other)..one.max(other)].reverse();
    }

    /// Divides a group, or makes two that follow one another one.
    fn regroup(&mut self, random: &mut fastrand::Rng) {
        let at = random.usize(..self.sizes.len());
        let size = self.sizes[at];
        if size > 1 && random.bool() {
            let first = random.u32(1..size);
            self.sizes[at] = first;
            self.sizes.insert(at + 1, size - first);
        } else if at + 1 < self.sizes.len() {
            self.sizes[at] += self.sizes.remove(at + 1);
        }
    }

    /// One rank leaves its group for a place in another one, or is a group of its own.
    fn move_between_groups(&mut self, random: &mut fastrand::Rng) {
        let mut groups = self.groups();
        let from = random.usize(..groups.len());
        let at = random.usize(..groups[from].len());
        let rank = groups[from].remove(at);
        match random.usize(..=groups.len()) {
            alone if alone == groups.len() => groups.push(vec![rank]),
            to => {
                let place = random.usize(..=groups[to].len());
                groups[to].insert(place, rank);
            }
        }
        self.set_groups(&groups);
    }

    fn swap_groups(&mut self, random: &mut fastrand::Rng) {
        let mut groups = self.groups();
        let (one, other) = (random.usize(..groups.len()), random.usize(..groups.len()));
        groups.swap(one, other);
        self.set_groups(&groups);
    }

    fn share_otherwise(&mut self, world: usize, random: &mut fastrand::Rng) {
        if self.shares.is_empty() {
            self.shares = vec![1; world];
        }
        let at = random.usize(..world);
        let share = self.shares[at];
        self.shares[at] = match random.u32(..4) {
            0 => 0,
            1 => share.saturating_sub(1),
            2 => share + 1,
            _ => 2 * share,
        };
        let most = self.shares.iter().copied().max().unwrap_or_default();
        if most > SHARE_MAX {
            self.shares.iter_mut().for_each(|share| *share = share.div_ceil(2));
        } else if most == 0 {
            self.shares[at] = 1;
        }
    }

    /// A ring, one owner, or equal shares of all.
    fn reduce_elsewhere(&mut self, world: usize, random: &mut fastrand::Rng) {
        self.shares = match random.u32(..4) {
            0 | 1 => Vec::new(),
            2 => vec![1; world],
            _ => {
                let owner = random.usize(..world);
                (0..world).map(|rank| u32::from(rank == owner)).collect()
            }
        };
    }

    fn groups(&self) -> Vec<Vec<u32>> {
        let mut left = self.order.as_slice();
        let take = |&size: &u32| {
            let (group, rest) = left.split_at(size as usize);
            left = rest;
            group.to_vec()
        };
        self.sizes.iter().map(take).collect()
    }

    fn set_groups(&mut self, groups: &[Vec<u32>]) {
        let kept = groups.iter().filter(|group| !group.is_empty());
        self.sizes = kept.map(|group| group.len() as u32).collect();
        self.order = groups.concat();
    }
}

pub fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broken: a search would propose a route that loses a rank, or that nobody can run.
    #[test]
    fn every_shape_is_a_route_of_all_ranks() {
        let mut random = fastrand::Rng::with_seed(19);
        for _ in 0..200 {
            let (workers, helpers) = (random.usize(2..9), random.usize(..3));
            let world = workers + helpers;
            let mut shape =
                Shape { order: (0..workers as u32).collect(), sizes: vec![1; workers], shares: Vec::new() };
            for _ in 0..50 {
                shape = shape.changed(world, true, &mut random);
                let (exchange, order) = shape.route();
                let mut ranks = order.clone();
                ranks.sort_unstable();
                ranks.dedup();
                assert!(
                    ranks.len() == order.len()
                        && ranks[..workers] == *(0..workers as u32).collect::<Vec<_>>()
                );
                match &exchange {
                    Exchange::Owned(owned) => {
                        owned.check().expect("it fits");
                        assert_eq!((owned.shares.len(), owned.workers), (order.len(), workers));
                    }
                    Exchange::AllReduce(algorithm) => {
                        algorithm.check(hocket_algorithms::Kind::AllReduce, workers).expect("it fits");
                    }
                    Exchange::Gathered(_) | Exchange::Counted(_) => unreachable!(),
                }
                let again = Shape::of(&exchange, &order, workers, world).expect("a shape");
                assert_eq!(again.route(), (exchange, order));
            }
        }
    }
}
