//! Recursive halving, then recursive doubling (Thakur, Rabenseifner and Gropp 2005): `BCube` with digits of base two. Broadcast
//! and reduce go along a binomial tree.

use super::bcube;
use crate::entry::{Entry, Fits, Takes};
use crate::{Call, Group, Kind, Misfit, Stage, Weave};

pub const ENTRY: Entry = Entry {
    name: "halving_doubling",
    title: "halving and doubling",
    takes: Takes::Nothing,
    measured_as: &["halving_doubling"],
    does: &[Kind::AllReduce, Kind::ReduceScatter, Kind::AllGather, Kind::Broadcast, Kind::Reduce],
    ordered: true,
    proposed: false,
    fits,
    check,
    weave,
    even_elements: |_, n| split(n).0,
};

fn fits(kind: Kind, group: &Group<'_>) -> Fits {
    let halves = ("halving_doubling", Vec::new());
    if serves(kind, group.n()) { vec![halves] } else { Vec::new() }
}

/// Each member ends with a part of its own only if their number is a power of two.
const fn serves(kind: Kind, n: usize) -> bool {
    !matches!(kind, Kind::ReduceScatter | Kind::AllGather) || n.is_power_of_two()
}

fn weave(_: &[u32], kind: Kind, root: usize, call: &Call, weave: &mut dyn Weave) {
    let radices = || bcube::radices(call.n(), 2);
    match kind {
        Kind::AllReduce => all_reduce(call, weave),
        Kind::ReduceScatter => bcube::reduce_scatter(call, &radices(), weave),
        Kind::AllGather => bcube::all_gather(call, &radices(), weave),
        Kind::Broadcast => broadcast(call, root, weave),
        _ => reduce(call, root, weave),
    }
}

fn check(_: &[u32], kind: Kind, n: usize) -> Result<(), Misfit> {
    if serves(kind, n) { Ok(()) } else { Err(Misfit::unsupported(kind, ENTRY.name)) }
}

/// How many members halve and double, and how many others first pass their values to a partner.
pub const fn split(n: usize) -> (usize, usize) {
    let power = if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 };
    (power, n - power)
}

/// Among any number of members: those beyond the largest power of two first pass their values to a partner, and get the
/// result from it.
fn all_reduce(call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    let (power, extra) = split(n);
    let active: Vec<usize> = (0..n).filter(|&member| member >= 2 * extra || member % 2 == 0).collect();
    for pair in 0..extra {
        weave.stage(Stage::Rise(pair as u32));
        call.message(2 * pair + 1, 2 * pair, &call.whole(), true, weave);
    }
    weave.stage(Stage::Cycle);
    bcube::all_reduce(&call.among(&active), &bcube::radices(power, 2), weave);
    for pair in 0..extra {
        weave.stage(Stage::Fall(pair as u32));
        call.message(2 * pair, 2 * pair + 1, &call.whole(), false, weave);
    }
}

/// From the root along a binomial tree.
fn broadcast(call: &Call, root: usize, weave: &mut dyn Weave) {
    let n = call.n();
    let mut reached = 1;
    while reached < n {
        for from in 0..reached.min(n - reached) {
            call.message((root + from) % n, (root + from + reached) % n, &call.whole(), false, weave);
        }
        reached *= 2;
    }
}

/// Along a binomial tree to the root.
fn reduce(call: &Call, root: usize, weave: &mut dyn Weave) {
    let n = call.n();
    let mut reached = n.next_power_of_two() / 2;
    while reached > 0 {
        for to in 0..reached.min(n.saturating_sub(reached)) {
            call.message((root + to + reached) % n, (root + to) % n, &call.whole(), true, weave);
        }
        reached /= 2;
    }
}
