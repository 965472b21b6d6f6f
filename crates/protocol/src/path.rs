//! Detects that nothing reaches a peer's host any more.
//!
//! The kernel of a host acknowledges what arrives there, whatever its processes do: a rank that is stopped, swapped out or
//! starved by other work keeps its path, a rank whose cable is cut has none. So a path needs less patience than a process,
//! and how much follows from its own round trips. What is not acknowledged is sent again after TCP's time-out
//! (RFC 6298: the round trip and four deviations, [`RESENT_AFTER_MIN`] at least), then after twice that, and so on: after
//! three time-outs it has been sent three times. No I/O and no clock here: the caller passes what the kernel tells.

use std::time::Duration;

/// The shortest time after which Linux sends again (`TCP_RTO_MIN`).
const RESENT_AFTER_MIN: Duration = Duration::from_millis(200);
/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A longer time between two looks may be sleep of our own: it counts as so much.
const LOOK_MAX: Duration = Duration::from_millis(250);
/// Time-outs without an acknowledgement after which a path is given up.
pub const TIMEOUTS: u32 = 3;

/// What the kernel tells of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// When it told.
    pub at: Duration,
    /// Whether something is on its way to the peer, or waits to be sent again.
    pub unacknowledged: bool,
    /// The time since the last acknowledgement of anything.
    pub acknowledged_before: Duration,
    /// The smoothed round trip.
    pub round_trip: Duration,
    /// Its mean deviation.
    pub deviation: Duration,
}

/// State of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// The last look, while something is expected to be acknowledged.
    looked: Option<Duration>,
    silence: Duration,
}

impl Path {
    /// Something is sent at `now`, which the peer's host must acknowledge.
    pub fn expect(&mut self, now: Duration) {
        self.looked = Some(now);
        self.silence = Duration::ZERO;
    }

    /// Something has come from the peer, or nothing is expected of it.
    pub fn rest(&mut self) {
        *self = Self::default();
    }

    /// Whether it is time for [`Self::handle_look`].
    pub fn is_due(&self, now: Duration) -> bool {
        self.looked.is_some_and(|looked| now.saturating_sub(looked) >= LOOK_EVERY)
    }

    /// How long nothing has been acknowledged, if that is for `timeouts` of TCP's time-outs.
    pub fn handle_look(&mut self, look: &Look, timeouts: u32) -> Option<Duration> {
        let looked = self.looked.replace(look.at)?;
        let passed = look.at.saturating_sub(looked);
        if !look.unacknowledged {
            self.silence = Duration::ZERO;
        } else if look.acknowledged_before < passed {
            self.silence = look.acknowledged_before;
        } else {
            self.silence += passed.min(LOOK_MAX);
        }
        let resent_after = look.round_trip + RESENT_AFTER_MIN.max(4 * look.deviation);
        (self.silence >= timeouts * resent_after).then_some(self.silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Duration = Duration::from_millis(50);

    fn look(at: Duration, acknowledged_before: Duration) -> Look {
        let (round_trip, deviation) = (Duration::from_millis(1), Duration::from_micros(500));
        Look { at, unacknowledged: true, acknowledged_before, round_trip, deviation }
    }

    /// Looks until the path is given up, at most for `until`; returns when it was.
    fn run(path: &mut Path, until: Duration, told: impl Fn(Duration) -> Look) -> Option<Duration> {
        let mut now = Duration::ZERO;
        path.expect(now);
        while now < until {
            now += TICK;
            if path.handle_look(&told(now), TIMEOUTS).is_some() {
                return Some(now);
            }
        }
        None
    }

    /// The others would wait for a host that is cut off as long as for a process that computes.
    #[test]
    fn a_cut_path_is_given_up_after_three_time_outs() {
        let mut path = Path::default();
        let idle_before = Duration::from_secs(100);
        let lost = run(&mut path, Duration::from_secs(5), |now| look(now, idle_before + now));
        assert_eq!(lost, Some(Duration::from_millis(650)));
    }

    /// A path over continents, or one whose queue has just grown, would be given up while its acknowledgements are on
    /// their way.
    #[test]
    fn long_round_trips_are_borne() {
        let slow = |now| Look {
            round_trip: Duration::from_millis(300),
            deviation: Duration::from_millis(100),
            ..look(now, Duration::from_secs(100) + now)
        };
        let lost = run(&mut Path::default(), Duration::from_secs(5), slow);
        assert_eq!(lost, Some(Duration::from_millis(2_100)));
    }

    /// A stopped process, whose kernel acknowledges, would be given up as if its host were gone.
    #[test]
    fn who_acknowledges_and_says_nothing_keeps_the_path() {
        let until = Duration::from_secs(100);
        let answered = |now| Look { unacknowledged: false, ..look(now, Duration::from_secs(1)) };
        assert_eq!(run(&mut Path::default(), until, answered), None);
        // A window that is full: what we ask about it is acknowledged, what we send waits.
        assert_eq!(run(&mut Path::default(), until, |now| look(now, TICK / 2)), None);
    }

    /// A rank that was suspended itself would blame all others.
    #[test]
    fn our_own_sleep_is_not_silence() {
        let mut path = Path::default();
        path.expect(Duration::ZERO);
        let slept = Duration::from_secs(100);
        assert_eq!(path.handle_look(&look(slept, slept), TIMEOUTS), None);
    }

    /// What a path has borne once would count against it later.
    #[test]
    fn rest_ends_what_was_counted() {
        let mut path = Path::default();
        let cut = |now| look(now, Duration::from_secs(100) + now);
        for tick in 0..12 {
            assert_eq!(path.handle_look(&cut(TICK * tick), TIMEOUTS), None);
        }
        path.rest();
        assert_eq!(path.handle_look(&cut(TICK * 100), TIMEOUTS), None);
        assert_eq!(path.handle_look(&cut(TICK * 102), TIMEOUTS), None);
    }

    proptest! {
        /// However looks fall, no path is given up while acknowledgements come within two time-outs.
        #[test]
        fn a_path_that_carries_is_never_given_up(passes in prop::collection::vec((1u64..400, 0u64..400, any::<bool>()), 1..300)) {
            let (mut path, mut now) = (Path::default(), Duration::ZERO);
            path.expect(now);
            for (pass_ms, before_ms, unacknowledged) in passes {
                now += Duration::from_millis(pass_ms);
                let told = Look { unacknowledged, ..look(now, Duration::from_millis(before_ms)) };
                let before = path.silence;
                let lost = path.handle_look(&told, TIMEOUTS);
                if before_ms < pass_ms || !unacknowledged {
                    prop_assert_eq!(lost, None);
                } else if let Some(silence) = lost {
                    prop_assert!(silence >= Duration::from_millis(600) && silence <= before + LOOK_MAX);
                }
            }
        }
    }
}
