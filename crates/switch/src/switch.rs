//! Decides where frames go and when: a state machine. Frames and the time enter by `handle_*`, due frames leave by
//! `poll_*`.
//!
//! A frame is lost or delayed on the path of its pair, then crosses links one after the other, whose queues it shares
//! with the frames of other pairs. All frames in flight wait in one heap, by the time of their next event. Cost: a
//! logarithm of the frames in flight per link, which is small against the two system calls per frame.
//!
//! Where switches sum, a worker's piece ends at its rack's switch, which sends another frame when the sum is whole.

use crate::Nanos;
use crate::frame::{Destination, Frame, Wire};
use crate::link::{Link, Passage};
use crate::network::{Network, NetworkError};
use crate::piece::{Kind, Piece};
use crate::sums::{Passed, Sums};
use crate::way::Way;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Counters of frames. A batch of segments counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub delivered: u64,
    /// Lost on the path, by the loss of its pair.
    pub lost: u64,
    /// Dropped by a full queue, or by a switch without a free slot.
    pub overflowed: u64,
    pub unknown: u64,
}

#[derive(Debug)]
pub struct Switch {
    ports: usize,
    links: Vec<Link>,
    ways: Vec<Way>,
    summing: Option<Summing>,
    under_way: BinaryHeap<Reverse<Due>>,
    /// Numbers events in order, which breaks ties of equal times.
    events: u64,
    held_bytes: usize,
    held_bytes_max: usize,
    counters: Counters,
}

#[derive(Debug)]
struct Summing {
    sums: Sums,
    /// By port: the time between it and its rack's switch.
    near: Vec<Nanos>,
}

#[derive(Debug)]
struct Due {
    at: Nanos,
    event: u64,
    /// When it has arrived completely; `at` is when its first packet has.
    tail: Nanos,
    way: usize,
    /// Links of the way that it has to cross yet, by their positions.
    left: Range<usize>,
    end: End,
    /// A switch made it, and has it until there is room in a queue. Sums that filled it would have all frames of others dropped.
    summed: bool,
    wire: Wire,
    frame: Frame,
}

/// Where a frame goes.
#[derive(Debug)]
enum End {
    Port(usize),
    /// The switch of a rack, with what it sums: of the host at a port, or of another rack.
    Rack(usize, Option<usize>, Piece),
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.event) == (other.at, other.event)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.event).cmp(&(other.at, other.event))
    }
}

impl Switch {
    pub fn new(network: &Network) -> Result<Self, NetworkError> {
        network.check()?;
        let queue_ns = (network.queue_s * 1e9) as Nanos;
        let ways = network.ways.iter().enumerate();
        Ok(Self {
            ports: network.ports,
            links: network.links.iter().map(|rate| Link::new(*rate, queue_ns)).collect(),
            ways: ways
                .map(|(at, rule)| Way::new(rule.clone(), network.seed, at as u64, network.reorder))
                .collect(),
            summing: network.summing.as_ref().map(|own| {
                let racks: Vec<usize> = own.ports.iter().map(|(rack, _)| *rack).collect();
                let near = own.ports.iter().map(|(_, latency_s)| (latency_s * 1e9) as Nanos).collect();
                Summing { sums: Sums::new(own.slots, &racks), near }
            }),
            under_way: BinaryHeap::new(),
            events: 0,
            held_bytes: 0,
            held_bytes_max: network.held_bytes_max,
            counters: Counters::default(),
        })
    }

    pub fn ports(&self) -> usize {
        self.ports
    }

    /// A frame arrives from a host. Times never go back.
    pub fn handle_frame(&mut self, now: Nanos, source: usize, frame: Frame) {
        if self.summing.is_some()
            && let Some(piece) = Piece::pushed(&frame, source, self.ports)
        {
            return self.push_piece(now, source, piece, frame);
        }
        match frame.destination(self.ports) {
            Destination::Port(port) => self.send(now, source, port, frame),
            Destination::Everyone => {
                for port in (0..self.ports).filter(|port| *port != source) {
                    self.send(now, source, port, frame.clone());
                }
            }
            Destination::Nobody => self.counters.unknown += 1,
        }
    }

    /// The next frame due for delivery by now, and its host.
    pub fn poll_frame(&mut self, now: Nanos) -> Option<(usize, Frame)> {
        while self.poll_timeout()? <= now {
            let Reverse(mut due) = self.under_way.pop()?;
            let Some(at) = due.left.next() else {
                self.held_bytes -= due.frame.bytes().len();
                match due.end {
                    End::Port(port) => {
                        self.counters.delivered += 1;
                        return Some((port, due.frame));
                    }
                    End::Rack(rack, port, piece) => self.sum(due.at, rack, port, &piece),
                }
                continue;
            };
            let link = &mut self.links[self.ways[due.way].links()[at]];
            let last = due.left.is_empty();
            let came = Passage { head: due.at, tail: due.tail };
            let offered =
                if due.summed { link.offer_held(came, due.wire) } else { link.offer(came, due.wire) };
            let Some(passage) = offered else {
                if due.summed {
                    due.at = link.has_room_at().max(due.at + 1);
                    due.tail = due.tail.max(due.at);
                    due.left.start = at;
                    self.push(due);
                    continue;
                }
                self.held_bytes -= due.frame.bytes().len();
                self.counters.overflowed += 1;
                continue;
            };
            due.at = if last { passage.tail } else { passage.head };
            due.tail = passage.tail;
            self.push(due);
        }
        None
    }

    /// When `poll_frame` must be called next at the latest, if no frame arrives.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.under_way.peek().map(|Reverse(due)| due.at)
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// By link: bytes accepted so far, headers included.
    pub fn carried_bytes(&self) -> impl Iterator<Item = u64> + '_ {
        self.links.iter().map(Link::carried_bytes)
    }

    fn send(&mut self, now: Nanos, source: usize, port: usize, frame: Frame) {
        let way = source * self.ports + port;
        let Some(at) = self.ways[way].delay(now) else {
            self.counters.lost += 1;
            return;
        };
        let left = 0..self.ways[way].links().len();
        self.hold(at, way, left, End::Port(port), false, frame);
    }

    /// A worker's piece goes to its rack's switch, lost and delayed as on the way to its server.
    fn push_piece(&mut self, now: Nanos, source: usize, piece: Piece, frame: Frame) {
        let Some(summing) = &self.summing else { return };
        let way = &mut self.ways[source * self.ports + piece.server];
        let Some(through) = way.delay(now) else {
            self.counters.lost += 1;
            return;
        };
        let beyond = way.latency().saturating_sub(summing.near[source]);
        let end = End::Rack(summing.sums.rack(source), Some(source), piece);
        self.hold(through - beyond, source * self.ports, 0..0, end, false, frame);
    }

    fn sum(&mut self, at: Nanos, rack: usize, port: Option<usize>, piece: &Piece) {
        let Some(summing) = &mut self.summing else { return };
        let server = piece.server;
        let worker = piece.workers.trailing_zeros() as usize;
        let Some(passed) = summing.sums.take(rack, port, piece) else {
            self.counters.overflowed += 1;
            return;
        };
        for each in passed {
            let Some(Summing { sums, near }) = &self.summing else { return };
            match each {
                Passed::ToRack { from, rack, piece } => {
                    let ports = 0..self.ports;
                    let head = ports.clone().find(|&port| sums.rack(port) == from).unwrap_or(worker);
                    let way = head * self.ports + server;
                    let beside = near[head] + near[server];
                    let at = at + self.ways[way].latency().saturating_sub(beside);
                    let frame = piece.frame(Kind::Sum, server);
                    // The last link is the server's own.
                    let trunks = 0..self.ways[way].links().len().saturating_sub(1);
                    self.hold(at, way, trunks, End::Rack(rack, None, piece), true, frame);
                }
                Passed::ToServer(piece) => {
                    let at = at + near[server];
                    self.deliver(at, worker * self.ports + server, server, piece.frame(Kind::Sum, server));
                }
                Passed::Free { port, piece } => {
                    let at = at + near[port];
                    self.deliver(at, server * self.ports + port, port, piece.frame(Kind::Free, port));
                }
            }
        }
    }

    /// A switch sends a frame over the last link of a way.
    fn deliver(&mut self, at: Nanos, way: usize, port: usize, frame: Frame) {
        let links = self.ways[way].links().len();
        self.hold(at, way, links.saturating_sub(1)..links, End::Port(port), true, frame);
    }

    fn hold(&mut self, at: Nanos, way: usize, left: Range<usize>, end: End, summed: bool, frame: Frame) {
        if self.held_bytes + frame.bytes().len() > self.held_bytes_max {
            self.counters.overflowed += 1;
            return;
        }
        self.held_bytes += frame.bytes().len();
        let wire = frame.wire();
        self.push(Due { at, event: 0, tail: at, way, left, end, summed, wire, frame });
    }

    fn push(&mut self, mut due: Due) {
        self.events += 1;
        due.event = self.events;
        self.under_way.push(Reverse(due));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HEADER_BYTES;
    use crate::network::{Summing, WayRule};
    use crate::piece::SWITCH_MAC;

    const MS: Nanos = 1_000_000;

    /// Workers at ports 0 to 2, of which the last is beside the server, port 3. Links are those into hosts, then one trunk
    /// between racks; a frame of 1,000 bytes takes 1 ms.
    fn racks() -> Switch {
        let racks = [0, 0, 1, 1];
        let way = |source: usize, port: usize| {
            let apart = racks[source] != racks[port];
            let links = if apart { vec![4, port] } else { vec![port] };
            WayRule { links, latency_s: if apart { 0.010 } else { 0.004 }, ..WayRule::default() }
        };
        Switch::new(&Network {
            ports: 4,
            links: vec![Some(1e6); 5],
            ways: (0..16).map(|at| way(at / 4, at % 4)).collect(),
            queue_s: 1.0,
            reorder: false,
            seed: 0,
            held_bytes_max: 1 << 20,
            summing: Some(Summing { slots: 1, ports: racks.map(|rack| (rack, 0.002)).to_vec() }),
        })
        .expect("it can be emulated")
    }

    fn pushed(port: usize, number: u32) -> Frame {
        let values = vec![port as f32; (1000 - 46) / 4];
        let piece = Piece { run: 0, number, server: 3, workers: 0b111, from: 1 << port, values };
        let mut bytes = piece.frame(Kind::Pushed, 0).bytes().to_vec();
        bytes[HEADER_BYTES..][..SWITCH_MAC.len()].copy_from_slice(&SWITCH_MAC);
        Frame::new(bytes)
    }

    fn delivered(switch: &mut Switch) -> Vec<(Nanos, usize, usize)> {
        let mut found = Vec::new();
        while let Some(at) = switch.poll_timeout() {
            while let Some((port, frame)) = switch.poll_frame(at) {
                found.push((at / MS, port, frame.bytes().len()));
            }
        }
        found
    }

    /// A gradient would cross a link once for each worker, or sooner than its network can carry it.
    #[test]
    fn pushes_are_summed_on_their_way() {
        let mut switch = racks();
        for port in 0..3 {
            switch.handle_frame(0, port, pushed(port, 0));
        }
        // Both switches have their workers' pieces after 2 ms. The trunk takes 1 ms and has a latency of 6 ms; so has the
        // server's link, of 2 ms. A short message takes 0.06 ms.
        let found = delivered(&mut switch);
        assert_eq!(found[..2], [(4, 0, 70), (4, 1, 70)]);
        assert_eq!(found[2..], [(11, 2, 70), (11, 3, 1008)]);
        assert_eq!(switch.carried_bytes().nth(4), Some(998));
        assert_eq!(switch.counters(), Counters { delivered: 4, ..Counters::default() });
    }

    /// A worker that sends without a slot, or to a switch that sums nothing, would hold the others up for ever.
    #[test]
    fn a_piece_without_a_slot_or_a_pool_goes_nowhere() {
        let mut switch = racks();
        switch.handle_frame(0, 0, pushed(0, 0));
        switch.handle_frame(0, 0, pushed(0, 1));
        assert_eq!(delivered(&mut switch), []);
        assert_eq!(switch.counters(), Counters { overflowed: 1, ..Counters::default() });
        switch.summing = None;
        switch.handle_frame(0, 0, pushed(0, 0));
        assert_eq!(switch.counters().unknown, 1);
    }
}
