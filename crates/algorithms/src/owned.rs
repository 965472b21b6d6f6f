//! Owners of parts: members push their values to the owner of each part, and get back what it holds then. In between,
//! owners may do more than reduce. The two halves are a reduce-scatter and an all-gather whose parts have the lengths
//! of the owners' shares.

use crate::list::ring;
use crate::{Call, Misfit, Stage, Weave, segments};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The owners' shares, and the route to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct Owned {
    /// By member: its share of the elements, in units; the sum is their number.
    pub shares: Vec<u32>,
    /// The first members, this many, have gradients; those after them only own.
    pub workers: usize,
    pub via: Via,
}

/// The route from workers to owners and back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(tag = "type", content = "stations", rename_all = "snake_case", deny_unknown_fields)]
pub enum Via {
    Direct,
    /// Workers push and pull through the first of each group of consecutive ones, along a chain; these are the groups'
    /// sizes.
    #[serde(rename = "two_level")]
    Stations(Vec<u32>),
    /// Around the members, all of which are workers and own equal shares.
    Ring,
}

impl Owned {
    /// All of `n` members are workers; the first `owners` of them own equal parts, directly.
    pub fn first(owners: usize, n: usize) -> Self {
        let shares = (0..n).map(|member| u32::from(member < owners)).collect();
        Self { shares, workers: n, via: Via::Direct }
    }

    /// Whether owners, workers and stations are valid members, and there are some.
    pub fn check(&self) -> Result<(), Misfit> {
        let members = self.shares.len();
        let wrong = |what| Err(Misfit::Owners(what));
        if self.workers == 0 || self.workers > members {
            return wrong("its workers are not among its members");
        }
        if self.shares.iter().all(|&share| share == 0) {
            return wrong("nobody owns anything");
        }
        match &self.via {
            Via::Direct => Ok(()),
            Via::Stations(sizes) => {
                let stationed: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
                if stationed != self.workers as u64 || sizes.contains(&0) {
                    return wrong("its stations do not divide its workers");
                }
                Ok(())
            }
            Via::Ring => {
                let equal = self.shares.iter().all(|&share| share == self.shares[0]);
                if equal && self.workers == members {
                    return Ok(());
                }
                wrong("a ring is for members that all work and own equal shares")
            }
        }
    }

    /// A number of elements that all shares divide evenly.
    pub fn even_elements(&self) -> usize {
        self.shares.iter().map(|&share| share as usize).sum()
    }

    /// Owners and their ranges of this many elements, in order, without empty ones.
    pub fn parts(&self, elements: usize) -> Vec<(usize, Range<usize>)> {
        let all = self.even_elements().max(1) as u128;
        let edge = |units: u64| (elements as u128 * u128::from(units) / all) as usize;
        let mut units = 0_u64;
        let mut found = Vec::new();
        for (owner, &share) in self.shares.iter().enumerate() {
            let start = units;
            units += u64::from(share);
            let part = edge(start)..edge(units);
            if !part.is_empty() {
                found.push((owner, part));
            }
        }
        found
    }

    /// Each owner ends with the reduction of its part over the workers; the other ranks' values are then undefined.
    pub fn to_owners(&self, call: &Call, weave: &mut dyn Weave) {
        self.reduce_scatter(call, weave);
        for (owner, part) in self.parts(call.whole().len()) {
            call.complete(owner, &part, weave);
        }
    }

    /// The same, without the factor of the result.
    pub(crate) fn reduce_scatter(&self, call: &Call, weave: &mut dyn Weave) {
        let parts = self.parts(call.whole().len());
        match &self.via {
            Via::Ring => ring::reduce_scatter(call, weave),
            Via::Direct => {
                let workers: Vec<usize> = (0..self.workers).collect();
                push(&workers, &parts, call, weave);
            }
            Via::Stations(sizes) => {
                let groups = groups(sizes);
                let stations: Vec<usize> = groups.iter().map(|group| group.start).collect();
                for piece in pieces(&parts, call, stations.len()) {
                    for (at, group) in groups.iter().enumerate() {
                        weave.stage(Stage::Rise(at as u32));
                        for member in group.clone().skip(1).rev() {
                            call.message(member, member - 1, &piece, true, weave);
                        }
                    }
                    weave.stage(Stage::Cycle);
                    push(&stations, &within(&parts, &piece), call, weave);
                }
            }
        }
    }

    /// Each worker ends with the owners' values of their parts.
    pub fn from_owners(&self, call: &Call, weave: &mut dyn Weave) {
        let parts = self.parts(call.whole().len());
        match &self.via {
            Via::Ring => ring::all_gather(call, weave),
            Via::Direct => {
                let workers: Vec<usize> = (0..self.workers).collect();
                pull(&workers, &parts, call, weave);
            }
            Via::Stations(sizes) => {
                let groups = groups(sizes);
                let stations: Vec<usize> = groups.iter().map(|group| group.start).collect();
                for piece in pieces(&parts, call, stations.len()) {
                    weave.stage(Stage::Cycle);
                    pull(&stations, &within(&parts, &piece), call, weave);
                    for (at, group) in groups.iter().enumerate() {
                        weave.stage(Stage::Fall(at as u32));
                        for member in group.clone().skip(1) {
                            call.message(member - 1, member, &piece, false, weave);
                        }
                    }
                }
            }
        }
    }

    /// Both halves: all workers end with the reduction.
    pub fn all_reduce(&self, call: &Call, weave: &mut dyn Weave) {
        self.to_owners(call, weave);
        self.from_owners(call, weave);
    }
}

/// From each of `sources` to each owner, in turns: owners receive from those after them first, so that no one is
/// everybody's first. An owner that is no source has no values of its own to add to.
fn push(sources: &[usize], parts: &[(usize, Range<usize>)], call: &Call, weave: &mut dyn Weave) {
    for (owner, part) in parts {
        let mut holds = sources.contains(owner);
        for from in others(sources, *owner) {
            call.message(from, *owner, part, holds, weave);
            holds = true;
        }
    }
}

/// From each owner to each of `sinks`.
fn pull(sinks: &[usize], parts: &[(usize, Range<usize>)], call: &Call, weave: &mut dyn Weave) {
    for (owner, part) in parts {
        for to in others(sinks, *owner) {
            call.message(*owner, to, part, false, weave);
        }
    }
}

/// Members but one, starting after it.
fn others(members: &[usize], owner: usize) -> impl Iterator<Item = usize> {
    let n = members.len();
    let first = members.iter().position(|&member| member > owner).unwrap_or(owner % n);
    (0..n).map(move |k| members[(first + k) % n]).filter(move |&member| member != owner)
}

fn groups(sizes: &[u32]) -> Vec<Range<usize>> {
    let mut first = 0;
    let group = |&size: &u32| {
        first += size as usize;
        first - size as usize..first
    };
    sizes.iter().map(group).collect()
}

/// The pieces that travel along chains one after the other: everything at once, or in turn of each share as much as
/// keeps all owners busy.
fn pieces(parts: &[(usize, Range<usize>)], call: &Call, stations: usize) -> Vec<Range<usize>> {
    let segments = segments::of(call, stations.max(parts.len()));
    if segments == 1 {
        return vec![call.whole()];
    }
    let segment = |at: usize, part: &Range<usize>| {
        part.start + part.len() * at / segments..part.start + part.len() * (at + 1) / segments
    };
    (0..segments).flat_map(|at| parts.iter().map(move |(_, part)| segment(at, part))).collect()
}

fn within(parts: &[(usize, Range<usize>)], piece: &Range<usize>) -> Vec<(usize, Range<usize>)> {
    let cut = |(owner, part): &(usize, Range<usize>)| {
        (*owner, part.start.max(piece.start)..part.end.min(piece.end))
    };
    parts.iter().map(cut).filter(|(_, part)| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counts;
    use proptest::prelude::*;

    /// For each member, by element: the contributions in its value, as bits; an owner's own values are bit 63.
    struct Sets {
        have: Vec<Vec<u64>>,
        wrong: bool,
    }

    const VALUES: u64 = 1 << 63;

    impl Weave for Sets {
        fn message(&mut self, from: usize, to: usize, part: &Range<usize>, reduces: bool) {
            for at in part.clone() {
                let sent = self.have[from][at];
                self.wrong |= reduces && sent & self.have[to][at] != 0;
                self.have[to][at] = if reduces { sent | self.have[to][at] } else { sent };
            }
        }
        fn complete(&mut self, member: usize, part: &Range<usize>) {
            // An owner sends back what it makes of the complete reduction.
            self.have[member][part.clone()].iter_mut().for_each(|held| *held |= VALUES);
        }
        fn exchange(&mut self, _: usize, _: &Range<usize>, _: usize, _: &Range<usize>) {}
    }

    fn any_owned() -> impl Strategy<Value = Owned> {
        let stations = prop::collection::vec(1_u32..4, 1..4);
        (stations, 0_usize..3, 0..3, prop::collection::vec(0_u32..4, 12)).prop_map(
            |(sizes, helpers, via, units)| {
                let workers = sizes.iter().sum::<u32>() as usize;
                let via = [Via::Direct, Via::Stations(sizes), Via::Ring][via as usize].clone();
                let ring = via == Via::Ring;
                let members = workers + if ring { 0 } else { helpers };
                let share = |member| if ring { 2 } else { units[member] };
                let mut shares: Vec<u32> = (0..members).map(share).collect();
                shares[members - 1] += u32::from(shares.iter().all(|&share| share == 0));
                Owned { shares, workers, via }
            },
        )
    }

    proptest! {
        /// Broken: an owner would lose, double or scale a contribution, or add the memory of a rank that does not
        /// train; or a worker would keep a gradient in place of a value.
        #[test]
        fn owners_get_each_contribution_once_and_workers_get_their_values(owned in any_owned(), elements in 0_usize..50, long in any::<bool>()) {
            owned.check().expect("it fits");
            let (n, elements) = (owned.shares.len(), if long { 500_000 + elements } else { elements });
            let own = |member: usize| if member < owned.workers { 1 << member } else { 1 << 62 };
            let mut sets = Sets { have: (0..n).map(|member| vec![own(member); elements]).collect(), wrong: false };
            let call = Call::new(n, elements);
            owned.to_owners(&call, &mut sets);
            let all = (1 << owned.workers) - 1;
            for (owner, part) in owned.parts(elements) {
                prop_assert!(sets.have[owner][part].iter().all(|&held| held == all | VALUES));
            }
            owned.from_owners(&call, &mut sets);
            prop_assert!(!sets.wrong);
            prop_assert!(sets.have[..owned.workers].iter().flatten().all(|&held| held == all | VALUES));
        }

        /// Broken: elements would have no owner, or two.
        #[test]
        fn parts_follow_one_another(owned in any_owned(), elements in 0_usize..1000) {
            let parts = owned.parts(elements);
            let edges: Vec<usize> = parts.iter().flat_map(|(_, part)| [part.start, part.end]).collect();
            prop_assert_eq!(parts.iter().map(|(_, part)| part.len()).sum::<usize>(), elements);
            prop_assert!(edges.windows(2).all(|two| two[0] <= two[1]) && edges.first().is_none_or(|&first| first == 0));
        }
    }

    /// Broken: an owner that does not train would be sent its own values, or stations would collide.
    #[test]
    fn each_gradient_goes_up_once_and_comes_back_once() {
        let owned = Owned { shares: vec![0, 0, 0, 0, 3], workers: 4, via: Via::Stations(vec![2, 2]) };
        let counts = Counts::of_owned(&owned, owned.even_elements()).expect("it fits");
        let sum = |stage: fn(Stage) -> bool| -> usize {
            counts.flows.iter().filter(|flow| stage(flow.stage)).map(|flow| flow.elements).sum()
        };
        assert_eq!(sum(|stage| matches!(stage, Stage::Rise(_))), 2 * 3);
        assert_eq!(sum(|stage| matches!(stage, Stage::Fall(_))), 2 * 3);
        assert_eq!(sum(|stage| stage == Stage::Cycle), 2 * 2 * 3);
        assert_eq!(counts.depth, 2);
        let wrong = Owned { via: Via::Stations(vec![2, 1]), ..owned };
        assert!(Counts::of_owned(&wrong, 4).is_err());
    }

    /// Broken: optimizers of owners on a ring would move other bytes than the ring all-reduce, whose halves they are.
    #[test]
    fn equal_owners_on_a_ring_are_a_ring() {
        use crate::{Algorithm, Kind};
        let owned = Owned { via: Via::Ring, ..Owned::first(4, 4) };
        let ring = Counts::of(&Algorithm::Ring, Kind::AllReduce, 0, 4, 4).expect("it fits");
        let counts = Counts::of_owned(&owned, owned.even_elements()).expect("it fits");
        assert_eq!((counts.flows, counts.depth), (ring.flows, ring.depth));
        assert!(Owned { shares: vec![2, 1], workers: 2, via: Via::Ring }.check().is_err());
        assert!(Owned { shares: vec![1; 3], workers: 2, via: Via::Ring }.check().is_err());
    }
}
