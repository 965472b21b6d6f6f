//! The cost of a collective in an order, updated while the order changes: the time of its pairs alone, or of the
//! busiest shared link.

mod incremental;
mod loads;
mod ring;
mod rounds;
mod tallest;
mod tree;
mod two_level;

use crate::model::{Model, ModelError, check_order};
use crate::pairs::Pairs;
use hocket_algorithms::Algorithm;
use incremental::Cost;
use loads::Loads;
pub(crate) use loads::phases;
pub(crate) use ring::{RingCost, ring_s};
use rounds::RoundsCost;
pub(crate) use rounds::rounds;
use tree::TreeCost;
use two_level::TwoLevelCost;

/// The cost of an order, incrementally.
pub struct Evaluator<'a> {
    alone: Box<dyn Cost + Send + 'a>,
    loads: Option<Loads<'a>>,
    hosts: usize,
}

impl<'a> Evaluator<'a> {
    /// For a model that fits the network; call [`Self::rebuild`] before anything else.
    pub fn new(pairs: &'a Pairs, model: &'a Model) -> Result<Self, ModelError> {
        model.check(pairs.hosts())?;
        let alone: Box<dyn Cost + Send + 'a> = match &model.algorithm {
            Algorithm::Ring => Box::new(RingCost::new(pairs, model.bytes)),
            Algorithm::DoubleBinaryTree => Box::new(TreeCost::new(pairs, model)),
            Algorithm::TwoLevel { sizes } => Box::new(TwoLevelCost::new(pairs, model, sizes)),
            _ => Box::new(RoundsCost::new(pairs, rounds(model, pairs.hosts()))),
        };
        let loads = pairs.shared().map(|shared| Loads::new(shared, model, pairs.hosts()));
        Ok(Self { alone, loads, hosts: pairs.hosts() })
    }

    /// Evaluates the whole order.
    pub fn rebuild(&mut self, order: &[u32]) {
        self.alone.rebuild(order);
        if let Some(loads) = &mut self.loads {
            loads.rebuild(order);
        }
    }

    /// Evaluates ranks whose host changed, each named once.
    pub fn update(&mut self, order: &[u32], changed: &[u32]) {
        // Above a share of all ranks, looking each up costs more than going through all in a row.
        if changed.len() * 4 > self.hosts {
            self.rebuild(order);
        } else {
            self.follow(order, changed);
        }
    }

    fn follow(&mut self, order: &[u32], changed: &[u32]) {
        self.alone.update(order, changed);
        if let Some(loads) = &mut self.loads {
            loads.update(order, changed);
        }
    }

    /// Seconds that the collective takes.
    pub fn cost(&self) -> f64 {
        self.loads.as_ref().map_or(0.0, Loads::busiest_s).max(self.alone.cost())
    }

    /// Cost and guide: among orders of equal cost, the one that burdens links least is better.
    pub(crate) fn rank(&self) -> Rank {
        Rank { cost_s: self.cost(), guide_s: self.guide() }
    }

    /// The cost with means in place of maxima.
    pub(crate) fn guide(&self) -> f64 {
        self.alone.guide() + self.loads.as_ref().map_or(0.0, Loads::mean_s)
    }
}

/// How good an order is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rank {
    pub cost_s: f64,
    pub guide_s: f64,
}

impl Rank {
    /// Costs within this part of each other are the same but for rounding.
    const SAME: f64 = 1e-12;

    /// The value before any order.
    pub fn worst() -> Self {
        Self { cost_s: f64::INFINITY, guide_s: f64::INFINITY }
    }

    /// Costs less, or as much with a lower guide.
    pub fn beats(self, other: Self) -> bool {
        let (least, most) = (1.0 - Self::SAME, 1.0 + Self::SAME);
        self.cost_s < other.cost_s * least
            || (self.cost_s <= other.cost_s * most && self.guide_s < other.guide_s * least)
    }
}

/// Seconds that the collective takes in an order.
pub fn evaluate(pairs: &Pairs, model: &Model, order: &[u32]) -> Result<f64, ModelError> {
    check_order(order, pairs.hosts())?;
    let mut evaluator = Evaluator::new(pairs, model)?;
    evaluator.rebuild(order);
    Ok(evaluator.cost())
}

#[cfg(test)]
pub(crate) mod tests;
