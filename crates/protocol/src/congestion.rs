//! Whether a connection loses by chance rather than for its own queue: then a control that takes every loss for congestion starves.
//!
//! CUBIC sends about 1.2 segments / √loss each round trip (Mathis et al., 1997): at 1 % and 40 ms, 0.4 MB/s of any link. A loss
//! that our own queue causes comes when that queue delays: the round trip is then well above its shortest. BBR asks how fast
//! bytes arrive instead, and so bears chance; it is left alone on links that lose for queues, of which it makes uneven use.

use std::time::Duration;

/// How often a busy connection is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Share of segments that were sent again.
const LOSS_MIN: f64 = 0.002;
/// A round trip within so much of the shortest has no queue of ours on its way.
const UNQUEUED: f64 = 1.25;
/// On shorter ways a window is regained faster than chance takes it.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(2);
/// Segments that a verdict is made of.
const SEGMENTS_MIN: u64 = 256;

/// The system's figures of a connection, since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// When, by any clock that does not jump.
    pub at: Duration,
    /// Segments that were sent, those again included.
    pub sent: u64,
    /// Segments that were sent again.
    pub again: u64,
    /// Smoothed.
    pub round_trip: Duration,
    /// Shortest of the last minutes.
    pub shortest: Duration,
    /// By the peer.
    pub acknowledged_bytes: u64,
    /// From the peer.
    pub received_bytes: u64,
    /// How long something was on its way.
    pub busy: Duration,
}

/// Of one connection.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    sent: u64,
    again: u64,
    /// Segments and losses of looks at which nothing was queued.
    by_chance: [u64; 2],
    decided: bool,
}

impl Losses {
    /// Whether chance takes more than the connection bears; once.
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
        // A few losses that were known only when the queue had gone are no verdict either.
        assert!(!losses.handle_look(&look(5000, 260, 21)));
    }

    /// Within a data centre, or without losses, nothing is to be changed.
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
