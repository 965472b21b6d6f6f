//! Algorithms of rounds: in each round all pairs exchange equal numbers of bytes, and the next begins when the slowest
//! pair is done, so the cost is the sum over rounds of the longest message time. Halving-doubling, recursive doubling
//! (Thakur, Rabenseifner and Gropp 2005) and `BCube` (Guo et al. 2009), with the partners of the respective libraries.

use super::incremental::Cost;
use super::tallest::Tallest;
use crate::model::{First, Model};
use crate::pairs::Pairs;
use hocket_algorithms::{Algorithm, radices};

/// Pairs of ranks that exchange messages which take as long as `bytes` alone, `times` times in all, there and back. In
/// all, each direction of a pair carries `carried_bytes`.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    pub bytes: f64,
    pub times: f64,
    pub carried_bytes: f64,
    pub pairs: Vec<(u32, u32)>,
}

/// The rounds of a model among `n` ranks; algorithms of another kind have none.
pub fn rounds(model: &Model, n: usize) -> Vec<Round> {
    match &model.algorithm {
        Algorithm::HalvingDoubling => folded(n, model.bytes, |radices| {
            exchanges(radices, model.first, |round, _| model.bytes / f64::from(2_u32 << round), 2.0)
        }),
        Algorithm::RecursiveDoubling => {
            folded(n, model.bytes, |radices| exchanges(radices, First::Near, |_, _| model.bytes, 1.0))
        }
        Algorithm::Bcube { base } => {
            exchanges(&radices(n, *base as usize), model.first, |_, span| model.bytes / span as f64, 2.0)
        }
        _ => Vec::new(),
    }
}

/// Rounds among a power of two of ranks; each rank beyond it passes its values to the rank before, and gets the result
/// from it.
fn folded(n: usize, bytes: f64, core: impl Fn(&[usize]) -> Vec<Round>) -> Vec<Round> {
    let power = if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 };
    let extra = n - power;
    let active: Vec<u32> =
        (0..n).filter(|&rank| rank >= 2 * extra || rank % 2 == 0).map(|rank| rank as u32).collect();
    let mut found = core(&radices(power, 2));
    for pair in found.iter_mut().flat_map(|round| &mut round.pairs) {
        *pair = (active[pair.0 as usize], active[pair.1 as usize]);
    }
    if extra > 0 {
        let pairs = (0..extra as u32).map(|pair| (2 * pair, 2 * pair + 1)).collect();
        found.push(Round { bytes, times: 2.0, carried_bytes: bytes, pairs });
    }
    found
}

/// One round per digit; `bytes`, of one message, receives the round's number and the product of the radices so far.
fn exchanges(radices: &[usize], first: First, bytes: impl Fn(u32, usize) -> f64, times: f64) -> Vec<Round> {
    let n: usize = radices.iter().product();
    let (mut found, mut span) = (Vec::new(), 1);
    for (round, &radix) in radices.iter().enumerate() {
        let stride = match first {
            First::Near => span,
            First::Far => n / span / radix,
        };
        span *= radix;
        let higher = |low: usize| (1..radix).map(move |step| low + step * stride);
        let pairs = (0..n)
            .flat_map(|low| higher(low).map(move |high| (low, high)))
            .filter(|(low, high)| high / stride / radix == low / stride / radix)
            .map(|(low, high)| (low as u32, high as u32))
            .collect();
        let each_bytes = bytes(round as u32, span);
        // A rank's messages of one round share its link.
        let bytes = each_bytes * (radix - 1) as f64;
        found.push(Round { bytes, times, carried_bytes: times * each_bytes, pairs });
    }
    found
}

/// The cost of rounds.
pub struct RoundsCost<'a> {
    pairs: &'a Pairs,
    rounds: Vec<Round>,
    slowest: Vec<Tallest>,
    sums_s: Vec<f64>,
    /// By rank: the round and pair of each of its exchanges.
    exchanges: Vec<Vec<(u32, u32)>>,
}

impl<'a> RoundsCost<'a> {
    pub fn new(pairs: &'a Pairs, rounds: Vec<Round>) -> Self {
        let mut exchanges = vec![Vec::new(); pairs.hosts()];
        for (at, round) in rounds.iter().enumerate() {
            for (pair, &(a, b)) in round.pairs.iter().enumerate() {
                exchanges[a as usize].push((at as u32, pair as u32));
                exchanges[b as usize].push((at as u32, pair as u32));
            }
        }
        let slowest = rounds.iter().map(|round| Tallest::new(round.pairs.len())).collect();
        Self { pairs, sums_s: vec![0.0; rounds.len()], rounds, slowest, exchanges }
    }

    fn look(&mut self, order: &[u32], round: usize, pair: usize) {
        let Round { bytes, pairs, .. } = &self.rounds[round];
        let (a, b) = pairs[pair];
        let time_s = self.pairs.message_s(order[a as usize], order[b as usize], *bytes);
        self.sums_s[round] += time_s - self.slowest[round].get(pair);
        self.slowest[round].set(pair, time_s);
    }
}

impl Cost for RoundsCost<'_> {
    fn rebuild(&mut self, order: &[u32]) {
        for ((round, slowest), sum_s) in self.rounds.iter().zip(&mut self.slowest).zip(&mut self.sums_s) {
            let time_s = |pair: usize| {
                let (a, b) = round.pairs[pair];
                self.pairs.message_s(order[a as usize], order[b as usize], round.bytes)
            };
            slowest.fill(round.pairs.len(), time_s);
            *sum_s = (0..round.pairs.len()).map(|pair| slowest.get(pair)).sum();
        }
    }

    fn update(&mut self, order: &[u32], changed: &[u32]) {
        for &rank in changed {
            for at in 0..self.exchanges[rank as usize].len() {
                let (round, pair) = self.exchanges[rank as usize][at];
                self.look(order, round as usize, pair as usize);
            }
        }
    }

    fn cost(&self) -> f64 {
        self.rounds.iter().zip(&self.slowest).map(|(round, slowest)| round.times * slowest.max()).sum()
    }

    fn guide(&self) -> f64 {
        let mean = |(round, sum): (&Round, &f64)| round.times * sum / round.pairs.len() as f64;
        self.rounds.iter().zip(&self.sums_s).map(mean).sum()
    }
}
