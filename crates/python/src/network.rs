//! Networks, which plans, orders and simulations read.

use crate::exceptions::error;
use hocket_network as network;
use pyo3::prelude::*;

/// The network between ranks, for plans, orders and simulations. `UsageError` for what contradicts itself.
#[pyclass(frozen, module = "hocket._native")]
pub struct Network(pub network::Network);

/// Name, rate, rate of each flow beside it, burst, share that each doubling of flows leaves, queue.
type Link = (String, f64, f64, f64, f64, f64);
/// Source, destination, indices of links, latency in seconds.
type Route = (u32, u32, Vec<u32>, f64);

#[pymethods]
impl Network {
    /// Hosts by rank: bytes between two pass through sockets. Links: as `hocket.artefacts.network.Link`. Routes: source, destination,
    /// indices of links, latency in seconds. `others`: routes on the second card, on the third, ….
    #[new]
    #[pyo3(signature = (hosts, links, routes, others = Vec::new()))]
    fn new(
        py: Python<'_>,
        hosts: Vec<u32>,
        links: Vec<Link>,
        routes: Vec<Route>,
        others: Vec<Vec<Route>>,
    ) -> PyResult<Self> {
        let link = |(name, bit_per_s, beside_bit_per_s, burst_bytes, incast, queue_s)| network::Link {
            name,
            bit_per_s,
            beside_bit_per_s,
            burst_bytes,
            incast,
            queue_s,
        };
        let route = |(from, to, links, latency_s)| network::Route { from, to, links, latency_s };
        let card = |routes: Vec<Route>| routes.into_iter().map(route).collect();
        let cards = [routes].into_iter().chain(others).map(card).collect();
        let made = network::Network::on_cards(hosts, links.into_iter().map(link).collect(), cards);
        made.map(Self).map_err(|what| error(py, "UsageError", &format!("network: {what}")))
    }

    /// Trees of an all-reduce among the first ranks, as numbers of the algorithm `trees`; seconds of each bit by the narrowest cut,
    /// and of the link that they keep busiest. None where some ranks cannot reach others, or there is one.
    fn trees(&self, py: Python<'_>, workers: usize) -> Option<(Vec<u32>, f64, f64)> {
        let workers = workers.min(self.0.world());
        let found = py.detach(|| hocket_plan::forest(&self.0, workers))?;
        Some((found.numbers(), found.least_s, found.taken_s))
    }
}
