//! Routes that a search finds for a network: orders, groups and owners that follow from links alone, whatever racks and hosts are.
//!
//! Two searches by threshold accepting (Dueck and Scheuer 1990). The first looks for the route that is fastest alone. The others look
//! for routes that a mix of those known lacks: by the weights of links and engines under which the best mix takes longest
//! (`packing.rs`), a route that weighs less makes a faster mix possible (column generation, Gilmore and Gomory 1961).

use crate::error::PlanError;
use crate::exchange::Exchange;
use crate::packing::{packed, weighed};
use crate::prepared::Prepared;
use crate::proposal::{Proposal, Setting};
use crate::route::Route;
use crate::shape::Shape;
use hocket_algorithms::{Algorithm, Via};
use hocket_network::Network;
use std::collections::{BTreeMap, BTreeSet};

/// The rule of routes that follow from links alone.
pub const SEARCHED: &str = "searched";

/// Flows of all routes that are looked at: what a look costs. What fair shares of links cost takes so many looks as a part of its
/// flows.
const FLOWS_MAX: usize = 800_000;
/// Of them, of chains.
const CHAINS_MAX: usize = 100_000;
const FAIR: usize = 32;
/// Routes that a search of the fastest one looks at.
const FASTEST: usize = 2_000;
/// Routes that a search of one to mix looks at, and how often there is one.
const TO_MIX: usize = 500;
const MIXES: usize = 6;
/// Of packing, each time.
const OPERATIONS_MAX: usize = 20_000_000;
/// Known routes that a search begins with.
const STARTS: usize = 4;
/// The first threshold, as a part of what the start takes.
const FIRST: f64 = 0.1;
/// What all links together count beside the busiest one.
const MEAN: f64 = 0.02;
/// What a route must take of those known, alone or by weight, to be one more.
const FASTER: f64 = 0.99;
/// A route without owners may take so much of the fastest one, to be mixed with others.
const NEAR: f64 = 1.5;
/// And a chain, to be one more in any case.
const CHAIN: f64 = 1.2;

/// A route that a search looks at.
#[derive(Clone)]
struct Seen {
    shape: Shape,
    /// Of each link and engine, for all elements.
    busy_s: Vec<f64>,
    alone_s: f64,
    flows: usize,
}

struct Search<'a> {
    network: &'a Network,
    setting: &'a Setting,
    /// Of an element, and how many there are.
    item_bytes: f64,
    elements: f64,
    random: fastrand::Rng,
    flows: usize,
}

/// Those for so many elements of that many bytes that are better than `known`, alone or in a mix.
pub fn found(
    network: &Network,
    setting: &Setting,
    known: &[Proposal],
    item_bytes: f64,
    elements: f64,
) -> Result<Vec<Proposal>, PlanError> {
    let random = fastrand::Rng::with_seed(setting.seed);
    let mut search = Search { network, setting, item_bytes, elements, random, flows: 0 };
    let mut columns = Vec::new();
    for each in known {
        let shape = Shape::of(&each.exchange, &each.order, setting.workers, network.world());
        columns.extend(shape.map(|shape| search.seen(shape)).transpose()?);
    }
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let first = columns.len();
    // Without owners, too: messages of rings and chains do not wait for one another as theirs do.
    let kinds: &[bool] = if setting.admits("owned") { &[false, true] } else { &[false] };
    let chain = search.chain()?;
    for &owners in kinds {
        search.add_fastest(&mut columns, chain.clone(), owners)?;
    }
    for _ in 0..MIXES {
        let mut more = false;
        for &owners in kinds {
            more = more || search.add_to_mix(&mut columns, owners)?;
        }
        if !more {
            break;
        }
    }
    // A chain there and back fills links in both directions all the time, which its sum of links and engines does not show.
    // Through two racks it is what groups of racks are.
    let least_s = columns.iter().map(|seen| seen.alone_s).fold(f64::INFINITY, f64::min);
    let new = |chain: &Seen| columns.iter().all(|seen| seen.shape != chain.shape);
    let racks: BTreeSet<u32> = setting.racks.iter().copied().collect();
    let chain = chain.filter(|chain| racks.len() > 2 && chain.alone_s < CHAIN * least_s && new(chain));
    columns.extend(chain);
    Ok(columns.drain(first..).map(|seen| search.proposal(&seen.shape)).collect())
}

impl Search<'_> {
    /// The route that takes least alone, if none that is known is as fast.
    fn add_fastest(
        &mut self,
        columns: &mut Vec<Seen>,
        chain: Option<Seen>,
        owners: bool,
    ) -> Result<(), PlanError> {
        let energy = |seen: &Seen| seen.alone_s + MEAN * seen.mean_s();
        let found = self.searched(columns, chain, owners, FASTEST, &energy)?;
        let least = |columns: &[Seen], owners: bool| {
            let meant = columns.iter().filter(|seen| owners || seen.shape.shares.is_empty());
            meant.map(|seen| seen.alone_s).fold(f64::INFINITY, f64::min)
        };
        let limit = (FASTER * least(columns, owners)).min(NEAR * least(columns, true));
        columns.extend(found.into_iter().filter(|found| found.alone_s < limit));
        Ok(())
    }

    /// A chain through all racks. It passes the trunks of its first and its last rack once in each direction, and those of the
    /// racks between twice: each end goes to the rack with which the chain is fastest.
    fn chain(&mut self) -> Result<Option<Seen>, PlanError> {
        let mut racks = BTreeMap::<u32, Vec<u32>>::new();
        for (rank, &rack) in (0..self.setting.workers as u32).zip(&self.setting.racks) {
            racks.entry(rack).or_default().push(rank);
        }
        let mut racks: Vec<Vec<u32>> = racks.into_values().collect();
        let first =
            Shape { order: racks.concat(), sizes: vec![self.setting.workers as u32], shares: Vec::new() };
        if !self.admits(&first) {
            return Ok(None);
        }
        let mut best = self.seen(first.clone())?;
        for end in [0, racks.len() - 1] {
            for at in 0..racks.len() {
                if self.flows > CHAINS_MAX {
                    return Ok(Some(best));
                }
                let mut moved = racks.clone();
                let rack = moved.remove(at);
                moved.insert(end, rack);
                let seen = self.seen(Shape { order: moved.concat(), ..first.clone() })?;
                if seen.alone_s < best.alone_s {
                    (best, racks) = (seen, moved);
                }
            }
        }
        Ok(Some(best))
    }

    /// A route that makes the best mix faster; whether there is one.
    fn add_to_mix(&mut self, columns: &mut Vec<Seen>, owners: bool) -> Result<bool, PlanError> {
        let loads: Vec<Vec<f64>> = columns.iter().map(|seen| seen.busy_s.clone()).collect();
        let mix = packed(&loads, OPERATIONS_MAX);
        let weighs = |seen: &Seen| weighed(&mix.weights, &seen.busy_s);
        let energy = |seen: &Seen| weighs(seen) + MEAN * seen.mean_s();
        let found = self.searched(columns, None, owners, TO_MIX, &energy)?;
        let found = found.filter(|found| weighs(found) < FASTER * mix.least_s);
        let more = found.is_some();
        columns.extend(found);
        Ok(more)
    }

    /// The best of so many routes, beginning with the best known ones and `more`; `None` where that many flows were looked at.
    fn searched(
        &mut self,
        known: &[Seen],
        more: Option<Seen>,
        owners: bool,
        routes: usize,
        energy: &dyn Fn(&Seen) -> f64,
    ) -> Result<Option<Seen>, PlanError> {
        let meant = known.iter().chain(&more).filter(|seen| owners || seen.shape.shares.is_empty());
        let mut starts: Vec<(f64, Shape)> = meant.map(|seen| (energy(seen), seen.shape.clone())).collect();
        starts.sort_by(|one, other| one.0.total_cmp(&other.0));
        starts.truncate(STARTS);
        let each = routes / starts.len().max(1);
        let mut best: Option<(f64, Seen)> = more.map(|seen| (energy(&seen), seen));
        for (start, shape) in starts {
            let (mut current, mut shape) = (start, shape);
            for at in 0..each {
                if self.flows > FLOWS_MAX {
                    return Ok(best.map(|(_, seen)| seen));
                }
                let limit = current + FIRST * start * (each - at) as f64 / each as f64;
                let next = shape.changed(self.network.world(), owners, &mut self.random);
                if next == shape || !self.admits(&next) {
                    continue;
                }
                let Some(seen) = self.seen_below(next, limit, energy)? else { continue };
                current = energy(&seen);
                shape.clone_from(&seen.shape);
                if best.as_ref().is_none_or(|(least, _)| current < *least) {
                    best = Some((current, seen));
                }
            }
        }
        Ok(best.map(|(_, seen)| seen))
    }

    /// A route, if its energy is no more than a limit. What sharing links costs takes longest to find out, and only adds to it.
    fn seen_below(
        &mut self,
        shape: Shape,
        limit: f64,
        energy: &dyn Fn(&Seen) -> f64,
    ) -> Result<Option<Seen>, PlanError> {
        let route = self.route(&shape);
        let plain = self.looked_at(&route, shape, 1.0)?;
        if energy(&plain) > limit || plain.shape.shares.is_empty() {
            return Ok((energy(&plain) <= limit).then_some(plain));
        }
        let seen = self.looked_at(&route, plain.shape, route.slower(self.network))?;
        self.flows += seen.flows * seen.flows / FAIR;
        Ok((energy(&seen) <= limit).then_some(seen))
    }

    fn admits(&self, shape: &Shape) -> bool {
        let names: &[&str] = match shape.route().0 {
            Exchange::AllReduce(Algorithm::Ring) => &["ring"],
            Exchange::AllReduce(_) => &["two_level.rack", "two_level.host"],
            _ => &["owned"],
        };
        names.iter().any(|name| self.setting.admits(name))
    }

    fn seen(&mut self, shape: Shape) -> Result<Seen, PlanError> {
        let route = self.route(&shape);
        self.looked_at(&route, shape, route.slower(self.network))
    }

    fn route(&self, shape: &Shape) -> Route {
        let (exchange, order) = shape.route();
        let chunk_elements = (self.setting.chunk_bytes / self.item_bytes).floor().max(1.0);
        Route { exchange, order, item_bytes: self.item_bytes, chunk_elements, codec: None }
    }

    fn looked_at(&mut self, route: &Route, shape: Shape, slower: f64) -> Result<Seen, PlanError> {
        let prepared = Prepared::slowed(route, self.network, slower)?;
        self.flows += prepared.flows;
        let chunks = prepared.chunks(self.elements);
        let busy_s = prepared.loads.iter().map(|load| load.busy_s(self.elements, &chunks)).collect();
        let alone_s = prepared.alone(self.elements, &chunks).total_s;
        Ok(Seen { alone_s, shape, busy_s, flows: prepared.flows })
    }

    fn proposal(&self, shape: &Shape) -> Proposal {
        let (exchange, order) = shape.route();
        let measured_as = match &exchange {
            Exchange::AllReduce(Algorithm::Ring) => "ring",
            Exchange::AllReduce(_) => "two_level.rack",
            Exchange::Owned(owned) if owned.via == Via::Direct => "direct",
            _ => "",
        };
        Proposal {
            exchange,
            order,
            rule: SEARCHED.to_owned(),
            codec: None,
            codec_links: Vec::new(),
            chunk_bytes: self.setting.chunk_bytes,
            measured_as,
        }
    }
}

impl Seen {
    fn mean_s(&self) -> f64 {
        self.busy_s.iter().sum::<f64>() / self.busy_s.len().max(1) as f64
    }
}
