//! Trees that fill the links of any network (`forest`), where no route that is known comes near what links allow.

use crate::error::PlanError;
use crate::exchange::Exchange;
use crate::forest::{forest, least_s};
use crate::prepared::Prepared;
use crate::proposal::{Proposal, Setting};
use crate::route::Route;
use hocket_algorithms::Algorithm;
use hocket_network::Network;

/// With more ranks, finding trees takes longer than a second, and there are more of them than programs should have messages.
const RANKS_MAX: usize = 32;
/// A known route whose busiest link is busy so many times as long as the narrowest cut needs leaves nothing to trees.
const NEAR: f64 = 1.02;

/// The proposal, for elements of that many bytes; none where a known one is as good.
pub fn by_links(
    network: &Network,
    setting: &Setting,
    known: &[Proposal],
    item_bytes: f64,
) -> Result<Option<Proposal>, PlanError> {
    let workers = setting.workers;
    if !(3..=RANKS_MAX).contains(&workers) {
        return Ok(None);
    }
    let Some(bound_s) = least_s(network, workers) else { return Ok(None) };
    for each in known {
        let route = Route {
            exchange: each.exchange.clone(),
            order: each.order.clone(),
            item_bytes,
            chunk_elements: 1.0,
            codec: None,
        };
        let loads = Prepared::slowed(&route, network, route.slower(network))?.loads;
        let links = loads[..network.links().len()].iter();
        let busy_s = links.map(|load| load.element_s).fold(0.0, f64::max);
        if busy_s <= NEAR * bound_s * 8.0 * item_bytes {
            return Ok(None);
        }
    }
    let trees = forest(network, workers).map(|forest| Proposal {
        exchange: Exchange::AllReduce(Algorithm::Trees { numbers: forest.numbers() }),
        order: (0..workers as u32).collect(),
        rule: "given".to_owned(),
        codec: None,
        codec_links: Vec::new(),
        chunk_bytes: setting.chunk_bytes,
        measured_as: "",
    });
    Ok(trees)
}
