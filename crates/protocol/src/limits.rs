//! The longest wait, for all that users, settings and members' messages ask for.

use std::time::Duration;

/// Seconds: longer than any sum of settings, and far from what clocks cannot count.
pub const TIMEOUT_MAX_S: f64 = 1e10;

/// A wait of so many seconds, [`TIMEOUT_MAX_S`] at most, so that deadlines can be computed with it. `None`: negative, or
/// no number.
pub fn patience(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(if seconds > TIMEOUT_MAX_S { TIMEOUT_MAX_S } else { seconds }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A deadline beyond what the system counts would be a panic of a thread that others wait for.
    #[test]
    fn no_wait_is_longer_than_clocks_count() {
        let longest = Duration::from_secs(10_000_000_000);
        for seconds in [1e10, 1e18, f64::MAX, f64::INFINITY] {
            assert_eq!(patience(seconds), Some(longest));
        }
        assert!(Instant::now().checked_add(4 * longest).is_some());
        assert_eq!(patience(0.25), Some(Duration::from_millis(250)));
        assert!([-1.0, f64::NAN, f64::NEG_INFINITY].into_iter().all(|seconds| patience(seconds).is_none()));
    }
}
