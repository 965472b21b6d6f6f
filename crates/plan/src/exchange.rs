//! How a bucket's gradients reach everybody: the messages between the members of a route.

use crate::network::{Network, PlanError};
use hocket_algorithms::{Algorithm, Counts, Flow, Kind, Stage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of the number of a row, which travels with it.
const ROW_NUMBER_BYTES: f64 = 8.0;

/// What the members of a route do together.
#[derive(Clone, Debug, PartialEq)]
pub enum Exchange {
    /// Everyone ends with the mean.
    AllReduce(Algorithm),
    /// Some members own a part each, which all others push to and get back.
    Owned(Owned),
    /// Rows of a sparse gradient: everyone gets those of all others.
    Gathered(Gathered),
}

/// Owners of a bucket's parts. What they send back is the mean, or the values that they have updated: as many bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owned {
    /// By member: its share of the elements, in units of which there are as many as the sum.
    pub shares: Vec<u32>,
    /// The first so many members have gradients; those after them only own.
    pub workers: usize,
    /// Members of each station, in order: all of them push and pull through the first. Empty: everyone by itself.
    pub stations: Vec<u32>,
}

/// Rows that a worker's batch has touched.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathered {
    /// How they are gathered.
    pub algorithm: Algorithm,
    /// Of all rows, those that one worker has touched.
    pub density: f64,
    /// Of a row.
    pub row_bytes: f64,
}

/// What an exchange sends: the flows, and what the shares of their elements are multiplied with.
pub struct Sent {
    pub counts: Arc<Counts>,
    pub scale: f64,
    /// Whether every element that arrives is added to something.
    pub adds: bool,
}

impl Exchange {
    /// The messages among `n` members.
    pub fn sent(&self, n: usize, network: &Network) -> Result<Sent, PlanError> {
        match self {
            Self::AllReduce(algorithm) => {
                let counts = network.counts(algorithm, Kind::AllReduce, n)?;
                Ok(Sent { counts, scale: 1.0, adds: false })
            }
            Self::Owned(owned) => {
                owned.check(n)?;
                Ok(Sent { counts: Arc::new(owned.counts()), scale: 1.0, adds: false })
            }
            Self::Gathered(rows) => {
                rows.check()?;
                let counts = network.counts(&rows.algorithm, Kind::AllGather, n)?;
                let scale = n as f64 * rows.density * (1.0 + ROW_NUMBER_BYTES / rows.row_bytes);
                Ok(Sent { counts, scale, adds: true })
            }
        }
    }
}

impl Gathered {
    fn check(&self) -> Result<(), PlanError> {
        if !(self.density > 0.0 && self.density <= 1.0 && self.row_bytes >= 1.0) {
            return Err(PlanError::Exchange("rows are no share of a tensor's"));
        }
        Ok(())
    }
}

impl Owned {
    fn check(&self, n: usize) -> Result<(), PlanError> {
        let wrong = |what| Err(PlanError::Exchange(what));
        if self.shares.len() != n || self.workers > n || self.workers == 0 {
            return wrong("owners are not among the members of its order");
        }
        if self.shares.iter().all(|&share| share == 0) {
            return wrong("owners own nothing");
        }
        let stationed: usize = self.stations.iter().map(|&size| size as usize).sum();
        if !self.stations.is_empty() && (stationed != self.workers || self.stations.contains(&0)) {
            return wrong("stations do not divide its workers");
        }
        Ok(())
    }

    /// The first members of the stations, and those of each.
    fn groups(&self) -> Vec<std::ops::Range<usize>> {
        if self.stations.is_empty() {
            return (0..self.workers).map(|worker| worker..worker + 1).collect();
        }
        let mut first = 0;
        let group = |&size: &u32| {
            first += size as usize;
            first - size as usize..first
        };
        self.stations.iter().map(group).collect()
    }

    fn counts(&self) -> Counts {
        let elements: usize = self.shares.iter().map(|&share| share as usize).sum();
        let mut flows = Flows(BTreeMap::new());
        let groups = self.groups();
        for (at, group) in groups.iter().enumerate() {
            for member in group.clone().skip(1) {
                flows.add(Stage::Rise(at as u32), member, member - 1, elements, true);
                flows.add(Stage::Fall(at as u32), member - 1, member, elements, false);
            }
            for (owner, &share) in self.shares.iter().enumerate() {
                if share > 0 && owner != group.start {
                    flows.add(Stage::Cycle, group.start, owner, share as usize, true);
                    flows.add(Stage::Cycle, owner, group.start, share as usize, false);
                }
            }
        }
        Counts { elements, flows: flows.0.into_values().collect(), depth: 2 }
    }
}

struct Flows(BTreeMap<(Stage, usize, usize), Flow>);

impl Flows {
    fn add(&mut self, stage: Stage, from: usize, to: usize, elements: usize, reduces: bool) {
        let none = Flow { from, to, stage, elements: 0, messages: 0, reduced: 0 };
        let flow = self.0.entry((stage, from, to)).or_insert(none);
        flow.elements += elements;
        flow.messages += 1;
        flow.reduced += if reduces { elements } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broken: owners would be predicted by other bytes than parameter servers send.
    #[test]
    fn equal_shares_of_the_first_members_are_parameter_servers() {
        for (n, servers) in [(2, 1), (4, 2), (5, 5), (6, 3)] {
            let shares = (0..n).map(|member| u32::from(member < servers)).collect();
            let owned = Owned { shares, workers: n, stations: Vec::new() }.counts();
            let algorithm = Algorithm::ParameterServer { servers: servers as u32 };
            let known = Counts::of_all_reduce(&algorithm, n).expect("it fits");
            assert_eq!(
                (owned.elements, owned.flows, owned.depth),
                (known.elements, known.flows, known.depth)
            );
        }
    }

    /// Broken: an owner that does not train would be sent its own, or stations would talk past one another.
    #[test]
    fn each_gradient_goes_up_once_and_comes_back_once() {
        let owned = Owned { shares: vec![0, 0, 0, 0, 3], workers: 4, stations: vec![2, 2] };
        owned.check(5).expect("it fits");
        let counts = owned.counts();
        let sum = |stage: fn(Stage) -> bool| -> usize {
            counts.flows.iter().filter(|flow| stage(flow.stage)).map(|flow| flow.elements).sum()
        };
        assert_eq!(sum(|stage| matches!(stage, Stage::Rise(_))), 2 * 3);
        assert_eq!(sum(|stage| matches!(stage, Stage::Fall(_))), 2 * 3);
        assert_eq!(sum(|stage| stage == Stage::Cycle), 2 * 2 * 3);
        let wrong = Owned { stations: vec![2, 1], ..owned };
        assert!(wrong.check(5).is_err());
    }
}
