//! Counts an algorithm's traffic: the second implementer of [`Weave`], beside the pass that builds ops.

use crate::{Algorithm, Call, Kind, Misfit, Owned, Stage, Weave};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Messages from one member to another in one stage of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Flow {
    pub from: usize,
    pub to: usize,
    /// The cycle for a program's messages, which have no stages.
    #[serde(skip)]
    pub stage: Stage,
    /// Elements of all messages together.
    pub elements: usize,
    /// Those of the elements that are reduced into the receiver's.
    pub reduced: usize,
    pub messages: usize,
}

/// All messages of a collective.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Counts {
    /// Length of each member's slice.
    pub elements: usize,
    /// By stage, then by sender and receiver: each once.
    pub flows: Vec<Flow>,
    /// In the cycle: the largest number of messages that carry a value one after the other.
    pub depth: usize,
}

impl Counts {
    /// Counts the messages of a collective of `elements` elements among `n` members.
    pub fn of(
        algorithm: &Algorithm,
        kind: Kind,
        root: usize,
        n: usize,
        elements: usize,
    ) -> Result<Self, Misfit> {
        let mut counter = Counter::new(n);
        algorithm.weave(kind, root, &Call::new(n, elements), &mut counter)?;
        Ok(counter.counts(elements))
    }

    /// Counts the messages of an all-reduce over owners.
    pub fn of_owned(owned: &Owned, elements: usize) -> Result<Self, Misfit> {
        owned.check()?;
        let n = owned.shares.len();
        let mut counter = Counter::new(n);
        owned.all_reduce(&Call::new(n, elements), &mut counter);
        Ok(counter.counts(elements))
    }

    /// Counts an all-reduce with parts of equal length: each flow moves an exact share of `elements`.
    pub fn of_all_reduce(algorithm: &Algorithm, n: usize) -> Result<Self, Misfit> {
        algorithm.check(Kind::AllReduce, n)?;
        Self::of(algorithm, Kind::AllReduce, 0, n, algorithm.even_elements(n))
    }

    /// Counts those messages of such an all-reduce that wait for one member: what it sends and receives, and what others make of its
    /// values. What is left when that member comes last, and the others have done all that they can without it (Devraj et al.,
    /// arXiv 2505.23523, have them reduce and scatter meanwhile).
    pub fn of_last(algorithm: &Algorithm, n: usize, last: usize) -> Result<Self, Misfit> {
        algorithm.check(Kind::AllReduce, n)?;
        let elements = algorithm.even_elements(n);
        let has = |member: usize| BTreeMap::from([(0, usize::from(member == last))]);
        let mut waiting = Waiting { counter: Counter::new(n), last, has: (0..n).map(has).collect() };
        algorithm.weave(Kind::AllReduce, 0, &Call::new(n, elements), &mut waiting)?;
        Ok(waiting.counter.counts(elements))
    }
}

#[derive(Default)]
struct Sum {
    elements: usize,
    messages: usize,
    reduced: usize,
}

struct Counter {
    flows: BTreeMap<(Stage, usize, usize), Sum>,
    stage: Stage,
    /// By member, in the cycle: how many messages the values of its slice have crossed, by the start of these values.
    arrived: Vec<BTreeMap<usize, usize>>,
    depth: usize,
}

impl Counter {
    fn new(n: usize) -> Self {
        Self {
            flows: BTreeMap::new(),
            stage: Stage::Cycle,
            arrived: vec![BTreeMap::from([(0, 0)]); n],
            depth: 0,
        }
    }

    fn counts(self, elements: usize) -> Counts {
        let flows = self.flows.into_iter();
        let flow = |((stage, from, to), sum): ((Stage, usize, usize), Sum)| Flow {
            from,
            to,
            stage,
            elements: sum.elements,
            messages: sum.messages,
            reduced: sum.reduced,
        };
        Counts { elements, flows: flows.map(flow).collect(), depth: self.depth }
    }

    fn count(&mut self, from: usize, to: usize, elements: usize, reduces: bool) {
        let sum = self.flows.entry((self.stage, from, to)).or_default();
        sum.elements += elements;
        sum.messages += 1;
        sum.reduced += if reduces { elements } else { 0 };
    }
}

/// The largest number of messages that any value of a part has crossed.
fn deepest(arrived: &BTreeMap<usize, usize>, part: &Range<usize>) -> usize {
    let first = arrived.range(..=part.start).next_back().map_or(0, |(_, depth)| *depth);
    arrived.range(part.start..part.end).map(|(_, depth)| *depth).fold(first, usize::max)
}

/// Records that values of a part have crossed at least this many messages.
fn deepen(arrived: &mut BTreeMap<usize, usize>, part: &Range<usize>, depth: usize) {
    for edge in [part.start, part.end] {
        let before = arrived.range(..=edge).next_back().map_or(0, |(_, depth)| *depth);
        arrived.entry(edge).or_insert(before);
    }
    for (_, known) in arrived.range_mut(part.start..part.end) {
        *known = depth.max(*known);
    }
}

impl Weave for Counter {
    fn message(&mut self, from: usize, to: usize, part: &Range<usize>, reduces: bool) {
        self.count(from, to, part.len(), reduces);
        if self.stage == Stage::Cycle {
            let depth = deepest(&self.arrived[from], part) + 1;
            deepen(&mut self.arrived[to], part, depth);
            self.depth = self.depth.max(depth);
        }
    }

    fn complete(&mut self, _: usize, _: &Range<usize>) {}

    fn exchange(&mut self, from: usize, part: &Range<usize>, to: usize, _: &Range<usize>) {
        if from != to {
            self.count(from, to, part.len(), false);
            self.depth = self.depth.max(1);
        }
    }

    fn stage(&mut self, stage: Stage) {
        self.stage = stage;
    }
}

/// Counts the messages that wait for one member.
struct Waiting {
    counter: Counter,
    last: usize,
    /// By member: 1 where its slice has that member's values, by the start of these parts.
    has: Vec<BTreeMap<usize, usize>>,
}

impl Weave for Waiting {
    fn message(&mut self, from: usize, to: usize, part: &Range<usize>, reduces: bool) {
        let carries = deepest(&self.has[from], part);
        if carries > 0 || from == self.last || to == self.last {
            self.counter.message(from, to, part, reduces);
        }
        deepen(&mut self.has[to], part, carries);
    }

    fn complete(&mut self, _: usize, _: &Range<usize>) {}

    fn exchange(&mut self, _: usize, _: &Range<usize>, _: usize, _: &Range<usize>) {}

    fn stage(&mut self, stage: Stage) {
        self.counter.stage(stage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, fitting};
    use proptest::prelude::*;

    /// Every algorithm of the list that fits `n` members on one host, or on two; and owners.
    fn all(n: usize) -> Vec<Algorithm> {
        let half = n.div_ceil(2);
        let halves: Vec<u32> = (0..n).map(|member| u32::from(member >= half)).collect();
        let fit = |hosts: &[u32]| fitting(Kind::AllReduce, &Group { hosts, racks: &halves });
        let mut found: Vec<Algorithm> =
            [fit(&vec![0; n]), fit(&halves)].concat().into_iter().map(|fit| fit.algorithm).collect();
        found.push(Algorithm::ParameterServer { servers: half as u32 });
        let shares = (0..n as u32).chain((0..n as u32).rev()).map(|share| share + u32::from(n == 1));
        found.push(Algorithm::CollectSpread { shares: shares.collect() });
        // Up a chain to each member and down a star, with unequal weights.
        let tree = |root: usize| {
            let up = (0..n).map(move |member| if member == root { root } else { (member + 1) % n });
            let star = std::iter::repeat_n(root, n);
            [root % 3 + 1].into_iter().chain(up).chain(star).map(|number| number as u32)
        };
        found.push(Algorithm::Trees { numbers: (0..n).flat_map(tree).collect() });
        found
    }

    /// A member's contributions to each element, as sets: an all-reduce must combine all of them.
    struct Sets {
        have: Vec<Vec<u64>>,
        doubled: bool,
    }

    impl Weave for Sets {
        fn message(&mut self, from: usize, to: usize, part: &Range<usize>, reduces: bool) {
            for at in part.clone() {
                let sent = self.have[from][at];
                self.doubled |= reduces && sent & self.have[to][at] != 0;
                self.have[to][at] = if reduces { sent | self.have[to][at] } else { sent };
            }
        }
        fn complete(&mut self, member: usize, part: &Range<usize>) {
            let all = (1 << self.have.len()) - 1;
            self.doubled |= part.clone().any(|at| self.have[member][at] != all);
        }
        fn exchange(&mut self, _: usize, _: &Range<usize>, _: usize, _: &Range<usize>) {}
    }

    proptest! {
        /// Broken: an algorithm would lose or double a contribution, or scale an incomplete result.
        #[test]
        fn every_all_reduce_joins_each_contribution_once(n in 1_usize..20, elements in 0_usize..100, which in any::<prop::sample::Index>()) {
            let algorithm = which.get(&all(n)).clone();
            let mut sets = Sets { have: (0..n).map(|member| vec![1 << member; elements]).collect(), doubled: false };
            algorithm.weave(Kind::AllReduce, 0, &Call::new(n, elements), &mut sets).expect("it fits");
            prop_assert!(!sets.doubled);
            prop_assert!(sets.have.iter().flatten().all(|&set| set == (1 << n) - 1));
        }

        /// Broken: shares of an even length would differ from those of any length.
        #[test]
        fn even_counts_are_shares(n in 2_usize..20, which in any::<prop::sample::Index>(), times in 1_usize..50) {
            let algorithm = which.get(&all(n)).clone();
            let even = Counts::of_all_reduce(&algorithm, n).expect("it fits");
            let whole = Counts::of(&algorithm, Kind::AllReduce, 0, n, even.elements * times).expect("it fits");
            prop_assert_eq!(even.depth, whole.depth);
            let scaled = even.flows.iter().map(|flow| Flow { elements: flow.elements * times, reduced: flow.reduced * times, ..*flow });
            prop_assert_eq!(scaled.collect::<Vec<_>>(), whole.flows);
        }
    }

    fn depth(algorithm: &Algorithm, n: usize) -> usize {
        Counts::of_all_reduce(algorithm, n).expect("it fits").depth
    }

    /// Broken: small messages would be judged by more or fewer rounds than they take.
    #[test]
    fn depths_are_those_of_the_papers() {
        assert_eq!(depth(&Algorithm::Ring, 8), 14);
        assert_eq!(depth(&Algorithm::Direct, 8), 2);
        assert_eq!(depth(&Algorithm::HalvingDoubling, 8), 6);
        assert_eq!(depth(&Algorithm::Bcube { base: 4 }, 16), 4);
        assert_eq!(depth(&Algorithm::DoubleBinaryTree, 8), 2 * crate::tree_depth(8) as usize);
        // Only the leaders' ring.
        assert_eq!(depth(&Algorithm::TwoLevel { sizes: vec![4, 4] }, 8), 2);
    }

    /// Broken: a plan for a rank that comes last would be predicted as if the others did nothing meanwhile, or its own part either.
    #[test]
    fn only_what_waits_for_the_last_member_is_left() {
        let carried = |algorithm: &Algorithm, last: usize| -> (Vec<f64>, Vec<f64>) {
            let counts = Counts::of_last(algorithm, 8, last).expect("it fits");
            let mut carried = (vec![0.0; 8], vec![0.0; 8]);
            for flow in &counts.flows {
                let share = flow.elements as f64 / counts.elements as f64;
                carried.0[flow.from] += share;
                carried.1[flow.to] += share;
            }
            carried
        };
        // Around a ring, all that it sends and receives; of the farthest neighbour's, sums that its values are in.
        let (sent, _) = carried(&Algorithm::Ring, 3);
        assert_eq!(sent[1..4], [1.0, 14.0 / 8.0, 14.0 / 8.0]);
        // It owns nothing: what is left is its values out, and the sum into each.
        let apart = Algorithm::CollectSpread { shares: [[1, 1, 1, 0, 1, 1, 1, 1]; 2].concat() };
        let (sent, received) = carried(&apart, 3);
        assert!(
            sent.iter().chain(&received).all(|share| (share - 1.0).abs() < 1e-9),
            "{sent:?} {received:?}"
        );
        for algorithm in all(8) {
            let (whole, left) = (Counts::of_all_reduce(&algorithm, 8), Counts::of_last(&algorithm, 8, 5));
            let sum = |counts: &Counts| counts.flows.iter().map(|flow| flow.elements).sum::<usize>();
            assert!(sum(&left.expect("it fits")) <= sum(&whole.expect("it fits")), "{algorithm:?}");
        }
    }

    /// Broken: an impossible collective would be counted as if it were free.
    #[test]
    fn what_does_not_fit_is_refused() {
        let sizes = vec![2, 3];
        let refused = Counts::of_all_reduce(&Algorithm::TwoLevel { sizes: sizes.clone() }, 4).unwrap_err();
        assert_eq!(refused, Misfit::Sizes { sizes, members: 4 });
        let refused = Counts::of_all_reduce(&Algorithm::ParameterServer { servers: 0 }, 4).unwrap_err();
        assert_eq!(refused, Misfit::Servers { servers: 0, members: 4 });
        assert!(Counts::of_all_reduce(&Algorithm::RecursiveDoubling, 4).is_err());
        assert!(Counts::of(&Algorithm::HalvingDoubling, Kind::AllGather, 0, 6, 6).is_err());
    }
}
