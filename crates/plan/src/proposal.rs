//! A route that a search may use, and what proposals are made from.

use crate::exchange::{Exchange, Gathered, Rows};
use crate::route::{Codec, Route};
use hocket_algorithms::Algorithm;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// What proposals are made from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// Whether a search proposes routes, too.
    pub searched: bool,
    /// Of that search's random choices.
    pub seed: u64,
    /// Routes beside those that rules propose: of the plans that a search is given to begin with.
    pub given: Vec<Proposal>,
}

impl Setting {
    /// Whether routes of that name may be proposed.
    pub fn admits(&self, name: &str) -> bool {
        self.admitted.as_ref().is_none_or(|names| names.contains(name))
    }
}

/// An order, and how it came about.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The rule's name.
    pub rule: String,
    /// The only algorithm that it was solved for.
    pub algorithm: Option<Algorithm>,
    /// `ranks[member]`.
    pub ranks: Vec<u32>,
}

/// A route for tensors of any type.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
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
    #[serde(default)]
    pub codec_links: Vec<(u32, u32)>,
    /// The longest message.
    pub chunk_bytes: f64,
    /// The name under which its algorithm is measured: of owners that of everybody with everybody, whose parts all own. Empty where
    /// nothing like it is.
    #[serde(skip_deserializing)]
    pub measured_as: &'static str,
}

impl Proposal {
    /// For a type of tensors; none where it does not fit the type.
    pub fn route(&self, class: &Class, codecs: &[Codec]) -> Option<Route> {
        let exchange = match (&self.exchange, class.rows) {
            (Exchange::Gathered(gathered), Some(rows)) => {
                Exchange::Gathered(Gathered { algorithm: gathered.algorithm.clone(), rows })
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
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Class {
    /// Of an element.
    pub item_bytes: f64,
    /// Where gradients may travel as rows.
    pub rows: Option<Rows>,
}
