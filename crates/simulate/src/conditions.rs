//! Costs of ops, and disturbances: constants of the machines, chance from a seed, stragglers, links that change.

use crate::error::Error;
use hocket_network::{Bus, Network};

/// Engine time of ops. Seconds, and seconds per byte of full-width elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Per message on the sending side.
    pub send_s: f64,
    /// Per message on the receiving side.
    pub receive_s: f64,
    /// Adding elements to those in memory.
    pub reduce_s_per_byte: f64,
    /// Narrowing or widening elements.
    pub cast_s_per_byte: f64,
    /// Copying, scaling or scanning elements.
    pub copy_s_per_byte: f64,
    /// Writing bytes to a socket, and again reading them, while they move: only between hosts.
    pub socket_s_per_byte: f64,
    /// Whether data flows only once its receive is posted, which the receiver announces a latency ahead (the native
    /// executor); otherwise data flows at once and waits at the receiver.
    pub rendezvous: bool,
    /// The bus of each rank's device, for programs whose buckets lie there.
    pub bus: Option<Bus>,
}

impl Costs {
    /// Only the network takes time.
    pub const NONE: Self = Self {
        send_s: 0.0,
        receive_s: 0.0,
        reduce_s_per_byte: 0.0,
        cast_s_per_byte: 0.0,
        copy_s_per_byte: 0.0,
        socket_s_per_byte: 0.0,
        rendezvous: true,
        bus: None,
    };

    /// Seconds of either end's engine for a byte on a route, while it moves.
    pub(crate) fn socket_on(&self, route: u32, network: &Network) -> f64 {
        let (from, to) = network.ends(route);
        if network.is_remote(from, to) { self.socket_s_per_byte } else { 0.0 }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let all = [
            ("send_s", self.send_s),
            ("receive_s", self.receive_s),
            ("reduce_s_per_byte", self.reduce_s_per_byte),
            ("cast_s_per_byte", self.cast_s_per_byte),
            ("copy_s_per_byte", self.copy_s_per_byte),
            ("socket_s_per_byte", self.socket_s_per_byte),
        ];
        for (name, value) in all {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(Error::Job { what: format!("cost `{name}` is {value}") });
            }
        }
        Ok(self.bus.as_ref().map_or(Ok(()), Bus::check)?)
    }
}

/// A link changes its rate; zero: it fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapacityChange {
    /// Virtual time.
    pub at_s: f64,
    /// Index.
    pub link: u32,
    /// From then on.
    pub bit_per_s: f64,
}

/// Deviations from an ideal run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The seed of all randomness.
    pub seed: u64,
    /// Each latency, copy and engine time is longer by a random share, uniform up to this.
    pub jitter: f64,
    /// Stragglers: (rank, factor on its engine times).
    pub slow: Vec<(u32, f64)>,
    /// In any order.
    pub changes: Vec<CapacityChange>,
}

/// Uniform numbers from a seed (`SplitMix64`: Steele, Lea and Flood 2014).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// In `0.0..1.0`.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
