//! The interface of every cost that is computed from pairs.

/// One model on one network. After a change of the order, `update` receives the ranks that changed hosts.
pub trait Cost {
    /// Computes everything from scratch.
    fn rebuild(&mut self, order: &[u32]);
    /// `order` differs from the last one at `changed` ranks, each named once.
    fn update(&mut self, order: &[u32], changed: &[u32]);
    /// Seconds.
    fn cost(&self) -> f64;
    /// Also seconds, and affected by every change: the cost with means in place of its maxima. The cost alone has
    /// plateaus for a search, since most changes do not touch the slowest element.
    fn guide(&self) -> f64;
}
