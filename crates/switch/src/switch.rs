//! Decides where frames go and when: a state machine. Frames and the time enter by `handle_*`, due frames leave by
//! `poll_*`.
//!
//! A frame is lost or delayed on the path of its pair, then crosses links one after the other, whose queues it shares
//! with the frames of other pairs. All frames in flight wait in one heap, by the time of their next event. Cost: a
//! logarithm of the frames in flight per link, which is small against the two system calls per frame.

use crate::Nanos;
use crate::frame::{Destination, Frame, Wire};
use crate::link::{Link, Passage};
use crate::network::{Network, NetworkError};
use crate::way::Way;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Counters of frames. A batch of segments counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub delivered: u64,
    /// Lost on the path, by the loss of its pair.
    pub lost: u64,
    /// Dropped by a full queue.
    pub overflowed: u64,
    pub unknown: u64,
}

#[derive(Debug)]
pub struct Switch {
    ports: usize,
    links: Vec<Link>,
    ways: Vec<Way>,
    under_way: BinaryHeap<Reverse<Due>>,
    /// Numbers events in order, which breaks ties of equal times.
    events: u64,
    held_bytes: usize,
    held_bytes_max: usize,
    counters: Counters,
}

#[derive(Debug)]
struct Due {
    at: Nanos,
    event: u64,
    /// When it has arrived completely; `at` is when its first packet has.
    tail: Nanos,
    way: usize,
    crossed: usize,
    wire: Wire,
    frame: Frame,
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
            let links = self.ways[due.way].links();
            let Some(&link) = links.get(due.crossed) else {
                self.held_bytes -= due.frame.bytes().len();
                self.counters.delivered += 1;
                return Some((due.way % self.ports, due.frame));
            };
            due.crossed += 1;
            let last = due.crossed == links.len();
            let Some(passage) = self.links[link].offer(Passage { head: due.at, tail: due.tail }, due.wire)
            else {
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
        if self.held_bytes + frame.bytes().len() > self.held_bytes_max {
            self.counters.overflowed += 1;
            return;
        }
        self.held_bytes += frame.bytes().len();
        let wire = frame.wire();
        self.push(Due { at, event: 0, tail: at, way, crossed: 0, wire, frame });
    }

    fn push(&mut self, mut due: Due) {
        self.events += 1;
        due.event = self.events;
        self.under_way.push(Reverse(due));
    }
}
