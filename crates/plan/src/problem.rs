//! The planning problem: a model's gradients, and the cost of each on each route.

use crate::constants::BUCKET_S;
use crate::cost::{Cost, Launch};
use crate::error::PlanError;
use crate::exchange::Exchange;
use crate::proposal::{Class, Proposal, Setting};
use crate::proposals::proposals;
use crate::route::Route;
use crate::timeline::{Outcome, Piece};
use crate::volume::least_s_per_byte;
use hocket_network::Network;
use serde::Deserialize;
use std::rc::Rc;

/// Minimum number of elements of a part of a variable.
pub const PART_ELEMENTS_MIN: u64 = 16_384;
/// Variables are cut at multiples of this many elements, so that memory stays aligned.
pub const CUT_ELEMENTS: u64 = 64;

/// A gradient.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Variable {
    /// Number of elements.
    pub elements: u64,
    /// Index of its class: tensors of different classes share no bucket.
    pub class: usize,
    /// When it is made, in seconds after forward began.
    pub ready_s: f64,
}

/// A step without communication.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// In the order of the model.
    pub variables: Vec<Variable>,
    /// Types of tensors.
    pub classes: Vec<Class>,
    /// When backward ends, in seconds after forward began.
    pub backward_end_s: f64,
    /// Duration of a step without communication.
    pub step_s: f64,
}

/// Measured times over the model's, of one route: by elements, ascending.
pub type Factors = Vec<(f64, f64)>;

/// Some elements of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// Position of the variable in backward's order.
    pub place: usize,
    /// First element.
    pub start: u64,
    /// One after the last element.
    pub stop: u64,
}

/// A bucket on a route.
pub struct Placed {
    /// In the order in which they are made.
    pub parts: Vec<Part>,
    /// Elements of its parts.
    pub class: usize,
    /// Index of the proposal.
    pub proposal: usize,
    pub piece: Piece,
}

impl std::borrow::Borrow<Piece> for Rc<Placed> {
    fn borrow(&self) -> &Piece {
        &self.piece
    }
}

/// Variables, routes, and their cost.
pub struct Problem {
    /// A step without communication.
    pub model: Model,
    /// Routes, simplest first.
    pub proposals: Vec<Proposal>,
    /// Variables in backward's order.
    pub backward: Vec<usize>,
    /// Of all routes.
    pub cost: Cost,
    /// By class: proposals that fit it.
    pub fitting: Vec<Vec<usize>>,
    /// By class: those that no other dominates.
    pub live: Vec<Vec<usize>>,
    /// By class: seconds that each element takes at least, whatever its route.
    pub least_s: Vec<f64>,
    /// Between the two nearest hosts.
    pub latency_s: f64,
    /// Of the routes that were given: the proposal.
    pub given: Vec<usize>,
    /// How many proposals rules have made; those after them were given alone.
    pub ruled: usize,
    /// By class and proposal: the route.
    routes: Vec<Vec<Option<usize>>>,
    factors: Vec<Factors>,
}

impl Problem {
    /// `factors`: by the name under which an algorithm is measured.
    pub fn new(
        network: &Network,
        setting: &Setting,
        model: Model,
        factors: &[(String, Factors)],
    ) -> Result<Self, PlanError> {
        check(&model)?;
        let sparse = model.classes.iter().any(|class| class.rows.is_some());
        let mut proposals = proposals(network, setting, sparse, dense(&model))?;
        let ruled = proposals.len();
        let given = setting.given.iter().map(|route| known_or_added(&mut proposals, route)).collect();
        let (mut all, mut routes): (Vec<Route>, _) = (Vec::new(), Vec::new());
        for class in &model.classes {
            let mut place = |proposal: &Proposal| {
                proposal.route(class, &setting.codecs).map(|route| {
                    all.push(route);
                    all.len() - 1
                })
            };
            routes.push(proposals.iter().map(&mut place).collect::<Vec<_>>());
        }
        let cost = Cost::new(network, &all)?;
        let known = |proposal: &Proposal| {
            factors.iter().find(|(name, _)| name == proposal.measured_as).map(|(_, each)| each.clone())
        };
        let factors = proposals.iter().map(|proposal| known(proposal).unwrap_or_default()).collect();
        let fitting: Vec<Vec<usize>> = routes
            .iter()
            .map(|of: &Vec<Option<usize>>| (0..of.len()).filter(|&at| of[at].is_some()).collect())
            .collect();
        let backward = backward(&model.variables);
        let live = fitting.clone();
        let least_s = least(network, setting, &model.classes);
        let latency_s = nearest_s(network);
        let mut made = Self {
            model,
            proposals,
            backward,
            cost,
            fitting,
            live,
            least_s,
            latency_s,
            given,
            ruled,
            routes,
            factors,
        };
        for class in 0..made.live.len() {
            made.live[class] = made.not_dominated(class)?;
        }
        Ok(made)
    }

    /// The variable at a position in backward's order.
    pub fn variable(&self, place: usize) -> &Variable {
        &self.model.variables[self.backward[place]]
    }

    /// Route of a proposal for a class.
    pub fn route(&self, class: usize, proposal: usize) -> Option<usize> {
        self.routes[class][proposal]
    }

    /// A bucket of parts of one class; `None` if the proposal does not fit it, or its parts cannot lie next to one another.
    pub fn placed(&self, mut parts: Vec<Part>, proposal: usize) -> Option<Rc<Placed>> {
        parts.sort_unstable();
        if !self.is_one_piece(&parts) {
            return None;
        }
        let class = self.variable(parts.first()?.place).class;
        let route = self.route(class, proposal)?;
        if matches!(self.proposals[proposal].exchange, Exchange::Gathered(_)) && !self.is_whole(&parts) {
            return None;
        }
        let elements = parts.iter().map(|part| part.stop - part.start).sum::<u64>() as f64;
        let of = |part: &Part| self.variable(part.place);
        let ready_s = parts.iter().map(|part| of(part).ready_s).fold(0.0, f64::max);
        let launch =
            Launch { route, elements, start_s: BUCKET_S + ready_s, factor: self.factor(proposal, elements) };
        let piece = self.cost.piece(&launch).ok()?;
        Some(Rc::new(Placed { parts, class, proposal, piece }))
    }

    /// Whether a bucket is one variable, all of it: rows are of nothing else.
    fn is_whole(&self, parts: &[Part]) -> bool {
        let [part] = parts else { return false };
        part.start == 0 && part.stop == self.variable(part.place).elements
    }

    /// Whether a bucket's elements can lie in one piece, although each variable does: it may begin within one variable and end
    /// within another. Others would be copied together in every step, and apart again.
    fn is_one_piece(&self, parts: &[Part]) -> bool {
        let (mut begins, mut ends) = (None, None);
        for part in parts {
            let cut = (part.start > 0, part.stop < self.variable(part.place).elements);
            let known = match cut {
                (false, false) => continue,
                (true, false) => begins.replace(part.place),
                (false, true) => ends.replace(part.place),
                (true, true) => return parts.len() == 1,
            };
            if known.is_some() {
                return false;
            }
        }
        // Both of one variable: what lies between them is elsewhere.
        begins.is_none() || begins != ends
    }

    /// Duration of a step.
    pub fn step_s(&self, outcome: &Outcome) -> f64 {
        self.model.step_s + self.waits_s(outcome)
    }

    /// Time from the end of backward until all buckets are done.
    pub fn waits_s(&self, outcome: &Outcome) -> f64 {
        (outcome.done_s - self.model.backward_end_s).max(0.0)
    }

    /// Factor on a route's time alone.
    pub fn factor(&self, proposal: usize, elements: f64) -> f64 {
        let factors = &self.factors[proposal];
        let above = factors.partition_point(|(known, _)| *known < elements);
        match (above.checked_sub(1).and_then(|at| factors.get(at)), factors.get(above)) {
            (Some((low, one)), Some((high, other))) => one + (other - one) * (elements - low) / (high - low),
            (Some((_, only)), None) | (None, Some((_, only))) => *only,
            (None, None) => 1.0,
        }
    }

    /// The smallest of these factors.
    pub fn least_factor(&self, proposal: usize) -> f64 {
        self.factors[proposal]
            .iter()
            .map(|(_, factor)| *factor)
            .fold(f64::INFINITY, f64::min)
            .min(if self.factors[proposal].is_empty() { 1.0 } else { f64::INFINITY })
    }

    /// Proposals of a class that no other dominates at every size; of equal ones the first.
    fn not_dominated(&self, class: usize) -> Result<Vec<usize>, PlanError> {
        let all = &self.fitting[class];
        let sizes = self.sizes(class)?;
        let mut asked: Vec<(usize, Vec<f64>)> = Vec::new();
        for &proposal in all {
            let mut numbers = Vec::new();
            for &elements in &sizes {
                let route = self.route(class, proposal).unwrap_or_default();
                let factor = self.factor(proposal, elements);
                let launch = Launch { route, elements, start_s: 0.0, factor };
                let piece = self.cost.piece(&launch)?;
                numbers.extend([piece.head_s, piece.tail_s, piece.alone_s]);
                numbers.extend(piece.busy_s);
            }
            let covers = |one: &[f64], other: &[f64]| one.iter().zip(other).all(|(one, other)| one <= other);
            if !asked.iter().any(|(_, known)| covers(known, &numbers)) {
                asked.retain(|(_, known)| !covers(&numbers, known));
                asked.push((proposal, numbers));
            }
        }
        Ok(asked.into_iter().map(|(proposal, _)| proposal).collect())
    }

    /// Bucket sizes at which costs bend, and between: from the smallest variable to all of a class.
    fn sizes(&self, class: usize) -> Result<Vec<f64>, PlanError> {
        let own = self.model.variables.iter().filter(|variable| variable.class == class);
        let sizes: Vec<f64> = own.map(|variable| variable.elements as f64).collect();
        let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min).max(1.0);
        let most = sizes.iter().sum::<f64>().max(1.0);
        let mut found = vec![smallest, most];
        for &proposal in &self.fitting[class] {
            let bends = self.cost.bends(self.route(class, proposal).unwrap_or_default())?;
            found.extend(bends.into_iter().filter(|&bend| smallest < bend && bend < most));
        }
        found.sort_by(f64::total_cmp);
        found.dedup();
        // A few of many bends: each one costs as much as evaluating a bucket.
        let every = found.len().div_ceil(12);
        let last = found.len() - 1;
        Ok(found
            .iter()
            .enumerate()
            .filter(|(at, _)| at % every == 0 || *at == last)
            .map(|(_, size)| *size)
            .collect())
    }
}

/// Index of a given route among the proposals, to which it is added if no other is the same.
fn known_or_added(proposals: &mut Vec<Proposal>, given: &Proposal) -> usize {
    let same = |known: &Proposal| {
        known.exchange == given.exchange
            && known.order == given.order
            && known.codec_links == given.codec_links
            && known.codec == given.codec
            && known.chunk_bytes.to_bits() == given.chunk_bytes.to_bits()
    };
    proposals.iter().position(same).unwrap_or_else(|| {
        let alike = proposals.iter().find(|known| known.exchange == given.exchange);
        let measured_as = alike.map_or(given.measured_as, |known| known.measured_as);
        proposals.push(Proposal { measured_as, ..given.clone() });
        proposals.len() - 1
    })
}

/// By class: seconds of an element whatever its route, in its shortest form on the wire.
fn least(network: &Network, setting: &Setting, classes: &[Class]) -> Vec<f64> {
    let byte_s = least_s_per_byte(network, &setting.racks, setting.workers);
    let shortest = setting.codecs.iter().map(|codec| codec.item_bytes).fold(f64::INFINITY, f64::min);
    let of = |class: &Class| {
        // All workers may have touched the same rows.
        let sent = class.rows.map_or(1.0, |rows| rows.density.min(1.0));
        byte_s * class.item_bytes.min(shortest) * sent
    };
    classes.iter().map(of).collect()
}

fn nearest_s(network: &Network) -> f64 {
    let ranks = 0..network.world() as u32;
    let pairs = ranks.clone().flat_map(|from| ranks.clone().map(move |to| (from, to)));
    let remote = pairs.filter(|&(from, to)| network.is_remote(from, to));
    remote.map(|(from, to)| network.latency_s(from, to)).fold(f64::INFINITY, f64::min)
}

/// Of the class with most bytes: those of an element, and how many there are.
fn dense(model: &Model) -> (f64, f64) {
    let elements = |class: usize| -> f64 {
        let own = model.variables.iter().filter(|variable| variable.class == class);
        own.map(|variable| variable.elements as f64).sum()
    };
    let sizes = model.classes.iter().enumerate().map(|(at, class)| (class.item_bytes, elements(at)));
    sizes.max_by(|one, other| (one.0 * one.1).total_cmp(&(other.0 * other.1))).unwrap_or((1.0, 1.0))
}

fn check(model: &Model) -> Result<(), PlanError> {
    let wrong = |what| Err(PlanError::Model(what));
    if model.variables.is_empty() {
        return wrong("gradients are none");
    }
    let time = |time_s: f64| time_s.is_finite() && time_s >= 0.0;
    if !time(model.backward_end_s) || !time(model.step_s) {
        return wrong("times are not 0 or more");
    }
    for variable in &model.variables {
        if variable.class >= model.classes.len() {
            return wrong("gradients are of a type that there is not");
        }
        if !time(variable.ready_s) {
            return wrong("gradients have times that are not 0 or more");
        }
    }
    if model.classes.iter().any(|class| class.item_bytes.is_nan() || class.item_bytes < 1.0) {
        return wrong("elements have less than a byte");
    }
    Ok(())
}

/// Variables by readiness; of equal ones the last of the model first.
fn backward(variables: &[Variable]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..variables.len()).collect();
    order.sort_by(|&one, &other| {
        variables[one].ready_s.total_cmp(&variables[other].ready_s).then(other.cmp(&one))
    });
    order
}
