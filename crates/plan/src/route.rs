//! A bucket's route, and the flows between ranks that it is made of.

use crate::error::PlanError;
use crate::exchange::Exchange;
use crate::fair::{slower, slower_between};
use hocket_algorithms::{Algorithm, Owned, Stage};
use hocket_network::Network;
use serde::Deserialize;
use std::collections::HashSet;

/// How a bucket travels.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The joint operation of its members.
    pub exchange: Exchange,
    /// `order[member]`: the rank. Ranks that are missing have no part in the route.
    pub order: Vec<u32>,
    /// Bytes of an element in memory.
    pub item_bytes: f64,
    /// Maximum message length, in elements.
    pub chunk_elements: f64,
    /// The codec on some links.
    pub codec: Option<Codec>,
}

/// A shorter form of elements on the wire.
#[derive(Clone, Debug, Deserialize)]
pub struct Codec {
    /// Bytes of an element on the wire; elements that are shorter in memory stay unchanged.
    pub item_bytes: f64,
    /// Ordered pairs of ranks that use it.
    pub links: HashSet<(u32, u32)>,
}

impl Route {
    /// Bytes of an element between two ranks.
    pub fn wire_bytes(&self, from: u32, to: u32) -> f64 {
        match &self.codec {
            Some(codec) if codec.links.contains(&(from, to)) => self.item_bytes.min(codec.item_bytes),
            _ => self.item_bytes,
        }
    }

    /// What sharing links costs beside the busiest one.
    pub fn slower(&self, network: &Network) -> f64 {
        let bytes = |from, to| self.wire_bytes(from, to);
        match &self.exchange {
            Exchange::Owned(owned) => slower(owned, &self.order, &bytes, network),
            Exchange::AllReduce(Algorithm::ParameterServer { servers }) => {
                slower(&Owned::first(*servers as usize, self.order.len()), &self.order, &bytes, network)
            }
            Exchange::AllReduce(Algorithm::CollectSpread { shares }) => {
                slower_between(shares, &self.order, &bytes, network)
            }
            _ => 1.0,
        }
    }

    pub(crate) fn check(&self, world: usize) -> Result<(), PlanError> {
        let mut seen = vec![false; world];
        let fresh = |&rank: &u32| {
            seen.get_mut(rank as usize).is_some_and(|seen: &mut bool| !std::mem::replace(seen, true))
        };
        if !self.order.is_empty() && self.order.iter().all(fresh) {
            return Ok(());
        }
        Err(PlanError::Order { order: self.order.clone(), world })
    }
}

/// A flow of a route between ranks.
pub struct Stream {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// The stage.
    pub stage: Stage,
    /// Its share of a bucket's elements.
    pub share: f64,
    /// The reduced part of the share.
    pub reduced: f64,
    /// Number of messages of an uncut bucket.
    pub messages: f64,
    /// Class of its messages.
    pub class: usize,
}
