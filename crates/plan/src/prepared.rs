//! A route on a network: its load on links and ranks for any number of elements.
//!
//! Everything is linear in the elements, except messages: one shorter than a chunk costs as much as a chunk. Flows
//! whose messages have equal shares of the elements form a *class*, and each class has its bend at its own place.

use crate::constants::{CAST_S_PER_BYTE, COPY_S_PER_BYTE, MESSAGE_S, REDUCE_S_PER_BYTE, TCP_S_PER_BYTE};
use crate::delays::Delays;
use crate::error::PlanError;
use crate::exchange::{Exchange, Sent};
use crate::route::{Route, Stream};
use hocket_algorithms::{Flow, Stage};
use hocket_network::{Bus, Network, PIECE_BYTES, Way};

/// Busy seconds of a resource: by element, and for each class by message and chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    pub element_s: f64,
    pub message_s: Vec<f64>,
}

impl Load {
    fn none(classes: usize) -> Self {
        Self { element_s: 0.0, message_s: vec![0.0; classes] }
    }

    /// `chunks[class]`: number of chunks of a message of the class, at least 1.
    pub fn busy_s(&self, elements: f64, chunks: &[f64]) -> f64 {
        self.message_s.iter().zip(chunks).fold(self.element_s * elements, |sum, (s, count)| sum + s * count)
    }

    /// Whether it is busy at least as long as another for any number of elements.
    pub fn covers(&self, other: &Self) -> bool {
        self.element_s >= other.element_s
            && self.message_s.iter().zip(&other.message_s).all(|(own, other)| own >= other)
    }
}

/// A route on a network.
pub struct Prepared {
    /// By class: a message's share of the elements, in chunks.
    chunks_per_element: Vec<f64>,
    /// By link, then by rank, then down and up the bus if there is one: in all.
    pub loads: Vec<Load>,
    /// In the cycle, and in all: those that no other dominates.
    cycle: Vec<Load>,
    total: Vec<Load>,
    /// By link.
    pub bytes_per_element: Vec<f64>,
    /// How many flows it has.
    pub flows: usize,
    /// Of each member's engine, when nothing moves yet and when nothing does any more.
    beside_s_per_element: f64,
    delays: Delays,
    /// Of members whose buckets lie on devices: bytes of an element, and the bus.
    staged: Option<(f64, Bus)>,
}

/// One bucket with the network to itself.
#[expect(clippy::struct_field_names, reason = "units come last")]
pub struct Alone {
    pub head_s: f64,
    pub tail_s: f64,
    pub total_s: f64,
}

impl Prepared {
    pub fn new(route: &Route, network: &Network) -> Result<Self, PlanError> {
        route.check(network.world())?;
        Self::slowed(route, network, route.slower(network))
    }

    /// As if links were so many times as long busy as they must be.
    pub fn slowed(route: &Route, network: &Network, slower: f64) -> Result<Self, PlanError> {
        let sent = route.exchange.sent(route.order.len())?;
        let (streams, classes) = streams(route, &sent);
        let (links, world) = (network.links().len(), network.world());
        let mut loads = vec![Load::none(classes.len()); links + world];
        let mut in_cycle = loads.clone();
        let mut bytes_per_element = vec![0.0; links];
        for stream in &streams {
            add(stream, route, network, &mut loads);
            if stream.stage == Stage::Cycle {
                add(stream, route, network, &mut in_cycle);
            }
            for &link in network.path(stream.from, stream.to) {
                bytes_per_element[link as usize] += stream.share * route.wire_bytes(stream.from, stream.to);
            }
        }
        for load in loads[..links].iter_mut().chain(&mut in_cycle[..links]) {
            load.element_s *= slower;
        }
        for (member, &rank) in route.order.iter().enumerate() {
            if route.exchange.inspects(member) {
                loads[links + rank as usize].element_s += route.item_bytes * COPY_S_PER_BYTE;
            }
        }
        let total = highest(&loads);
        let beside_s_per_element = route.item_bytes * route.exchange.beside_s_per_byte(route.order.len());
        for &rank in &route.order {
            loads[links + rank as usize].element_s += beside_s_per_element;
        }
        Ok(Self {
            chunks_per_element: classes.iter().map(|share| share / route.chunk_elements).collect(),
            cycle: highest(&in_cycle),
            total,
            loads,
            bytes_per_element,
            flows: streams.len(),
            beside_s_per_element,
            delays: Delays::new(&streams, &classes, sent.counts.depth, route, network),
            staged: None,
        })
    }

    /// The same for buckets on each member's device: all of one comes down and goes up, in pieces. Rows are copied otherwise, and
    /// their copies not counted.
    #[must_use]
    pub fn staged(mut self, route: &Route, bus: &Bus) -> Self {
        let copied_bytes = match route.exchange {
            Exchange::Gathered(_) => 0.0,
            _ => route.item_bytes,
        };
        let load = |way| Load {
            element_s: copied_bytes * bus.s_per_byte(way),
            ..Load::none(self.chunks_per_element.len())
        };
        let ways = [Way::Down, Way::Up].map(load);
        self.total.extend_from_slice(&ways);
        self.total = highest(&self.total);
        self.loads.extend(ways);
        self.staged = (copied_bytes > 0.0).then_some((copied_bytes, *bus));
        self
    }

    /// By class: chunks of a message.
    pub fn chunks(&self, elements: f64) -> Vec<f64> {
        self.chunks_per_element.iter().map(|per_element| (per_element * elements).max(1.0)).collect()
    }

    /// By class: of a message for each element of the bucket.
    pub fn chunks_per_element(&self) -> &[f64] {
        &self.chunks_per_element
    }

    pub fn alone(&self, elements: f64, chunks: &[f64]) -> Alone {
        let busiest_s =
            |loads: &[Load]| loads.iter().map(|load| load.busy_s(elements, chunks)).fold(0.0, f64::max);
        let delays = self.delays.of(elements);
        let cycle_s = delays.stall_s + delays.cycle_s.max(busiest_s(&self.cycle));
        let moving_s = cycle_s.max(busiest_s(&self.total));
        let beside_s = self.beside_s_per_element * elements;
        let (mut head_s, mut tail_s) = (delays.head_s, delays.tail_s);
        if let Some((item_bytes, bus)) = &self.staged {
            // Nothing moves before the first piece is down, nor when the last one goes up.
            let piece_bytes = (elements * item_bytes).min(PIECE_BYTES as f64);
            head_s += bus.carry_s(Way::Down, piece_bytes);
            tail_s += bus.carry_s(Way::Up, piece_bytes);
        }
        Alone { head_s, tail_s, total_s: head_s + moving_s + tail_s + beside_s }
    }
}

/// The flows between ranks, and the shares of the classes.
fn streams(route: &Route, sent: &Sent) -> (Vec<Stream>, Vec<f64>) {
    let mut classes: Vec<f64> = Vec::new();
    let whole = sent.counts.elements as f64 / sent.scale;
    let stream = |flow: &Flow| {
        let per_message = flow.elements as f64 / flow.messages as f64 / whole;
        let known = classes.iter().position(|share| share.to_bits() == per_message.to_bits());
        let class = known.unwrap_or_else(|| {
            classes.push(per_message);
            classes.len() - 1
        });
        Stream {
            from: route.order[flow.from],
            to: route.order[flow.to],
            stage: flow.stage,
            share: flow.elements as f64 / whole,
            reduced: flow.reduced as f64 / whole,
            messages: flow.messages as f64,
            class,
        }
    };
    let streams = sent.counts.flows.iter().map(stream).collect();
    (streams, classes)
}

fn add(stream: &Stream, route: &Route, network: &Network, loads: &mut [Load]) {
    let (from, to) = (stream.from, stream.to);
    let (wire, plain) = (route.wire_bytes(from, to), route.item_bytes);
    for &link in network.path(from, to) {
        loads[link as usize].element_s += stream.share * wire * 8.0 / network.bit_per_s(link);
    }
    let tcp_s = if network.is_remote(from, to) { wire * TCP_S_PER_BYTE } else { 0.0 };
    let cast_s = if wire < plain { plain * CAST_S_PER_BYTE } else { 0.0 };
    for rank in [from, to] {
        let load = &mut loads[network.links().len() + rank as usize];
        load.element_s += stream.share * (tcp_s + cast_s);
        load.message_s[stream.class] += stream.messages * MESSAGE_S;
    }
    loads[network.links().len() + to as usize].element_s += stream.reduced * plain * REDUCE_S_PER_BYTE;
}

/// Those that no other dominates.
fn highest(loads: &[Load]) -> Vec<Load> {
    let mut found: Vec<Load> = Vec::new();
    for load in loads {
        if !found.iter().any(|known| known.covers(load)) {
            found.retain(|known| !load.covers(known));
            found.push(load.clone());
        }
    }
    found
}
