//! Which buckets travel in a window of computation: knapsacks whose items become ready while the window passes.
//!
//! Times are whole ticks, so that optima are exact and the work is bounded: [`Ticks`] cuts a step into 65,536 of them, rounds what
//! a bucket needs up and what a window offers down. What fits in ticks also fits in seconds.

mod greedy;
mod pack;
mod recursive;

pub use greedy::greedy;
pub use pack::{BUDGET, LINKS_MAX, Packing, pack};
pub(crate) use recursive::naive;
pub use recursive::{Chosen, recursive};

/// A bucket that could travel, in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// After the window began.
    pub ready: u32,
    /// By link: what it takes there. What a link cannot carry takes longer than the window.
    pub busy: Vec<u32>,
    /// What it is worth; in DeFT, its time on the fastest link.
    pub profit: u32,
}

/// Ticks of a step.
pub const STEP_TICKS: u32 = 65_536;

/// Seconds as whole ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticks {
    tick_s: f64,
}

impl Ticks {
    /// Of a step of so many seconds.
    pub fn of_step(step_s: f64) -> Self {
        Self { tick_s: step_s / f64::from(STEP_TICKS) }
    }

    /// What a bucket needs: rounded up.
    pub fn needed(self, time_s: f64) -> u32 {
        // Shares of a step that are whole but for rounding stay so.
        (time_s / self.tick_s - 1e-6).ceil().clamp(0.0, u32::MAX.into()) as u32
    }

    /// What a window offers: rounded down.
    pub fn offered(self, time_s: f64) -> u32 {
        (time_s / self.tick_s + 1e-6).floor().clamp(0.0, u32::MAX.into()) as u32
    }
}

#[cfg(test)]
mod tests;
