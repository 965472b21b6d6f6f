//! The links between ranks, for the closed form.

use hocket_algorithms::{Algorithm, Counts, Kind, Misfit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Why a network, a route or a plan is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The tables of the network contradict each other.
    #[error("the network's {0}")]
    Network(&'static str),
    /// The order names a rank twice, or a missing one.
    #[error("order {order:?} is not of {world} ranks, each once")]
    Order {
        /// The given order.
        order: Vec<u32>,
        /// Number of ranks.
        world: usize,
    },
    /// A launch names a missing route.
    #[error("route {route} of {routes}")]
    Route {
        /// The given route.
        route: usize,
        /// The number of routes.
        routes: usize,
    },
    /// Invalid owners, rows or stations.
    #[error("the route's {0}")]
    Exchange(&'static str),
    /// The problem is invalid.
    #[error("the model's {0}")]
    Model(&'static str),
    /// A window of computation, its links or its buckets are invalid.
    #[error("the window's {0}")]
    Window(&'static str),
    /// No window is long enough for a bucket, so that its gradients would never be applied.
    #[error(
        "bucket {bucket} takes {busy_s:.6} s, and no gap of computation is longer than {gap_s:.6} s: its gradients would never be \
         applied; cut it into parts"
    )]
    Starved {
        /// The bucket; the input side's is 0.
        bucket: usize,
        /// Its time on its fastest link.
        busy_s: f64,
        /// The longest window.
        gap_s: f64,
    },
    /// No session could keep the schedule.
    #[error("the schedule: {0}")]
    Schedule(#[from] hocket_schedule::Fault),
    /// The algorithm does not fit the ranks.
    #[error(transparent)]
    Misfit(#[from] Misfit),
}

/// Hosts of ranks, links, and the links on the path of each ordered pair of ranks.
#[derive(Debug)]
pub struct Network {
    hosts: Vec<u32>,
    bit_per_s: Vec<f64>,
    starts: Vec<u32>,
    crossed: Vec<u32>,
    latency_s: Vec<f64>,
    /// Counts of algorithms among this many ranks, computed once.
    counted: Mutex<HashMap<(Algorithm, Kind, usize), Arc<Counts>>>,
}

impl Network {
    /// `hosts[rank]`; the links' rates; by ordered pair of ranks, row by row with the diagonal, the start of its links
    /// in `crossed` (one more at the end), and its latency.
    pub fn new(
        hosts: Vec<u32>,
        bit_per_s: Vec<f64>,
        starts: Vec<u32>,
        crossed: Vec<u32>,
        latency_s: Vec<f64>,
    ) -> Result<Self, PlanError> {
        let pairs = hosts.len() * hosts.len();
        let wrong = |what| Err(PlanError::Network(what));
        if hosts.is_empty() || starts.len() != pairs + 1 || latency_s.len() != pairs {
            return wrong("tables are not of as many pairs as its ranks have");
        }
        if starts[0] != 0 || starts[pairs] as usize != crossed.len() || !starts.is_sorted() {
            return wrong("paths do not follow one another");
        }
        if crossed.iter().any(|&link| link as usize >= bit_per_s.len()) {
            return wrong("paths cross links that there are not");
        }
        if bit_per_s.iter().any(|&rate| rate.is_nan() || rate <= 0.0) {
            return wrong("rates are not all above 0");
        }
        if latency_s.iter().any(|&latency| !(latency.is_finite() && latency >= 0.0)) {
            return wrong("latencies are not all 0 or more");
        }
        Ok(Self { hosts, bit_per_s, starts, crossed, latency_s, counted: Mutex::default() })
    }

    /// A collective's traffic among `n` ranks, in parts of equal length.
    pub fn counts(&self, algorithm: &Algorithm, kind: Kind, n: usize) -> Result<Arc<Counts>, Misfit> {
        // The map's contents are complete, even after a panic elsewhere.
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (algorithm.clone(), kind, n);
        if let Some(counts) = counted.get(&key) {
            return Ok(Arc::clone(counts));
        }
        algorithm.check(kind, n)?;
        let counts = Arc::new(Counts::of(algorithm, kind, 0, n, algorithm.even_elements(n))?);
        counted.insert(key, Arc::clone(&counts));
        Ok(counts)
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.hosts.len()
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.bit_per_s.len()
    }

    /// Rate of a link.
    pub fn bit_per_s(&self, link: u32) -> f64 {
        self.bit_per_s[link as usize]
    }

    /// Number of a rank's host.
    pub fn host(&self, rank: u32) -> u32 {
        self.hosts[rank as usize]
    }

    /// Links from rank to rank.
    pub fn path(&self, from: u32, to: u32) -> &[u32] {
        let pair = self.pair(from, to);
        &self.crossed[self.starts[pair] as usize..self.starts[pair + 1] as usize]
    }

    /// Seconds from rank to rank.
    pub fn latency_s(&self, from: u32, to: u32) -> f64 {
        self.latency_s[self.pair(from, to)]
    }

    /// Whether two ranks are on different hosts.
    pub fn is_remote(&self, from: u32, to: u32) -> bool {
        self.hosts[from as usize] != self.hosts[to as usize]
    }

    fn pair(&self, from: u32, to: u32) -> usize {
        from as usize * self.hosts.len() + to as usize
    }
}
