//! Flows: on each route one message moves at a time, the most urgent one, and all routes in use share their links.
//!
//! Budget: a message alone on its links costs one event, its landing, if nothing waits for the end of its sending, and
//! two otherwise. Rates are solved once for all changes of a moment, and not at all without shared links.

use crate::bucket::Buckets;
use crate::clock::Clock;
use crate::event::Event;
use crate::share::Shares;
use crate::sockets::Sockets;
use crate::time::{Picos, from_s};
use hocket_network::Network;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A message that may flow.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub instance: u32,
    /// The send.
    pub op: u32,
    /// The receive.
    pub peer: u32,
    pub priority: u32,
    pub bytes: f64,
    /// Time from the departure of the last byte to its arrival.
    pub latency: Picos,
    /// Nothing waits for the end of the send.
    pub forgotten: bool,
    /// Work of both ends' engines while it moves.
    pub writing: Picos,
    pub reading: Picos,
}

impl Message {
    /// Work on some of its bytes at the destination.
    fn reading(&self, bytes: f64) -> f64 {
        if self.reading == 0 { 0.0 } else { self.reading as f64 * bytes / self.bytes }
    }
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    message: Message,
    left: f64,
    sequence: u64,
    /// What its source's engine knows it by, once it has begun to move.
    begun: Option<Picos>,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        // A heap returns its greatest first: the lowest priority number, then the first queued.
        (other.message.priority, other.sequence).cmp(&(self.message.priority, self.sequence))
    }
}

/// The state of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Idle,
    /// Its message's landing is set; the message has left by then. The route is still among the flows of its links.
    Set {
        until: Picos,
    },
    Flowing,
}

#[derive(Debug)]
struct Channel {
    state: State,
    current: Option<Queued>,
    queue: BinaryHeap<Queued>,
    rate: f64,
    since: Picos,
    /// Work that it brings to its destination's engine in each picosecond.
    arriving: f64,
    /// Number of its latest schedule: events of older ones are void.
    generation: u32,
    /// Number of set landings that were revoked.
    void: Vec<u32>,
    moved: f64,
}

impl Channel {
    /// Bytes of the current message that have not moved by `now`.
    fn left(&self, now: Picos) -> f64 {
        let moved = self.rate * (now - self.since) as f64 / 1e12;
        self.current.as_ref().map_or(0.0, |current| (current.left - moved).max(0.0))
    }
}

/// All routes and what moves on them.
pub struct Flows<'a> {
    network: &'a Network,
    has_queues: bool,
    shares: Shares,
    buckets: Buckets,
    /// Of all ranks.
    pub sockets: Sockets,
    channels: Vec<Channel>,
    sequence: u64,
    changed: Vec<u32>,
    /// How often rates were solved.
    pub solves: u64,
    /// Flows inspected for it, over all solves.
    pub looked_at: u64,
}

impl<'a> Flows<'a> {
    pub fn new(network: &'a Network, sockets: Sockets) -> Self {
        let channel = || Channel {
            state: State::Idle,
            current: None,
            queue: BinaryHeap::new(),
            rate: 0.0,
            since: 0,
            arriving: 0.0,
            generation: 0,
            void: Vec::new(),
            moved: 0.0,
        };
        Self {
            network,
            has_queues: network.links().iter().any(|link| link.queue_s > 0.0),
            shares: Shares::new(network),
            buckets: Buckets::new(network),
            sockets,
            channels: (0..network.routes()).map(|_| channel()).collect(),
            sequence: 0,
            changed: Vec::new(),
            solves: 0,
            looked_at: 0,
        }
    }

    /// A message enters its route.
    pub fn send(&mut self, clock: &mut Clock<Event>, route: u32, message: Message) {
        self.sequence += 1;
        let queued = Queued { message, left: message.bytes, sequence: self.sequence, begun: None };
        let now = clock.now();
        let channel = &mut self.channels[route as usize];
        match channel.state {
            State::Set { until } if until <= now => {
                channel.current = Some(queued);
                channel.since = now;
                if !self.buckets.is_empty() {
                    for &link in self.network.crossed(route) {
                        self.buckets.rest(link, until);
                    }
                    self.pass_burst(route, now);
                }
                self.schedule(clock, route, true);
            }
            State::Idle => {
                channel.current = Some(queued);
                channel.since = now;
                self.pass_burst(route, now);
                self.activate(clock, route);
            }
            State::Set { .. } | State::Flowing => {
                if matches!(channel.state, State::Set { .. }) {
                    self.take_back(clock, route);
                }
                let channel = &mut self.channels[route as usize];
                channel.queue.push(queued);
                let overtakes = channel.current.is_some_and(|current| queued > current);
                if overtakes {
                    self.settle(route, now);
                    let channel = &mut self.channels[route as usize];
                    let interrupted = channel.current.take();
                    channel.current = channel.queue.pop();
                    channel.queue.extend(interrupted);
                    self.schedule(clock, route, false);
                }
            }
        }
    }

    /// The current message of a route has left, unless the event is void; the next one follows. Also what its source's engine knows
    /// it by, if that has work on it.
    pub fn drained(
        &mut self,
        clock: &mut Clock<Event>,
        route: u32,
        generation: u32,
    ) -> Option<(Message, Option<Picos>)> {
        if self.channels[route as usize].generation != generation {
            return None;
        }
        self.settle(route, clock.now());
        let channel = &mut self.channels[route as usize];
        let done = channel.current.take()?;
        // The error from rounding to whole picoseconds.
        channel.moved += done.left;
        channel.current = channel.queue.pop();
        if channel.current.is_some() {
            self.schedule(clock, route, false);
        } else {
            channel.state = State::Idle;
            channel.rate = 0.0;
            channel.generation = channel.generation.wrapping_add(1);
            self.leave(route, clock.now());
            self.work(route, clock.now());
        }
        Some((done.message, done.begun))
    }

    /// Whether a landing that was set still holds.
    pub fn landed(&mut self, route: u32, generation: u32) -> bool {
        let void = &mut self.channels[route as usize].void;
        if void.is_empty() {
            return true;
        }
        let taken_back = void.iter().position(|&each| each == generation);
        taken_back.map(|at| void.swap_remove(at)).is_none()
    }

    /// A link gets another capacity.
    pub fn change(&mut self, clock: &mut Clock<Event>, link: u32, bytes_per_s: f64) {
        self.wake_set(clock, link);
        self.shares.set_capacity(link, bytes_per_s);
    }

    /// Makes rates fair after all changes of a moment.
    pub fn solve(&mut self, clock: &mut Clock<Event>) {
        if !self.shares.is_dirty() {
            return;
        }
        self.solves += 1;
        let mut changed = std::mem::take(&mut self.changed);
        self.looked_at += self.shares.solve(self.network, &mut changed) as u64;
        for &route in &changed {
            self.settle(route, clock.now());
            self.channels[route as usize].rate = self.shares.rate(route);
            self.schedule(clock, route, false);
        }
        changed.clear();
        self.changed = changed;
    }

    /// Bytes that crossed each link.
    pub fn link_bytes(&self) -> Vec<f64> {
        let mut bytes = vec![0.0; self.network.links().len()];
        for (route, channel) in self.channels.iter().enumerate() {
            for &link in self.network.crossed(route as u32) {
                bytes[link as usize] += channel.moved;
            }
        }
        bytes
    }

    /// How long a receiver's announcement waits on its way back over `route` behind bytes that links have not passed on
    /// yet: the rest of a message lies in front of the link that limits it, up to the length of that link's queue.
    pub fn word_waits(&self, route: u32, now: Picos) -> Picos {
        let waits_s = |link: u32| {
            let left: f64 = self
                .shares
                .waiting(self.network, link)
                .map(|flow| self.channels[flow as usize].left(now))
                .sum();
            let link = self.network.link(link);
            (left / link.bytes_per_s()).min(link.queue_s)
        };
        from_s(self.queues_back(route).map(waits_s).sum())
    }

    /// Links on the reverse path of a route that delay announcements; none if that direction has no route.
    fn queues_back(&self, route: u32) -> impl Iterator<Item = u32> {
        let back = if self.has_queues { self.network.back(route) } else { &[] };
        back.iter().copied().filter(|&link| self.network.link(link).queue_s > 0.0)
    }

    /// Whether a route has a message that does not move.
    pub fn is_stopped(&self, route: u32) -> bool {
        let channel = &self.channels[route as usize];
        channel.current.is_some() && channel.rate == 0.0
    }

    /// A route's last message left at `now`.
    fn leave(&mut self, route: u32, now: Picos) {
        self.shares.remove(self.network, route);
        if !self.buckets.is_empty() {
            for &link in self.network.crossed(route) {
                if self.shares.members(link).is_empty() {
                    self.buckets.rest(link, now);
                }
            }
        }
    }

    /// The bytes of a route's next message that buckets let pass at once.
    fn pass_burst(&mut self, route: u32, now: Picos) {
        let channel = &mut self.channels[route as usize];
        if let Some(current) = &mut channel.current {
            let passed = self.buckets.take(self.network, route, current.left, now);
            current.left -= passed;
            channel.moved += passed;
            let work = current.message.reading(passed);
            if work > 0.0 {
                self.sockets.arrived(self.network.ends(route).1, work, now);
            }
        }
    }

    fn activate(&mut self, clock: &mut Clock<Event>, route: u32) {
        let network = self.network;
        for &link in network.crossed(route) {
            self.wake_set(clock, link);
        }
        let alone = self.shares.add(network, route);
        let channel = &mut self.channels[route as usize];
        channel.state = State::Flowing;
        channel.rate = self.shares.rate(route);
        channel.generation = channel.generation.wrapping_add(1);
        if alone {
            self.schedule(clock, route, true);
        }
    }

    /// A route of a link whose landing is set becomes an ordinary flow, or leaves it if its message has left.
    fn wake_set(&mut self, clock: &mut Clock<Event>, link: u32) {
        // A flow with a rate is alone on its links.
        let &[other] = self.shares.members(link) else { return };
        let channel = &mut self.channels[other as usize];
        if let State::Set { until } = channel.state {
            if until <= clock.now() {
                channel.state = State::Idle;
                channel.rate = 0.0;
                channel.current = None;
                self.leave(other, until);
            } else {
                self.take_back(clock, other);
            }
        }
    }

    /// A set landing becomes an ordinary flow.
    fn take_back(&mut self, clock: &mut Clock<Event>, route: u32) {
        let channel = &mut self.channels[route as usize];
        channel.void.push(channel.generation);
        channel.state = State::Flowing;
        // Its bytes were counted when the landing was set.
        let current = channel.current.as_ref().map_or(0.0, |current| current.left);
        channel.moved -= current;
        self.settle(route, clock.now());
        self.schedule(clock, route, false);
    }

    /// Schedules the departure of the current message. `alone`: no other flow is on its links.
    fn schedule(&mut self, clock: &mut Clock<Event>, route: u32, alone: bool) {
        self.work(route, clock.now());
        let channel = &mut self.channels[route as usize];
        let Some(current) = channel.current else { return };
        channel.generation = channel.generation.wrapping_add(1);
        if channel.rate <= 0.0 {
            return;
        }
        let until = clock.now() + (current.left.max(0.0) / channel.rate * 1e12).ceil() as Picos;
        let generation = channel.generation;
        let worked_on = current.message.writing > 0 || current.message.reading > 0;
        if alone && current.message.forgotten && !worked_on && channel.queue.is_empty() {
            channel.state = State::Set { until };
            channel.moved += current.left;
            let Message { instance, peer, latency, .. } = current.message;
            clock.push(until + latency, Event::Land { route, generation, instance, op: peer });
        } else {
            channel.state = State::Flowing;
            clock.push(until, Event::Drain { route, generation });
        }
    }

    /// Tells both ends' engines of the current message and its rate.
    fn work(&mut self, route: u32, now: Picos) {
        let (source, destination) = self.network.ends(route);
        let channel = &mut self.channels[route as usize];
        if let Some(current) = &mut channel.current
            && current.message.writing > 0
            && current.begun.is_none()
        {
            current.begun = Some(self.sockets.begin(source, current.message.writing, now));
        }
        let arriving = channel.current.map_or(0.0, |current| current.message.reading(channel.rate / 1e12));
        if arriving.to_bits() != channel.arriving.to_bits() {
            self.sockets.arrives(destination, arriving - channel.arriving, now);
            channel.arriving = arriving;
        }
    }

    /// Subtracts the bytes moved since the last update from the current message.
    fn settle(&mut self, route: u32, now: Picos) {
        let channel = &mut self.channels[route as usize];
        let left = channel.left(now);
        if let Some(current) = &mut channel.current {
            channel.moved += current.left - left;
            current.left = left;
        }
        channel.since = now;
    }
}
