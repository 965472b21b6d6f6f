//! What every cost of pairs can do.

/// One model on one network. After a change of the order, `update` is told which ranks have another host.
pub trait Cost {
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
