//! The routes that a search may use: every algorithm that fits, owners of several kinds, orders and codecs.

use crate::exchange::{Exchange, Gathered};
use crate::network::{Network, PlanError};
use crate::route::{Codec, Route};
use hocket_algorithms::{Algorithm, Group, Kind, Owned, Via, fitting};
use std::collections::{BTreeSet, HashSet};

/// With more ranks, messages from everyone to everyone are not considered: they take seconds to count, and longer to run.
const QUADRATIC_RANKS_MAX: usize = 256;
/// With more ranks, no single rank is considered as the only owner.
const SINGLE_OWNERS_MAX: usize = 16;
/// Shares of owners are multiples of this part of the fastest one's.
const SHARES: f64 = 16.0;
/// Ranks whose own links differ by less are equally fast.
const EQUAL: f64 = 0.95;

/// What proposals are made from.
#[derive(Clone, Debug)]
pub struct Setting {
    /// By rank.
    pub racks: Vec<u32>,
    /// The first so many ranks have gradients; the others can only own parts.
    pub workers: usize,
    /// Of the workers, simplest first.
    pub orders: Vec<Order>,
    /// Shorter forms that are allowed, each on some pairs of ranks.
    pub codecs: Vec<Codec>,
    /// The longest message between hosts, and within one.
    pub chunk_bytes: f64,
    /// The longest message where all ranks share memory.
    pub shared_chunk_bytes: f64,
    /// Names under which algorithms are measured, and `owned` for owners; none: all that fit.
    pub admitted: Option<HashSet<String>>,
    /// Index of the only order that buckets may take; the others still say which algorithms fit.
    pub only: Option<usize>,
}

impl Setting {
    fn admits(&self, name: &str) -> bool {
        self.admitted.as_ref().is_none_or(|names| names.contains(name))
    }
}

/// An order, and how it came about.
#[derive(Clone, Debug)]
pub struct Order {
    /// The rule's name.
    pub rule: String,
    /// The only algorithm that it was solved for.
    pub algorithm: Option<Algorithm>,
    /// `ranks[member]`.
    pub ranks: Vec<u32>,
}

/// A route for tensors of any type.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// What members do.
    pub exchange: Exchange,
    /// `order[member]`: the rank.
    pub order: Vec<u32>,
    /// How order and owners came about.
    pub rule: String,
    /// Index of the codec.
    pub codec: Option<usize>,
    /// Pairs of ranks that the codec is used between, ascending.
    pub codec_links: Vec<(u32, u32)>,
    /// The longest message.
    pub chunk_bytes: f64,
    /// The name under which its algorithm is measured; empty where none is.
    pub measured_as: &'static str,
}

impl Proposal {
    /// For a type of tensors; none where it does not fit the type.
    pub fn route(&self, class: &Class, codecs: &[Codec]) -> Option<Route> {
        let exchange = match (&self.exchange, class.rows) {
            (Exchange::Gathered(rows), Some((density, row_bytes))) => {
                Exchange::Gathered(Gathered { density, row_bytes, algorithm: rows.algorithm.clone() })
            }
            (Exchange::Gathered(_), None) => return None,
            (other, _) => other.clone(),
        };
        let codec = self.codec.map(|at| Codec {
            item_bytes: codecs[at].item_bytes,
            links: self.codec_links.iter().copied().collect(),
        });
        let chunk_elements = (self.chunk_bytes / class.item_bytes).floor().max(1.0);
        Some(Route {
            exchange,
            order: self.order.clone(),
            item_bytes: class.item_bytes,
            chunk_elements,
            codec,
        })
    }
}

/// Tensors that travel together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Of an element.
    pub item_bytes: f64,
    /// Where gradients are sparse: of all rows, those that a worker's batch touches, and the bytes of a row.
    pub rows: Option<(f64, f64)>,
}

/// All proposals, simplest first, none twice.
pub fn proposals(network: &Network, setting: &Setting, sparse: bool) -> Result<Vec<Proposal>, PlanError> {
    if setting.racks.len() != network.world() || setting.workers > network.world() || setting.workers == 0 {
        return Err(PlanError::Network("racks or workers are not of its ranks"));
    }
    if setting.only.is_some_and(|only| only >= setting.orders.len()) {
        return Err(PlanError::Network("only order is not among those given"));
    }
    let mut plain = all_reduces(network, setting);
    if setting.workers > 1 {
        if setting.admits("owned") {
            plain.extend(owners(network, setting));
        }
        if sparse {
            plain.extend(gathers(setting));
        }
    }
    if let Some(only) = setting.only {
        plain.retain(|each| each.order == setting.orders[only].ranks);
    }
    let mut found = Vec::new();
    for codec in std::iter::once(None).chain((0..setting.codecs.len()).map(Some)) {
        for each in &plain {
            if let Some(each) = encoded(each, codec, network, setting)? {
                found.push(each);
            }
        }
    }
    Ok(found)
}

/// A proposal with a codec on the pairs that it uses; none where it uses none.
fn encoded(
    plain: &Proposal,
    codec: Option<usize>,
    network: &Network,
    setting: &Setting,
) -> Result<Option<Proposal>, PlanError> {
    let Some(at) = codec else { return Ok(Some(plain.clone())) };
    let sent = plain.exchange.sent(plain.order.len(), network)?;
    let pairs = sent.counts.flows.iter().map(|flow| (plain.order[flow.from], plain.order[flow.to]));
    let used: BTreeSet<(u32, u32)> = pairs.filter(|pair| setting.codecs[at].links.contains(pair)).collect();
    let with = Proposal { codec, codec_links: used.into_iter().collect(), ..plain.clone() };
    Ok((!with.codec_links.is_empty()).then_some(with))
}

fn all_reduces(network: &Network, setting: &Setting) -> Vec<Proposal> {
    let mut fits = Vec::new();
    for order in &setting.orders {
        let hosts: Vec<u32> = order.ranks.iter().map(|&rank| network.host(rank)).collect();
        let racks: Vec<u32> = order.ranks.iter().map(|&rank| setting.racks[rank as usize]).collect();
        for fit in fitting(Kind::AllReduce, &Group { hosts: &hosts, racks: &racks }) {
            if setting.admits(fit.measured_as) && !fits.contains(&fit) {
                fits.push(fit);
            }
        }
    }
    let many = setting.workers > QUADRATIC_RANKS_MAX;
    let mut found: Vec<Proposal> = Vec::new();
    for fit in fits {
        if many && matches!(fit.algorithm, Algorithm::Direct | Algorithm::InPlace) {
            continue;
        }
        let in_place = fit.algorithm == Algorithm::InPlace;
        for order in &setting.orders {
            let meant = order.algorithm.as_ref().is_none_or(|algorithm| *algorithm == fit.algorithm);
            let proposal = Proposal {
                exchange: Exchange::AllReduce(fit.algorithm.clone()),
                order: order.ranks.clone(),
                rule: order.rule.clone(),
                codec: None,
                codec_links: Vec::new(),
                chunk_bytes: if in_place { setting.shared_chunk_bytes } else { setting.chunk_bytes },
                measured_as: fit.measured_as,
            };
            // Everybody with everybody is the same in any order.
            let anyhow =
                matches!(fit.algorithm, Algorithm::Direct | Algorithm::InPlace) && setting.only.is_none();
            let known = found.iter().any(|each| each.exchange == proposal.exchange && anyhow);
            if meant && !known {
                found.push(proposal);
            }
        }
    }
    found
}

/// Owners by speed, leaders of racks, single ranks, and ranks that do not train.
fn owners(network: &Network, setting: &Setting) -> Vec<Proposal> {
    let workers = setting.workers;
    let remote = (0..workers as u32).any(|rank| network.is_remote(0, rank));
    if workers > QUADRATIC_RANKS_MAX || !remote {
        return Vec::new();
    }
    let speeds: Vec<f64> = (0..network.world() as u32).map(|rank| own_bit_per_s(network, rank)).collect();
    let blocks = rack_blocks(setting);
    // By rank; where every rank talks to owners by itself, any order will do.
    let direct = |shares: &[u32], rule: &str| {
        let order = match setting.only {
            Some(only) => setting.orders[only].ranks.clone(),
            None => (0..shares.len() as u32).collect(),
        };
        let shares = order.iter().map(|&rank| shares[rank as usize]).collect();
        let exchange = Exchange::Owned(Owned { shares, workers, via: Via::Direct });
        proposal(exchange, order, rule.to_owned(), setting)
    };
    let equal = |ranks: &[u32]| -> Vec<u32> {
        (0..workers as u32).map(|rank| u32::from(ranks.contains(&rank))).collect()
    };
    let mut sets: Vec<(&str, Vec<u32>)> = Vec::new();
    for class in speed_classes(&speeds[..workers]) {
        sets.push(("fastest hosts", equal(&class)));
    }
    sets.push(("rack leaders", equal(&blocks.iter().map(|block| block[0]).collect::<Vec<u32>>())));
    if workers <= SINGLE_OWNERS_MAX {
        sets.extend((0..workers as u32).map(|rank| ("one", equal(&[rank]))));
    }
    sets.push(("hosts by bandwidth", by_speed(&speeds[..workers])));
    let mut found: Vec<Proposal> = Vec::new();
    for (rule, shares) in sets {
        let proposal = direct(&shares, rule);
        // Equal parts of all are the direct exchange.
        let all_equal = shares.iter().all(|&share| share == shares[0]);
        if !all_equal && found.iter().all(|each| each.exchange != proposal.exchange) {
            found.push(proposal);
        }
    }
    if workers < speeds.len() && setting.only.is_none() {
        let idle: Vec<u32> = (0..speeds.len()).map(|rank| u32::from(rank >= workers)).collect();
        found.push(direct(&idle, "idle hosts"));
        found.push(direct(&by_speed(&speeds), "hosts by bandwidth"));
    }
    if 1 < blocks.len() && blocks.len() < workers {
        found.extend(stationed(&blocks, speeds.len(), setting));
    }
    found
}

/// Owners to whom the workers of a rack push and pull through its first.
fn stationed(blocks: &[Vec<u32>], world: usize, setting: &Setting) -> Vec<Proposal> {
    let workers = setting.workers;
    let order = blocks.concat();
    let owned = |shares: Vec<u32>, order: Vec<u32>, rule: &str| {
        let via = Via::Stations(blocks.iter().map(|block| block.len() as u32).collect());
        proposal(Exchange::Owned(Owned { shares, workers, via }), order, rule.to_owned(), setting)
    };
    let leads = |rank: &u32| u32::from(blocks.iter().any(|block| block[0] == *rank));
    let mut found = vec![owned(order.iter().map(leads).collect(), order.clone(), "rack leaders")];
    if workers < world {
        let order = [order, (workers as u32..world as u32).collect()].concat();
        let idle = order.iter().map(|&rank| u32::from(rank as usize >= workers)).collect();
        found.push(owned(idle, order, "idle hosts"));
    }
    found
}

fn by_speed(speeds: &[f64]) -> Vec<u32> {
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    speeds.iter().map(|speed| (SHARES * speed / fastest).round() as u32).collect()
}

fn gathers(setting: &Setting) -> Vec<Proposal> {
    let orders = setting.orders.iter().filter(|order| order.algorithm.is_none());
    let rows = |algorithm| Exchange::Gathered(Gathered { algorithm, density: 1.0, row_bytes: 1.0 });
    let ring =
        |order: &Order| proposal(rows(Algorithm::Ring), order.ranks.clone(), order.rule.clone(), setting);
    let mut found: Vec<Proposal> = orders.map(ring).collect();
    if setting.workers <= QUADRATIC_RANKS_MAX {
        let order = (0..setting.workers as u32).collect();
        found.push(proposal(rows(Algorithm::Direct), order, "given".to_owned(), setting));
    }
    found
}

fn proposal(exchange: Exchange, order: Vec<u32>, rule: String, setting: &Setting) -> Proposal {
    let chunk_bytes = setting.chunk_bytes;
    Proposal { exchange, order, rule, codec: None, codec_links: Vec::new(), chunk_bytes, measured_as: "" }
}

/// Workers of each rack, racks as they first appear.
fn rack_blocks(setting: &Setting) -> Vec<Vec<u32>> {
    let mut blocks: Vec<(u32, Vec<u32>)> = Vec::new();
    for rank in 0..setting.workers as u32 {
        let rack = setting.racks[rank as usize];
        match blocks.iter_mut().find(|(known, _)| *known == rack) {
            Some((_, block)) => block.push(rank),
            None => blocks.push((rack, vec![rank])),
        }
    }
    blocks.into_iter().map(|(_, block)| block).collect()
}

/// Ranks that are at least about as fast as one of them, for each that is faster than the slowest; fewest first.
fn speed_classes(speeds: &[f64]) -> Vec<Vec<u32>> {
    let mut descending = speeds.to_vec();
    descending.sort_by(|one, other| other.total_cmp(one));
    let steps = descending.windows(2).filter(|two| two[1] < EQUAL * two[0]);
    let faster = |least: f64| -> Vec<u32> {
        (0..speeds.len() as u32).filter(|&rank| speeds[rank as usize] >= least).collect()
    };
    steps.map(|two| faster(two[0])).collect()
}

/// Rate of the narrowest link that all of a rank's traffic with other hosts crosses, either way; of its fastest path where it has
/// no such link.
fn own_bit_per_s(network: &Network, rank: u32) -> f64 {
    let others: Vec<u32> =
        (0..network.world() as u32).filter(|&other| network.is_remote(rank, other)).collect();
    let way = |outward: bool| -> f64 {
        let path = |other: u32| if outward { network.path(rank, other) } else { network.path(other, rank) };
        let mut crossed = vec![0_usize; network.links()];
        others.iter().flat_map(|&other| path(other)).for_each(|&link| crossed[link as usize] += 1);
        let own = (0..crossed.len()).filter(|&link| crossed[link] == others.len() && !others.is_empty());
        own.map(|link| network.bit_per_s(link as u32)).fold(f64::INFINITY, f64::min)
    };
    let own = way(true).min(way(false));
    if own.is_finite() {
        return own;
    }
    let narrowest = |other: &u32| {
        let links = network.path(rank, *other).iter();
        links.map(|&link| network.bit_per_s(link)).fold(f64::INFINITY, f64::min)
    };
    others.iter().map(narrowest).fold(1.0, f64::max)
}
