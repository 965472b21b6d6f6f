//! How much of a connection may be on its way at once, so that what it sends does not wait behind itself.
//!
//! TCP fills whatever buffer the narrowest link of a way has: tens of milliseconds that every word to a peer waits too, and in the end
//! losses. A connection that is seen to build such a queue gets a send buffer of its rate times the round trip that it should have:
//! what Vegas (Brakmo and Peterson, 1995) does with its window, as far as a program can. Where the queue stays, it is somebody
//! else's, and whoever gives way to it gets less and less: then the buffer is the system's again, for good.

use crate::congestion::Look;
use std::time::Duration;

/// A round trip of so much more than the shortest is too long.
const QUEUE_MAX: Duration = Duration::from_millis(25);
/// A rate is not known from less.
const BUSY_MIN: Duration = Duration::from_millis(40);
/// One frame and some of the next.
const BYTES_MIN: u64 = 128 * 1024;
/// Looks of which the fastest counts: a connection that waits for others is no slower for that.
const LOOKS: usize = 16;
/// Looks at which a queue may stay while we have given half away.
const PATIENCE: u32 = 20;
/// Buffers that differ by less are the same.
const STEP: f64 = 0.125;

/// What the send buffer of a connection is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// So many bytes.
    Bytes(u64),
    /// As the system thinks best.
    System,
}

/// Of one connection.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    acknowledged: u64,
    busy: Duration,
    /// Latest rates, byte/s.
    rates: [f64; LOOKS],
    looks: usize,
    bytes: Option<u64>,
    /// When we began to give way.
    first_rate: f64,
    long: u32,
    given_up: bool,
}

impl Backlog {
    /// What to change, if anything.
    pub fn handle_look(&mut self, look: &Look) -> Option<Buffer> {
        let acknowledged = look.acknowledged_bytes.saturating_sub(self.acknowledged);
        let busy = look.busy.saturating_sub(self.busy);
        if self.given_up || busy < BUSY_MIN {
            return None;
        }
        (self.acknowledged, self.busy) = (look.acknowledged_bytes, look.busy);
        self.rates[self.looks % LOOKS] = acknowledged as f64 / busy.as_secs_f64();
        self.looks += 1;
        let rate = self.rates.iter().copied().fold(0.0, f64::max);
        let too_long = look.round_trip.saturating_sub(look.shortest) > QUEUE_MAX;
        // Both directions may have a queue: of each one a round trip may be as long as that, and still all of the rate passes.
        let bytes = ((rate * (look.shortest + QUEUE_MAX).as_secs_f64()) as u64).max(BYTES_MIN);
        let Some(before) = self.bytes else {
            self.first_rate = rate;
            return too_long.then(|| self.set(bytes));
        };
        self.long = if too_long && rate < self.first_rate / 2.0 { self.long + 1 } else { 0 };
        if self.long == PATIENCE {
            self.given_up = true;
            return Some(Buffer::System);
        }
        (bytes.abs_diff(before) as f64 > before as f64 * STEP).then(|| self.set(bytes))
    }

    fn set(&mut self, bytes: u64) -> Buffer {
        self.bytes = Some(bytes);
        Buffer::Bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::LOOK_EVERY;

    /// A connection at a link with a buffer, looked at ten times a second.
    struct Link {
        byte_per_s: f64,
        shortest: Duration,
        /// Of others, in front of it all the time.
        foreign: Duration,
        /// What its window grows to when nothing holds it back.
        window: f64,
        look: Look,
    }

    impl Link {
        fn new(byte_per_s: f64, shortest_ms: u64, foreign_ms: u64, window: f64) -> Self {
            let shortest = Duration::from_millis(shortest_ms);
            let look = Look { shortest, ..Look::default() };
            Self { byte_per_s, shortest, foreign: Duration::from_millis(foreign_ms), window, look }
        }

        fn look(&mut self, buffer: Buffer) -> Look {
            let limit = match buffer {
                Buffer::Bytes(bytes) => (bytes as f64).min(self.window),
                Buffer::System => self.window,
            };
            let unqueued = (self.shortest + self.foreign).as_secs_f64();
            let rate = (limit / unqueued).min(self.byte_per_s);
            let round_trip = Duration::from_secs_f64((limit / rate).max(unqueued));
            let turn = LOOK_EVERY;
            self.look.acknowledged_bytes += (rate * turn.as_secs_f64()) as u64;
            self.look.busy += turn;
            Look { round_trip, ..self.look }
        }
    }

    fn run(link: &mut Link, looks: u32) -> (Vec<Buffer>, Duration) {
        let (mut backlog, mut buffer, mut said) = (Backlog::default(), Buffer::System, Vec::new());
        let mut round_trip = Duration::ZERO;
        for _ in 0..looks {
            let look = link.look(buffer);
            round_trip = look.round_trip;
            if let Some(next) = backlog.handle_look(&look) {
                buffer = next;
                said.push(next);
            }
        }
        (said, round_trip)
    }

    /// The words of a peer would wait 50 ms behind our own data, and the link would lose some of both.
    #[test]
    fn a_queue_of_our_own_is_kept_short_and_the_link_full() {
        let mut link = Link::new(12.5e6, 1, 0, 625_000.0);
        let (said, round_trip) = run(&mut link, 20);
        assert_eq!(said, [Buffer::Bytes(325_000)]);
        assert_eq!(round_trip, Duration::from_millis(26));
    }

    /// A short burst at a low rate, once, would hold a fast link back for the rest of the job.
    #[test]
    fn a_link_that_gets_faster_is_filled_again() {
        let mut link = Link::new(12.5e6, 1, 0, 625_000.0);
        let mut backlog = Backlog::default();
        let Some(mut buffer) = backlog.handle_look(&link.look(Buffer::System)) else { panic!() };
        (link.byte_per_s, link.window) = (1.25e9, 1e9);
        for _ in 0..10 {
            let look = link.look(buffer);
            buffer = backlog.handle_look(&look).unwrap_or(buffer);
        }
        let Buffer::Bytes(bytes) = buffer else { panic!("{buffer:?}") };
        assert!(bytes as f64 > 1.25e9 * 0.001, "{bytes}");
    }

    /// Beside a job that fills the buffer of a shared link, ours would give way until nothing is left.
    #[test]
    fn a_queue_of_others_is_not_given_way_to_for_long() {
        let mut link = Link::new(12.5e6, 1, 80, 4e6);
        let (said, _) = run(&mut link, 80);
        assert_eq!(said.last(), Some(&Buffer::System));
    }

    /// What is fast enough is left to the system.
    #[test]
    fn short_queues_and_idle_connections_are_left_alone() {
        assert_eq!(run(&mut Link::new(12.5e6, 40, 0, 700_000.0), 20).0, []);
        assert_eq!(run(&mut Link::new(1.25e9, 0, 1, 4e6), 20).0, []);
        let mut backlog = Backlog::default();
        for step in 0..20 {
            let busy = Duration::from_millis(step);
            let look = Look { busy, round_trip: Duration::from_millis(90), ..Look::default() };
            assert_eq!(backlog.handle_look(&look), None);
        }
    }
}
