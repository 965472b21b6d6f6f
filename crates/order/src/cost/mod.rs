//! What a collective costs in an order, kept up to date while the order changes.

mod ring;
mod rounds;
mod tallest;
mod tree;
mod two_level;

use crate::model::{Algorithm, Model, ModelError, check_order};
use crate::network::Network;
pub(crate) use ring::{RingCost, ring_s};
use rounds::RoundsCost;
pub(crate) use rounds::{radices, rounds};
use tree::TreeCost;
pub(crate) use tree::depth as tree_depth;
use two_level::TwoLevelCost;

/// One model on one network. After a change of the order, `update` is told which ranks have another host.
trait Cost {
    /// Everything anew.
    fn rebuild(&mut self, order: &[u32]);
    /// `order` differs from the last one at `changed` ranks, each named once.
    fn update(&mut self, order: &[u32], changed: &[u32]);
    /// Seconds.
    fn cost(&self) -> f64;
    /// Also seconds, and moved by every change: what the cost would be if means stood where it has maxima. A search that
    /// follows the cost alone sees plains, since most changes do not touch what is slowest.
    fn guide(&self) -> f64;
}

/// The cost of an order, incrementally.
pub struct Evaluator<'a> {
    inner: Box<dyn Cost + Send + 'a>,
    hosts: usize,
}

impl<'a> Evaluator<'a> {
    /// For a model that fits the network; call [`Self::rebuild`] before anything else.
    pub fn new(network: &'a Network, model: &'a Model) -> Result<Self, ModelError> {
        model.check(network.hosts())?;
        let inner: Box<dyn Cost + Send + 'a> = match &model.algorithm {
            Algorithm::Ring => Box::new(RingCost::new(network, model.bytes)),
            Algorithm::DoubleBinaryTree => Box::new(TreeCost::new(network, model)),
            Algorithm::TwoLevel { sizes } => Box::new(TwoLevelCost::new(network, model, sizes)),
            Algorithm::HalvingDoubling | Algorithm::RecursiveDoubling | Algorithm::Bcube { .. } => {
                Box::new(RoundsCost::new(network, rounds(model, network.hosts())))
            }
        };
        Ok(Self { inner, hosts: network.hosts() })
    }

    /// Looks at the whole order.
    pub fn rebuild(&mut self, order: &[u32]) {
        self.inner.rebuild(order);
    }

    /// Looks at ranks whose host is another one than before, each named once.
    pub fn update(&mut self, order: &[u32], changed: &[u32]) {
        // Beyond a part of all ranks, looking each up costs more than looking at all in a row.
        if changed.len() * 4 > self.hosts {
            self.inner.rebuild(order);
        } else {
            self.inner.update(order, changed);
        }
    }

    /// Seconds that the collective takes.
    pub fn cost(&self) -> f64 {
        self.inner.cost()
    }

    /// The cost with means for maxima.
    pub(crate) fn guide(&self) -> f64 {
        self.inner.guide()
    }
}

/// Seconds that the collective takes in an order.
pub fn evaluate(network: &Network, model: &Model, order: &[u32]) -> Result<f64, ModelError> {
    check_order(order, network.hosts())?;
    let mut evaluator = Evaluator::new(network, model)?;
    evaluator.rebuild(order);
    Ok(evaluator.cost())
}

#[cfg(test)]
mod tests;
