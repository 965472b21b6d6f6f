//! DeFT's Algorithm 1: the naive knapsack over the rest after giving up the first buckets.
//!
//! The paper leaves two points open: here the algorithm begins with the rest of the backward when the first bucket is
//! ready, and ends where nothing is left. Release dates of all but the first kept bucket are ignored, so the set may
//! end late on a real link; [`super::pack`] has sets that do not.

use super::{BUDGET, Item, greedy, pack};
use crate::error::PlanError;

/// The selection of a solver from the paper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// By item: its link.
    pub links: Vec<Option<usize>>,
    /// Total profit.
    pub profit: u64,
}

/// `items` in order of readiness; each link is free from its `from` to its `until`.
///
/// Giving up all buckets before one leaves the window from its readiness on. Of equal profits the shorter list's is
/// taken, as printed.
pub fn recursive(items: &[Item], from: &[u32], until: &[u32]) -> Result<Chosen, PlanError> {
    let mut best = Chosen { links: vec![None; items.len()], profit: 0 };
    for first in 0..items.len() {
        let ready = items[first].ready;
        let remain = from.iter().zip(until).map(|(&from, until)| until.saturating_sub(from.max(ready)));
        let remain: Vec<u32> = remain.collect();
        if most(&items[first..], &remain) < best.profit {
            continue;
        }
        let chosen = naive(&items[first..], &remain)?;
        if chosen.profit >= best.profit {
            let mut links = vec![None; first];
            links.extend(chosen.links);
            best = Chosen { links, profit: chosen.profit };
        }
    }
    Ok(best)
}

/// No more than that fits: all items, or each link full of the best there is for it.
fn most(items: &[Item], remain: &[u32]) -> u64 {
    let worth = |link: usize| {
        let each = items.iter().map(|item| f64::from(item.profit) / f64::from(item.busy[link].max(1)));
        each.fold(0.0, f64::max) * f64::from(remain[link])
    };
    let free = items.iter().filter(|item| item.busy.contains(&0)).map(|item| f64::from(item.profit));
    let full = (0..remain.len()).map(worth).chain(free).sum::<f64>();
    items.iter().map(|item| u64::from(item.profit)).sum::<u64>().min(full.ceil() as u64)
}

/// Problem 1 on one link, exactly; Problem 2 on several, by the greedy. Release dates are ignored.
pub(crate) fn naive(items: &[Item], capacity: &[u32]) -> Result<Chosen, PlanError> {
    let links = if capacity.len() == 1 {
        let at_once: Vec<Item> = items.iter().map(|item| Item { ready: 0, ..item.clone() }).collect();
        pack(&at_once, capacity, BUDGET)?.links
    } else {
        greedy(items, capacity)
    };
    let sent = items.iter().zip(&links).filter(|(_, link)| link.is_some());
    Ok(Chosen { profit: sent.map(|(item, _)| u64::from(item.profit)).sum(), links })
}
