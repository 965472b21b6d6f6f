//! The delays of one bucket that pipelining leaves, besides the busiest link.

use crate::constants::{MESSAGE_S, TCP_S_PER_BYTE};
use crate::route::{Route, Stream};
use hocket_algorithms::Stage;
use hocket_network::Network;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds of one bucket.
#[expect(clippy::struct_field_names, reason = "units come last")]
pub struct Delay {
    /// One chunk through the longest chain before the cycle.
    pub head_s: f64,
    /// Until the last leader's own share has come down its chain.
    pub stall_s: f64,
    /// The cycle's steps, each at least the mean time of one chunk over a pair, or of a message if that is shorter.
    pub cycle_s: f64,
    /// One chunk through the longest chain after the cycle, and the cycle's last message.
    pub tail_s: f64,
}

/// The same for any number of elements.
pub struct Delays {
    chunk_elements: f64,
    /// By class: a message's share of the elements.
    shares: Vec<f64>,
    heads: Vec<Path>,
    stall_s_per_element: f64,
    cycle: Option<Path>,
    tails: Vec<Path>,
    last_s: f64,
}

/// Chunks one after the other: seconds apart from the transfers, and by class those of one element.
#[derive(Clone)]
struct Path {
    fixed_s: f64,
    element_s: Vec<f64>,
}

impl Delays {
    pub fn new(streams: &[Stream], shares: &[f64], depth: usize, route: &Route, network: &Network) -> Self {
        let of = |wanted: fn(Stage) -> Option<u32>| -> Vec<(u32, &Stream)> {
            streams.iter().filter_map(|stream| Some((wanted(stream.stage)?, stream))).collect()
        };
        let cycle = of(|stage| (stage == Stage::Cycle).then_some(0));
        let rises = of(|stage| if let Stage::Rise(chain) = stage { Some(chain) } else { None });
        let falls = of(|stage| if let Stage::Fall(chain) = stage { Some(chain) } else { None });
        let sharing = Sharing::new(&rises, route, network);
        // A member of the cycle starts with the share of its own number, so its chain delivers those before it first.
        let members: BTreeSet<u32> = cycle.iter().map(|(_, stream)| stream.from).collect();
        let stall = |&(place, stream): &(u32, &Stream)| {
            f64::from(place) / members.len().max(1) as f64 * sharing.element_s(stream) * stream.share
        };
        let latency_s = |(_, stream): &(u32, &Stream)| network.latency_s(stream.from, stream.to);
        Self {
            chunk_elements: route.chunk_elements,
            shares: shares.to_vec(),
            stall_s_per_element: rises.iter().map(stall).fold(0.0, f64::max),
            heads: chained(&rises, shares.len(), &sharing, network),
            tails: chained(&falls, shares.len(), &Sharing::new(&falls, route, network), network),
            last_s: cycle.iter().map(latency_s).fold(0.0, f64::max),
            cycle: mean(&cycle, shares.len(), depth, &Sharing::new(&cycle, route, network), network),
        }
    }

    pub fn of(&self, elements: f64) -> Delay {
        let path_s = |path: &Path| {
            let chunk = |share: &f64| (elements * share).min(self.chunk_elements);
            let transfers = path.element_s.iter().zip(&self.shares);
            transfers.fold(path.fixed_s, |sum, (element_s, share)| sum + element_s * chunk(share))
        };
        let longest_s = |paths: &[Path]| paths.iter().map(path_s).fold(0.0, f64::max);
        Delay {
            head_s: longest_s(&self.heads),
            stall_s: self.stall_s_per_element * elements,
            cycle_s: self.cycle.as_ref().map_or(0.0, path_s),
            tail_s: longest_s(&self.tails) + self.last_s,
        }
    }
}

/// Streams that run at the same time: those that cross a link share it, and those of a rank its engine.
struct Sharing<'a> {
    route: &'a Route,
    network: &'a Network,
    /// By link.
    crossing: Vec<u32>,
    /// By rank, of those between hosts.
    ending: Vec<u32>,
}

impl<'a> Sharing<'a> {
    fn new(streams: &[(u32, &Stream)], route: &'a Route, network: &'a Network) -> Self {
        let (mut crossing, mut ending) = (vec![0; network.links().len()], vec![0; network.world()]);
        for (_, stream) in streams {
            network.path(stream.from, stream.to).iter().for_each(|&link| crossing[link as usize] += 1);
            if network.is_remote(stream.from, stream.to) {
                for rank in [stream.from, stream.to] {
                    ending[rank as usize] += 1;
                }
            }
        }
        Self { route, network, crossing, ending }
    }

    /// One element over the path, with its share of each link and of both ends' engines.
    fn element_s(&self, stream: &Stream) -> f64 {
        let (from, to) = (stream.from, stream.to);
        let bytes = self.route.wire_bytes(from, to);
        let ends = if self.network.is_remote(from, to) { &[from, to][..] } else { &[] };
        let engines = ends.iter().map(|&rank| TCP_S_PER_BYTE * f64::from(self.ending[rank as usize]));
        let links = self
            .network
            .path(from, to)
            .iter()
            .map(|&link| 8.0 * f64::from(self.crossing[link as usize]) / self.network.bit_per_s(link));
        bytes * links.chain(engines).fold(0.0, f64::max)
    }
}

/// A path for each chain, without those that are never shorter than another.
fn chained(
    streams: &[(u32, &Stream)],
    classes: usize,
    sharing: &Sharing<'_>,
    network: &Network,
) -> Vec<Path> {
    let mut paths: BTreeMap<u32, Path> = BTreeMap::new();
    for (chain, stream) in streams {
        let path =
            paths.entry(*chain).or_insert_with(|| Path { fixed_s: 0.0, element_s: vec![0.0; classes] });
        path.fixed_s += network.latency_s(stream.from, stream.to) + 2.0 * MESSAGE_S;
        path.element_s[stream.class] += sharing.element_s(stream);
    }
    let covers = |one: &Path, other: &Path| {
        one.fixed_s >= other.fixed_s
            && one.element_s.iter().zip(&other.element_s).all(|(one, other)| one >= other)
    };
    let mut found: Vec<Path> = Vec::new();
    for path in paths.into_values() {
        if !found.iter().any(|known| covers(known, &path)) {
            found.retain(|known| !covers(&path, known));
            found.push(path);
        }
    }
    found
}

/// `depth` steps of the mean stream.
fn mean(
    streams: &[(u32, &Stream)],
    classes: usize,
    depth: usize,
    sharing: &Sharing<'_>,
    network: &Network,
) -> Option<Path> {
    let steps = depth as f64 / streams.len() as f64;
    let mut path = Path { fixed_s: 0.0, element_s: vec![0.0; classes] };
    for (_, stream) in streams {
        path.fixed_s += steps * (network.latency_s(stream.from, stream.to) + 2.0 * MESSAGE_S);
        path.element_s[stream.class] += steps * sharing.element_s(stream);
    }
    (!streams.is_empty()).then_some(path)
}
