//! A link in one direction: a rate, and a queue in front of it that is bounded in time and drops at its tail.
//!
//! First in, first out at a constant rate: a frame's departure is known on arrival, so no queue is stored.

use crate::Nanos;
use crate::frame::Wire;

/// Arrival of a frame's first packet, and of its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// From then on, the next link may forward it.
    pub head: Nanos,
    pub tail: Nanos,
}

/// One direction of a wire.
#[derive(Debug)]
pub struct Link {
    ns_per_byte: f64,
    queue_ns: Nanos,
    free_at: Nanos,
    last_tail: Nanos,
    carried_bytes: u64,
}

impl Link {
    /// `byte_per_s` None: unlimited; frames are only counted.
    pub fn new(byte_per_s: Option<f64>, queue_ns: Nanos) -> Self {
        let ns_per_byte = byte_per_s.map_or(0.0, |rate| 1e9 / rate);
        Self { ns_per_byte, queue_ns, free_at: 0, last_tail: 0, carried_bytes: 0 }
    }

    /// Forwards a frame that arrives during `came`. `None`: the queue is full, and the frame is dropped.
    ///
    /// Calls are in the order of `came.head`. Frames leave in the order of their arrival.
    pub fn offer(&mut self, came: Passage, wire: Wire) -> Option<Passage> {
        self.offer_within(self.queue_ns, came, wire)
    }

    /// Forwards a frame that can wait elsewhere until half of the queue is free: the rest is for those that cannot. `None`: not
    /// before `has_room_at`.
    pub fn offer_held(&mut self, came: Passage, wire: Wire) -> Option<Passage> {
        self.offer_within(self.queue_ns / 2, came, wire)
    }

    fn offer_within(&mut self, queue_ns: Nanos, came: Passage, wire: Wire) -> Option<Passage> {
        let begins = self.free_at.max(came.head);
        if begins - came.head > queue_ns {
            return None;
        }
        self.free_at = begins + self.takes(wire.bytes);
        let packet = self.takes(wire.packet_bytes);
        // A batch that trickles in from a slower link has passed one packet after its last one arrived.
        let tail = self.free_at.max(came.tail + packet).max(self.last_tail);
        self.last_tail = tail;
        self.carried_bytes += wire.bytes;
        Some(Passage { head: (begins + packet).min(tail), tail })
    }

    /// When the queue has room again for a frame that is held elsewhere.
    pub fn has_room_at(&self) -> Nanos {
        self.free_at.saturating_sub(self.queue_ns / 2)
    }

    /// Bytes accepted, including those in its queue.
    pub fn carried_bytes(&self) -> u64 {
        self.carried_bytes
    }

    fn takes(&self, bytes: u64) -> Nanos {
        (bytes as f64 * self.ns_per_byte).ceil() as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Nanos = 1_000_000_000;

    fn at(time: Nanos) -> Passage {
        Passage { head: time, tail: time }
    }

    fn packet(bytes: u64) -> Wire {
        Wire { bytes, packet_bytes: bytes }
    }

    /// A link of 1 MB/s would be faster or slower than that.
    #[test]
    fn an_idle_link_delays_by_its_rate_alone() {
        let mut link = Link::new(Some(1e6), SECOND);
        assert_eq!(link.offer(at(5), packet(1000)).unwrap().tail, 5 + 1_000_000);
        assert_eq!(link.offer(at(6), packet(1000)).unwrap().tail, 5 + 2_000_000);
        assert_eq!(link.offer(at(SECOND), packet(500)).unwrap().tail, SECOND + 500_000);
        assert_eq!(link.carried_bytes(), 2500);
    }

    /// A batch would wait for its last byte at each link, which a wire with packets does not.
    #[test]
    fn a_batch_is_passed_on_packet_by_packet() {
        let (mut slow, mut fast) = (Link::new(Some(1e6), SECOND), Link::new(Some(1e7), SECOND));
        let batch = Wire { bytes: 40_000, packet_bytes: 1000 };
        let half = slow.offer(at(0), batch).unwrap();
        assert_eq!(half, Passage { head: 1_000_000, tail: 40_000_000 });
        let whole = fast.offer(half, batch).unwrap();
        assert_eq!(whole, Passage { head: 1_100_000, tail: 40_100_000 });
        let next = fast.offer(at(2_000_000), packet(100)).unwrap();
        assert!(next.tail >= whole.tail, "it overtook");
    }

    proptest! {
        /// An overloaded link would exceed its rate, idle, or queue without bound.
        #[test]
        fn a_full_link_keeps_its_rate(
            sizes in proptest::collection::vec(60_u64..60_000, 50..300),
            gap in 0..20_000_u64,
            queue in 1_000_000..50_000_000_u64,
        ) {
            let mut link = Link::new(Some(125e6), queue);
            let (mut passed, mut last, mut dropped) = (0, 0, 0);
            for (index, bytes) in sizes.iter().enumerate() {
                let now = index as Nanos * gap;
                if let Some(through) = link.offer(at(now), packet(*bytes)) {
                    passed += bytes;
                    prop_assert!(through.tail >= now + bytes * 8, "faster than its rate");
                    prop_assert!(through.tail <= now + queue + bytes * 8 + 1, "queued for too long");
                    prop_assert!(through.tail >= last, "out of order");
                    prop_assert!(through.tail >= passed * 8, "more than its rate on the whole");
                    last = through.tail;
                } else {
                    dropped += 1;
                    prop_assert!(last > now + queue, "dropped though there was room");
                }
            }
            prop_assert!(dropped < sizes.len());
            prop_assert_eq!(link.carried_bytes(), passed);
        }
    }
}
