//! The maximum of many numbers that change one by one: a tournament with `log n` matches per change.

/// Numbers, all 0 at first, and their maximum.
#[derive(Clone, Debug)]
pub struct Tallest {
    leaves: usize,
    /// A heap: winners of matches, the numbers themselves in the second half.
    values: Vec<f64>,
}

impl Tallest {
    /// For this many numbers, none of which is negative.
    pub fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        Self { leaves, values: vec![0.0; 2 * leaves] }
    }

    /// Number `at`.
    pub fn get(&self, at: usize) -> f64 {
        self.values[self.leaves + at]
    }

    /// Replaces number `at`.
    pub fn set(&mut self, at: usize, value: f64) {
        let mut node = self.leaves + at;
        self.values[node] = value;
        while node > 1 {
            let winner = self.values[node].max(self.values[node ^ 1]);
            node /= 2;
            if self.values[node].to_bits() == winner.to_bits() {
                return;
            }
            self.values[node] = winner;
        }
    }

    /// Replaces all by `value(at)` for each `at < count`.
    pub fn fill(&mut self, count: usize, value: impl Fn(usize) -> f64) {
        for at in 0..count {
            self.values[self.leaves + at] = value(at);
        }
        for node in (1..self.leaves).rev() {
            self.values[node] = self.values[2 * node].max(self.values[2 * node + 1]);
        }
    }

    /// The maximum; 0 when there are none.
    pub fn max(&self) -> f64 {
        self.values[1]
    }
}
