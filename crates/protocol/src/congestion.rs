//! Detects random losses, which are not caused by the connection's own queue: a congestion control that takes every
//! loss for congestion then starves.
//!
//! CUBIC sends about 1.2 segments / √loss per round trip (Mathis et al., 1997): at 1 % and 40 ms, 0.4 MB/s of any link.
//! A loss that our own queue causes comes with delay: the round trip is then well above its shortest. BBR measures the
//! delivery rate instead and so tolerates random losses; it is not used on links that lose because of queues, which it
//! shares unevenly. On long paths it is used from the start: CUBIC takes seconds to fill one, and begins anew after each
//! pause (`tcp_slow_start_after_idle`).

use std::time::Duration;

/// The most connections that share a path of their own accord.
pub const STREAMS_MAX: usize = 16;
/// From this round trip on, such a path has several connections where none can bear losses: at 1 % each gets 1.7 MB/s.
const SEVERAL_FROM: Duration = Duration::from_millis(10);
/// From this round trip on, a path is long. On a trunk of 100 Mbit/s without losses, both directions busy, BBR and CUBIC got
/// 0.70 and 0.97 of its rate at 5 ms, 0.93 and 0.97 at 20 ms, 0.97 and 0.91 at 50 ms (25 MB at a time, pauses of 0.3 s).
const LONG_FROM: Duration = Duration::from_millis(30);

/// Whether a path needs a congestion control that tolerates losses from the start.
pub fn is_long(round_trip: Duration) -> bool {
    round_trip >= LONG_FROM
}

/// How many connections a path is to have. `bears`: whether a connection can change to a congestion control that tolerates
/// random losses; otherwise each is as slow as they make it, and many get as many times that.
pub fn streams(round_trip: Duration, bears: bool) -> usize {
    if bears || round_trip < SEVERAL_FROM { 1 } else { STREAMS_MAX }
}

/// How a connection stands to random losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bearing {
    /// It takes every loss for congestion, and has no reason to do otherwise.
    #[default]
    Plain,
    /// It tolerates them.
    Bears,
    /// It should, and the system has no congestion control that does, or does not allow it.
    Refused,
}

impl Bearing {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Bears => "bears",
            Self::Refused => "refused",
        }
    }
}

/// Interval at which a busy connection is sampled.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Share of segments sent again.
const LOSS_MIN: f64 = 0.002;
/// A round trip within this factor of the shortest has no queue of ours on its path.
const UNQUEUED: f64 = 1.25;
/// On shorter paths, the window recovers faster than random losses shrink it.
pub const ROUND_TRIP_MIN: Duration = Duration::from_millis(2);
/// Segments needed for a verdict.
const SEGMENTS_MIN: u64 = 256;

/// The system's totals of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// The time, on any clock that does not jump.
    pub at: Duration,
    /// Data segments sent, retransmissions included.
    pub sent: u64,
    /// Segments sent again.
    pub again: u64,
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Shortest round trip of the last minutes.
    pub shortest: Duration,
    /// Acknowledged by the peer.
    pub acknowledged_bytes: u64,
    /// Received from the peer.
    pub received_bytes: u64,
    /// Time with data in flight.
    pub busy: Duration,
}

/// State of one connection.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    sent: u64,
    again: u64,
    /// Segments and losses of the samples without a queue.
    by_chance: [u64; 2],
    decided: bool,
}

impl Losses {
    /// The verdict is known: the connection bears losses, or cannot.
    pub fn decide(&mut self) {
        self.decided = true;
    }

    /// Whether random losses exceed what the connection tolerates; true at most once.
    pub fn handle_look(&mut self, look: &Look) -> bool {
        let (sent, again) = (look.sent.saturating_sub(self.sent), look.again.saturating_sub(self.again));
        (self.sent, self.again) = (look.sent, look.again);
        if self.decided || sent == 0 {
            return false;
        }
        let queued = look.round_trip > look.shortest.mul_f64(UNQUEUED);
        if queued || look.shortest < ROUND_TRIP_MIN {
            self.by_chance = [0; 2];
            return false;
        }
        self.by_chance[0] += sent;
        self.by_chance[1] += again;
        let [sent, again] = self.by_chance;
        self.decided = sent >= SEGMENTS_MIN && again as f64 >= LOSS_MIN * sent as f64;
        self.decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(sent: u64, again: u64, round_trip_ms: u64) -> Look {
        let shortest = Duration::from_millis(20);
        let round_trip = Duration::from_millis(round_trip_ms);
        Look { sent, again, round_trip, shortest, ..Look::default() }
    }

    /// A job between two sites would train at the speed of a modem.
    #[test]
    fn losses_without_a_queue_are_chance_once() {
        let mut losses = Losses::default();
        assert!(!losses.handle_look(&look(100, 1, 21)));
        assert!(losses.handle_look(&look(300, 3, 21)));
        assert!(!losses.handle_look(&look(900, 9, 21)));
    }

    /// Links that lose because we fill them would be shared unevenly.
    #[test]
    fn losses_of_a_full_queue_are_not() {
        let mut losses = Losses::default();
        for step in 1..50 {
            assert!(!losses.handle_look(&look(step * 100, step * 5, 70)));
        }
        // A few losses that the system reports only after the queue is gone are no verdict either.
        assert!(!losses.handle_look(&look(5000, 260, 21)));
    }

    /// A path between continents would be as slow as a modem until enough was lost, or have one connection where only many
    /// together fill it.
    #[test]
    fn long_paths_are_known_by_their_round_trips() {
        let ms = Duration::from_millis;
        assert_eq!([0, 1, 20, 50, 200].map(|each| is_long(ms(each))), [false, false, false, true, true]);
        assert_eq!([0, 1, 20, 50, 200].map(|each| streams(ms(each), false)), [1, 1, 16, 16, 16]);
        assert!([0, 20, 200].into_iter().all(|each| streams(ms(each), true) == 1));
        let mut losses = Losses::default();
        losses.decide();
        assert!(!losses.handle_look(&look(900, 90, 21)));
    }

    /// Within a data centre, or without losses, nothing should change.
    #[test]
    fn short_ways_and_whole_ones_are_left_alone() {
        let mut losses = Losses::default();
        for step in 1..50 {
            let near = Duration::from_micros(200);
            assert!(!losses.handle_look(&Look {
                round_trip: near,
                shortest: near,
                ..look(step * 100, step * 5, 0)
            }));
        }
        let mut losses = Losses::default();
        for step in 1..50 {
            assert!(!losses.handle_look(&look(step * 1000, 0, 20)));
        }
    }
}
