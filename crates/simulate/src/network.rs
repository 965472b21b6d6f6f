//! Links and the routes over them: plain data. Knows nothing of flows.

use crate::error::Error;
use crate::time::{Picos, from_s};
use std::collections::HashMap;

/// One direction of a wire, a NIC, or a host's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// A name for people.
    pub name: String,
    /// Bytes per second, shared by its flows.
    pub bytes_per_s: f64,
    /// Burst after a rest that is long enough to fill it (a token bucket's); zero for wires.
    pub burst_bytes: f64,
    /// Share of the rate that remains for each doubling of the flows on it: TCP loses the rest where flows meet. 1: no
    /// loss.
    pub incast: f64,
    /// Longest delay of a receiver's announcement behind queued bytes, where the link is their bottleneck; zero:
    /// announcements overtake.
    pub queue_s: f64,
}

impl Link {
    /// An ideal one.
    pub fn new(name: impl Into<String>, bytes_per_s: f64) -> Self {
        Self { name: name.into(), bytes_per_s, burst_bytes: 0.0, incast: 1.0, queue_s: 0.0 }
    }
}

/// The path of bytes from one rank to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub source: u32,
    pub destination: u32,
    /// Indices of links, in any order, without duplicates.
    pub links: Vec<u32>,
    /// Latency of a byte, without queues.
    pub latency_s: f64,
}

/// Links, and a route for each ordered pair of ranks that talk.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) links: Vec<Link>,
    /// By route: source, destination.
    pub(crate) pairs: Vec<(u32, u32)>,
    pub(crate) latency: Vec<Picos>,
    /// Links of route `r` are `path[first[r]..first[r + 1]]`.
    pub(crate) first: Vec<u32>,
    pub(crate) path: Vec<u32>,
    has_queues: bool,
    /// By rank; empty: nobody knows.
    hosts: Vec<u32>,
    /// By ordered pair.
    index: HashMap<(u32, u32), u32>,
}

impl Network {
    /// Checks rates, latencies and indices.
    pub fn new(links: Vec<Link>, routes: &[Route]) -> Result<Self, Error> {
        let wrong = |what: String| Error::Network { what };
        for link in &links {
            if !(link.bytes_per_s > 0.0 && link.bytes_per_s.is_finite()) {
                return Err(wrong(format!("link `{}` carries {} B/s", link.name, link.bytes_per_s)));
            }
            if !(link.burst_bytes >= 0.0 && link.burst_bytes.is_finite()) {
                return Err(wrong(format!("link `{}` has a burst of {} bytes", link.name, link.burst_bytes)));
            }
            if !(link.queue_s >= 0.0 && link.queue_s.is_finite()) {
                return Err(wrong(format!("link `{}` has a queue of {} s", link.name, link.queue_s)));
            }
            if !(link.incast > 0.0 && link.incast <= 1.0) {
                return Err(wrong(format!(
                    "link `{}` keeps a share of {} under incast",
                    link.name, link.incast
                )));
            }
        }
        let mut network = Self {
            pairs: Vec::with_capacity(routes.len()),
            latency: Vec::with_capacity(routes.len()),
            first: vec![0],
            path: Vec::new(),
            has_queues: links.iter().any(|link| link.queue_s > 0.0),
            hosts: Vec::new(),
            index: HashMap::with_capacity(routes.len()),
            links,
        };
        for route in routes {
            let Route { source, destination, links, latency_s } = route;
            let named =
                |what: &str| wrong(format!("the route from rank {source} to rank {destination} {what}"));
            if links.is_empty() {
                return Err(named("crosses no link"));
            }
            if !(*latency_s >= 0.0 && latency_s.is_finite()) {
                return Err(named(&format!("has a latency of {latency_s} s")));
            }
            let mut sorted = links.clone();
            sorted.sort_unstable();
            if sorted.windows(2).any(|two| two[0] == two[1]) {
                return Err(named("crosses a link twice"));
            }
            if sorted.last().is_some_and(|&last| last as usize >= network.links.len()) {
                return Err(named("crosses a link that does not exist"));
            }
            let number = network.pairs.len() as u32;
            if network.index.insert((*source, *destination), number).is_some() {
                return Err(named("is given twice"));
            }
            network.pairs.push((*source, *destination));
            network.latency.push(from_s(*latency_s));
            network.path.extend(links);
            network.first.push(network.path.len() as u32);
        }
        Ok(network)
    }

    /// The same with the host of each rank: bytes between hosts pass through sockets.
    #[must_use]
    pub fn on_hosts(self, hosts: Vec<u32>) -> Self {
        Self { hosts, ..self }
    }

    /// The route from rank to rank.
    pub fn route(&self, source: u32, destination: u32) -> Result<u32, Error> {
        let missing =
            || Error::Network { what: format!("there is no route from rank {source} to rank {destination}") };
        self.index.get(&(source, destination)).copied().ok_or_else(missing)
    }

    /// Links on the reverse path of a route that delay announcements; none if that direction has no links.
    pub(crate) fn queues_back(&self, route: u32) -> impl Iterator<Item = u32> {
        let (source, destination) = self.pairs[route as usize];
        let back = if self.has_queues { self.index.get(&(destination, source)) } else { None };
        let links = back.map_or(&[][..], |&back| self.links_of(back));
        links.iter().copied().filter(|&link| self.links[link as usize].queue_s > 0.0)
    }

    /// Whether a route is between hosts.
    pub(crate) fn is_remote(&self, route: u32) -> bool {
        let (source, destination) = self.pairs[route as usize];
        let host = |rank: u32| self.hosts.get(rank as usize);
        host(source).zip(host(destination)).is_some_and(|(one, other)| one != other)
    }

    /// Links that a route crosses.
    pub fn links_of(&self, route: u32) -> &[u32] {
        &self.path[self.first[route as usize] as usize..self.first[route as usize + 1] as usize]
    }

    /// A link's rate, shared by its flows, bytes per second.
    pub fn capacity(&self, link: u32) -> f64 {
        self.links[link as usize].bytes_per_s
    }

    /// Number of routes.
    pub fn routes(&self) -> usize {
        self.pairs.len()
    }
}
