//! The faults of routes, plans and models.

use hocket_algorithms::Misfit;
use hocket_network::NetworkError;

/// Why a network, a route or a plan is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Racks or workers that are not of the network's ranks.
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
    /// A number of the bus is out of range.
    #[error(transparent)]
    Bus(#[from] NetworkError),
}
