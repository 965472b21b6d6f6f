//! The exact multi-knapsack with release dates, and with times of each bucket on each link.
//!
//! A set on one link is done earliest in order of readiness, so items are taken in that order, and a state is the time
//! at which each link is done and the profit so far. On one link, few states are not dominated by another that is done
//! as early with as much profit: as many as there are ticks, and with all items ready at the start they are the Pareto
//! set of subset sums. On several links a bound prunes the rest: links have prices, an item weighs its cheapest link's
//! time at that price, and items may be cut (a surrogate relaxation; Martello and Toth 1990, chapter 6). The width of a
//! layer grows from pass to pass until the result is proven or the budget of states is spent; the result says which.

use super::Item;
use crate::error::PlanError;

/// Limit of links.
pub const LINKS_MAX: usize = 4;

/// Limit of visited states: some 100 ms.
pub const BUDGET: usize = 1 << 21;

/// States kept of a layer, by pass.
const WIDTHS: [usize; 3] = [1 << 6, 1 << 11, 1 << 17];

/// Number of states that each state is compared with if there are more than two links: comparing all is quadratic.
const COMPARED: usize = 64;

/// No item has been sent yet.
const NOTHING: u32 = u32::MAX;

/// A set of items that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// By item: its link.
    pub links: Vec<Option<usize>>,
    /// Total profit.
    pub profit: u64,
    /// Upper bound of any packing's profit.
    pub bound: u64,
}

impl Packing {
    /// Whether no other has more profit.
    pub fn is_optimal(&self) -> bool {
        self.profit == self.bound
    }
}

/// The most profitable set of `items` that links can carry, each `until` its own end; visits at most `budget` states.
///
/// [`PlanError::Window`]: no link or more than [`LINKS_MAX`], or items for another number of them.
pub fn pack(items: &[Item], until: &[u32], budget: usize) -> Result<Packing, PlanError> {
    if until.is_empty() || until.len() > LINKS_MAX {
        return Err(PlanError::Window("links are not one to four"));
    }
    if items.iter().any(|item| item.busy.len() != until.len()) {
        return Err(PlanError::Window("items have times of other links"));
    }
    let mut search = Search::new(items, until);
    let mut left = budget;
    for width in WIDTHS {
        if search.pass(width, &mut left) || left == 0 {
            break;
        }
    }
    Ok(search.packing())
}

/// When each link is done, and the profit until then.
#[derive(Clone, Copy)]
struct State {
    done: [u32; LINKS_MAX],
    profit: u64,
    /// The last item sent, as an index of `Search::sent`.
    last: u32,
}

/// An item on a link, and the one before it.
#[derive(Clone, Copy)]
struct Sent {
    before: u32,
    item: u32,
    link: u32,
}

/// Items in order of readiness.
struct Search<'a> {
    items: &'a [Item],
    order: Vec<usize>,
    until: &'a [u32],
    relaxed: Vec<Relaxed>,
    prices: Vec<f64>,
    sent: Vec<Sent>,
    best: u64,
    best_links: Vec<Option<usize>>,
    bound: u64,
}

impl<'a> Search<'a> {
    fn new(items: &'a [Item], until: &'a [u32]) -> Self {
        let mut order: Vec<usize> = (0..items.len()).collect();
        // Of those ready together, long ones first: the small rest fills gaps.
        order.sort_by_key(|&at| (items[at].ready, std::cmp::Reverse(items[at].profit), at));
        let prices = prices(items, until);
        let relaxed = (0..=order.len()).map(|from| Relaxed::new(items, &order[from..], until, &prices));
        let relaxed: Vec<Relaxed> = relaxed.collect();
        let mut made = Self {
            items,
            until,
            prices,
            relaxed,
            order,
            sent: Vec::new(),
            best: 0,
            best_links: vec![None; items.len()],
            bound: 0,
        };
        made.bound = made.most(&State { done: [0; LINKS_MAX], profit: 0, last: NOTHING }, 0);
        made
    }

    /// The profit that a state before the item `at` of the order can still reach.
    fn most(&self, state: &State, at: usize) -> u64 {
        let ready = self.order.get(at).map_or(0, |&item| self.items[item].ready);
        let left = |(link, price): (usize, &f64)| {
            f64::from(self.until[link].saturating_sub(state.done[link].max(ready))) * price
        };
        let capacity: f64 = self.prices.iter().enumerate().map(left).sum();
        state.profit + (self.relaxed[at].profit(capacity) + 1e-6) as u64
    }

    /// Layer by layer, with at most this many states each. Whether the result is proven.
    fn pass(&mut self, width: usize, budget: &mut usize) -> bool {
        self.sent.clear();
        let mut layer = vec![State { done: [0; LINKS_MAX], profit: 0, last: NOTHING }];
        // Upper bound of the profit of dropped states.
        let mut dropped = 0;
        for at in 0..self.order.len() {
            if self.best >= self.bound {
                return true;
            }
            let mut next = self.expanded(&layer, at, budget);
            next.retain(|state| state.profit > self.best || self.most(state, at + 1) > self.best);
            not_dominated(&mut next, self.until.len());
            if next.len() > width || *budget == 0 {
                let kept = if *budget == 0 { 1 } else { width };
                dropped = dropped.max(self.thin(&mut next, kept, at + 1));
            }
            if let Some(state) = next.iter().max_by_key(|state| state.profit).copied() {
                self.note(&state);
            }
            layer = next;
        }
        self.bound = self.bound.min(dropped.max(self.best));
        self.best >= self.bound
    }

    /// Each state without the item, and with it on each link; in runs sorted by the first link, as the layer is.
    fn expanded(&mut self, layer: &[State], at: usize, budget: &mut usize) -> Vec<State> {
        let item = self.order[at];
        let mut next = layer.to_vec();
        for (link, &until) in self.until.iter().enumerate() {
            for state in layer {
                let begins = state.done[link].max(self.items[item].ready);
                let done = begins.saturating_add(self.items[item].busy[link]);
                if done > until {
                    continue;
                }
                let mut with = *state;
                with.done[link] = done;
                with.profit += u64::from(self.items[item].profit);
                self.sent.push(Sent { before: state.last, item: item as u32, link: link as u32 });
                with.last = self.sent.len() as u32 - 1;
                next.push(with);
            }
        }
        *budget = budget.saturating_sub(next.len());
        next
    }

    /// Keeps about `width` states, spread evenly over the time when the first link is done, with the best ones. Returns
    /// an upper bound for the others.
    fn thin(&self, states: &mut Vec<State>, width: usize, at: usize) -> u64 {
        let mut ranked: Vec<(u64, u64, usize)> = (0..states.len())
            .map(|index| (self.most(&states[index], at), states[index].profit, index))
            .collect();
        ranked.sort_unstable_by(|one, other| other.cmp(one));
        let stride = states.len().div_ceil(width).max(1);
        let mut kept: Vec<usize> = ranked.iter().take(width / 2 + 1).map(|entry| entry.2).collect();
        kept.extend((0..states.len()).step_by(stride));
        kept.sort_unstable();
        kept.dedup();
        let mut keep = vec![false; states.len()];
        for index in kept {
            keep[index] = true;
        }
        let dropped = ranked.iter().find(|entry| !keep[entry.2]).map_or(0, |entry| entry.0);
        let mut index = 0;
        states.retain(|_| {
            index += 1;
            keep[index - 1]
        });
        dropped
    }

    fn note(&mut self, state: &State) {
        if state.profit <= self.best {
            return;
        }
        self.best = state.profit;
        self.best_links.fill(None);
        let mut at = state.last;
        while at != NOTHING {
            let sent = self.sent[at as usize];
            self.best_links[sent.item as usize] = Some(sent.link as usize);
            at = sent.before;
        }
    }

    fn packing(self) -> Packing {
        Packing { links: self.best_links, profit: self.best, bound: self.bound.max(self.best) }
    }
}

/// Drops states that another equals or beats in everything; sorts by the time when the first link is done.
fn not_dominated(states: &mut Vec<State>, links: usize) {
    states.sort_by(|one, other| one.done.cmp(&other.done).then(other.profit.cmp(&one.profit)));
    match links {
        1 => {
            let mut most = None;
            states.retain(|state| {
                let better = most.is_none_or(|most| state.profit > most);
                most = if better { Some(state.profit) } else { most };
                better
            });
        }
        2 => {
            // By the time when the second link is done: rising profits.
            let mut stairs = std::collections::BTreeMap::<u32, u64>::new();
            states.retain(|state| {
                let before = stairs.range(..=state.done[1]).next_back();
                if before.is_some_and(|(_, &most)| most >= state.profit) {
                    return false;
                }
                while let Some((&later, &most)) = stairs.range(state.done[1]..).next() {
                    if most > state.profit {
                        break;
                    }
                    stairs.remove(&later);
                }
                stairs.insert(state.done[1], state.profit);
                true
            });
        }
        _ => {
            let mut kept: Vec<State> = Vec::with_capacity(states.len());
            for state in states.iter() {
                let covers = |other: &State| {
                    other.profit >= state.profit
                        && other.done.iter().zip(&state.done).all(|(one, two)| one <= two)
                };
                if !kept.iter().rev().take(COMPARED).any(covers) {
                    kept.push(*state);
                }
            }
            *states = kept;
        }
    }
}

/// Profits of the last items of the order, where items may be cut: cumulative weights and profits, most profit per
/// weight first.
struct Relaxed {
    weights: Vec<f64>,
    profits: Vec<f64>,
}

impl Relaxed {
    fn new(items: &[Item], order: &[usize], until: &[u32], prices: &[f64]) -> Self {
        let mut weighed: Vec<(f64, f64)> = order
            .iter()
            .filter_map(|&at| Some((weight(&items[at], until, prices)?, f64::from(items[at].profit))))
            .collect();
        weighed.sort_by(|one, other| (other.1 * one.0).total_cmp(&(one.1 * other.0)));
        let (mut weights, mut profits) = (vec![0.0], vec![0.0]);
        for (weight, profit) in weighed {
            weights.push(weights[weights.len() - 1] + weight);
            profits.push(profits[profits.len() - 1] + profit);
        }
        Self { weights, profits }
    }

    fn profit(&self, capacity: f64) -> f64 {
        let whole = self.weights.partition_point(|&weight| weight <= capacity);
        match (self.weights.get(whole), whole.checked_sub(1)) {
            (_, None) => 0.0,
            (None, Some(last)) => self.profits[last],
            (Some(next), Some(last)) => {
                let share = (capacity - self.weights[last]) / (next - self.weights[last]);
                self.profits[last] + share * (self.profits[whole] - self.profits[last])
            }
        }
    }
}

/// An item's time on the cheapest link at these prices; `None` if it fits on no link.
fn weight(item: &Item, until: &[u32], prices: &[f64]) -> Option<f64> {
    let fitting = item.busy.iter().zip(until).zip(prices);
    fitting
        .filter(|((busy, until), _)| item.ready.saturating_add(**busy) <= **until)
        .map(|((busy, _), price)| f64::from(*busy) * price)
        .min_by(f64::total_cmp)
}

/// Prices of links that make the relaxation of all items low: the first is 1, others move up and down while it falls.
fn prices(items: &[Item], until: &[u32]) -> Vec<f64> {
    let order: Vec<usize> = (0..items.len()).collect();
    let relaxed = |prices: &[f64]| {
        let capacity = until.iter().zip(prices).map(|(until, price)| f64::from(*until) * price).sum();
        Relaxed::new(items, &order, until, prices).profit(capacity)
    };
    let total =
        |link: usize| items.iter().map(|item| f64::from(item.busy[link].min(until[link]))).sum::<f64>();
    let first = total(0).max(1.0);
    let mut prices: Vec<f64> = (0..until.len()).map(|link| first / total(link).max(1.0)).collect();
    let mut least = relaxed(&prices);
    for step in [1.3, 1.1, 1.03] {
        for link in 1..until.len() {
            for factor in [step, 1.0 / step] {
                loop {
                    let mut moved = prices.clone();
                    moved[link] *= factor;
                    let profit = relaxed(&moved);
                    if profit >= least * (1.0 - 1e-9) {
                        break;
                    }
                    (prices, least) = (moved, profit);
                }
            }
        }
    }
    prices
}
