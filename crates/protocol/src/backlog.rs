//! Limits the bytes in flight of a connection, so that its data does not wait behind its own queue.
//!
//! TCP fills whatever buffer the narrowest link of a path has. That adds tens of milliseconds to every message to a
//! peer, and in the end causes losses. A connection that builds such a queue gets a send buffer of its rate times the
//! round trip that it should have, which is what Vegas (Brakmo and Peterson, 1995) does with its window, as far as a
//! program can.
//!
//! A round trip also includes the queue of the opposite direction, where our peer applies the same rule. The two sides
//! estimate the rate differently, so their buffers differ, and the direction with the smaller buffer would send less
//! than the link carries, in proportion to the two buffers. A buffer is therefore at least as large as what the peer
//! has in flight: what arrives within one round trip. If the queue stays while our rate keeps falling, the queue
//! belongs to another job: then the system chooses the buffer again, for good. So it does where packets are lost by chance:
//! what was lost keeps all that follows it in the buffer for another round trip, which would count as our rate.

use crate::congestion::Look;
use std::time::Duration;

/// A round trip longer than the shortest by a queue of this many bytes is too long. Flows share a queue's link in
/// proportion to the bytes that they have in it, and a flow that another link holds back has only its buffer there. The
/// queue of a fast link must therefore be no longer in bytes than that of a slow one, or what passes both is starved.
const QUEUE_BYTES: f64 = 512.0 * 1024.0;
/// Bounds of that queue in time: what the program reacts within, and what another message may wait.
const QUEUE_MIN: Duration = Duration::from_millis(5);
const QUEUE_MAX: Duration = Duration::from_millis(25);
/// A shorter busy time does not determine a rate.
const BUSY_MIN: Duration = Duration::from_millis(40);
/// Busy share of the time between two samples above which a connection counts as busy throughout.
const BUSY_SHARE: f64 = 0.8;
/// Two messages of plans for slow links. With 128 KiB, seven senders kept 0.2 s in the queue of a link of 40 Mbit/s, and a connection
/// that had been idle, whose window is small, took several of such round trips to get its part.
const BYTES_MIN: u64 = 64 * 1024;
/// Number of samples of which the fastest counts: a connection that waits for others is not slower because of it.
const LOOKS: usize = 16;
/// Samples for which a queue may stay while we have given half of our rate away.
const PATIENCE: u32 = 20;
/// Limit relative to the buffer for our own rate: incoming data makes it no larger.
const GROWTH_MAX: f64 = 2.0;
/// Buffers whose difference is smaller count as equal.
const STEP: f64 = 0.05;

/// The send buffer that a connection should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// This many bytes.
    Bytes(u64),
    /// The system's choice.
    System,
}

/// State of one connection.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    at: Duration,
    acknowledged: u64,
    received: u64,
    busy: Duration,
    /// Latest rates, byte/s.
    rates: [f64; LOOKS],
    looks: usize,
    bytes: Option<f64>,
    /// When it began to give way.
    first_rate: f64,
    long: u32,
    given_up: bool,
}

impl Backlog {
    /// The change to make, if any.
    pub fn handle_look(&mut self, look: &Look) -> Option<Buffer> {
        let acknowledged = look.acknowledged_bytes.saturating_sub(self.acknowledged);
        let busy = look.busy.saturating_sub(self.busy);
        if self.given_up || busy < BUSY_MIN {
            return None;
        }
        let received = look.received_bytes.saturating_sub(self.received);
        let passed = look.at.saturating_sub(self.at);
        (self.at, self.busy) = (look.at, look.busy);
        (self.acknowledged, self.received) = (look.acknowledged_bytes, look.received_bytes);
        self.rates[self.looks % LOOKS] = acknowledged as f64 / busy.as_secs_f64();
        self.looks += 1;
        let rate = self.rates.iter().copied().fold(0.0, f64::max);
        let queue = queue_max(rate);
        let too_long = look.round_trip.saturating_sub(look.shortest) > queue;
        // Both directions may have a queue: each may make a round trip this long without costing any rate.
        let own = (rate * (look.shortest + queue).as_secs_f64()).max(BYTES_MIN as f64);
        let Some(before) = self.bytes else {
            self.first_rate = rate;
            return too_long.then(|| self.set(own));
        };
        self.long = if too_long && rate < self.first_rate / 2.0 { self.long + 1 } else { 0 };
        if self.long == PATIENCE {
            self.given_up = true;
            return Some(Buffer::System);
        }
        let all_along = busy.as_secs_f64() >= BUSY_SHARE * passed.as_secs_f64();
        let peers = received as f64 * look.round_trip.as_secs_f64() / passed.as_secs_f64();
        let bytes = if all_along { own.max(peers.min(GROWTH_MAX * own)) } else { own };
        ((bytes - before).abs() > before * STEP).then(|| self.set(bytes))
    }

    /// The system chooses the buffer, for good; the change to make, if any.
    pub fn give_up(&mut self) -> Option<Buffer> {
        self.given_up = true;
        self.bytes.take().map(|_| Buffer::System)
    }

    fn set(&mut self, bytes: f64) -> Buffer {
        self.bytes = Some(bytes);
        Buffer::Bytes(bytes as u64)
    }
}

/// How much longer than the shortest a round trip may be, at a rate in byte/s.
fn queue_max(rate: f64) -> Duration {
    let (min, max) = (QUEUE_MIN.as_secs_f64(), QUEUE_MAX.as_secs_f64());
    Duration::from_secs_f64((QUEUE_BYTES / rate.max(1.0)).clamp(min, max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::LOOK_EVERY;

    /// A connection over a link with a buffer, sampled ten times a second.
    struct Link {
        byte_per_s: f64,
        shortest: Duration,
        /// Bytes of other senders that are always in front of it.
        foreign: Duration,
        /// Its window when nothing holds it back.
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
            self.look.at += turn;
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

    /// A peer's messages would wait 50 ms behind our own data, and the link would lose some of both.
    #[test]
    fn a_queue_of_our_own_is_kept_short_and_the_link_full() {
        let mut link = Link::new(12.5e6, 1, 0, 625_000.0);
        let (said, round_trip) = run(&mut link, 20);
        assert_eq!(said, [Buffer::Bytes(325_000)]);
        assert_eq!(round_trip, Duration::from_millis(26));
    }

    /// A single short burst at a low rate would hold a fast link back for the rest of the job.
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

    /// Beside a job that fills the buffer of a shared link, our connection would give way until nothing is left.
    #[test]
    fn a_queue_of_others_is_not_given_way_to_for_long() {
        let mut link = Link::new(12.5e6, 1, 80, 4e6);
        let (said, _) = run(&mut link, 80);
        assert_eq!(said.last(), Some(&Buffer::System));
    }

    /// In each direction of a link, data waits in front of the other direction's acknowledgements. The side with the
    /// smaller buffer would send less than the link carries, although both choose by the same rule.
    #[test]
    fn both_directions_of_a_link_are_full_whatever_their_buffers_were() {
        for (first, second) in [(1.0, 0.8), (0.7, 1.0), (1.0, 1.0), (0.5, 1.3)] {
            let (capacity, shortest) = (12.5e6, Duration::from_millis(1));
            let mut windows = [first * 625e3, second * 625e3];
            let mut sides = [Backlog::default(), Backlog::default()];
            let mut looks = [Look { shortest, ..Look::default() }; 2];
            let (mut rates, mut round_trip) = ([0.0; 2], 0.0);
            for turn in 0..40_u32 {
                round_trip = windows.iter().copied().fold(0.0, f64::max) / capacity;
                rates = windows.map(|window| (window / round_trip).min(capacity));
                for side in 0..2 {
                    // A sample is off by a few percent, as the system counts in ticks.
                    let wrong = 1.0 + 0.03 * f64::from((turn * 7 + side as u32 * 3) % 5) - 0.06;
                    let look = &mut looks[side];
                    look.round_trip = Duration::from_secs_f64(round_trip);
                    look.acknowledged_bytes += (rates[side] * wrong * LOOK_EVERY.as_secs_f64()) as u64;
                    look.received_bytes += (rates[1 - side] * LOOK_EVERY.as_secs_f64()) as u64;
                    look.busy += LOOK_EVERY;
                    look.at += LOOK_EVERY;
                    if let Some(Buffer::Bytes(bytes)) = sides[side].handle_look(look) {
                        windows[side] = bytes as f64;
                    }
                }
            }
            assert!(rates.iter().all(|&rate| rate > 0.94 * capacity), "{first} {second}: {rates:?}");
            assert!(round_trip < 0.035, "{first} {second}: {round_trip}");
        }
    }

    /// A leader's link carries its ring, which trunks hold back, and a transfer of its rack, which nothing else does.
    /// With queues of equal time, the ring got 130 of the 200 Mbit/s that its trunk would have carried.
    #[test]
    fn what_another_link_holds_back_gets_its_rate_beside_what_fills_a_fast_link() {
        let (link, trunk, shortest) = (62.5e6, 25e6, Duration::from_millis(1));
        let alone = |capacity| {
            let mut link = Link::new(capacity, 1, 0, 4e6);
            let said = run(&mut link, 20).0;
            let Some(&Buffer::Bytes(bytes)) = said.last() else { panic!("{said:?}") };
            bytes as f64
        };
        let (ring, transfer) = (alone(trunk), alone(link));
        let round_trip = ((ring + transfer) / link).max(shortest.as_secs_f64());
        assert!(ring / round_trip > trunk, "{ring} {transfer}");
    }

    /// A long path that loses packets would be held to half of its rate by a buffer that its own rate then confirms.
    #[test]
    fn what_bears_losses_is_left_to_the_system() {
        let mut link = Link::new(12.5e6, 1, 0, 625_000.0);
        let mut backlog = Backlog::default();
        assert_eq!(backlog.clone().give_up(), None);
        assert!(matches!(backlog.handle_look(&link.look(Buffer::System)), Some(Buffer::Bytes(_))));
        assert_eq!(backlog.give_up(), Some(Buffer::System));
        for _ in 0..20 {
            assert_eq!(backlog.handle_look(&link.look(Buffer::System)), None);
        }
    }

    /// A connection that is fast enough is left to the system.
    #[test]
    fn short_queues_and_idle_connections_are_left_alone() {
        assert_eq!(run(&mut Link::new(12.5e6, 40, 0, 700_000.0), 20).0, []);
        assert_eq!(run(&mut Link::new(1.25e9, 0, 1, 4e6), 20).0, []);
        let mut backlog = Backlog::default();
        for step in 0..20 {
            let busy = Duration::from_millis(step);
            let look = Look { at: busy, busy, round_trip: Duration::from_millis(90), ..Look::default() };
            assert_eq!(backlog.handle_look(&look), None);
        }
    }
}
