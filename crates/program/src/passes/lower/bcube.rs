//! BCube (Guo et al. 2009): members are numbers of several digits; in round `k` those that differ in digit `k` alone exchange
//! directly. All digits of base two are recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005).

use super::direct;
use super::message::{Call, Weaver};
use std::ops::Range;

/// The digits' bases, most significant first: as many factors of at most `base` as `n` has, and what is left as one more.
pub fn radices(n: usize, base: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut rest = n;
    while rest > 1 {
        let radix = (2..=base.min(rest)).rev().find(|radix| rest.is_multiple_of(*radix)).unwrap_or(rest);
        found.push(radix);
        rest /= radix;
    }
    found
}

/// Member `i` ends with the reduction of part `i`.
pub fn reduce_scatter(call: &Call, radices: &[usize], weaver: &mut Weaver) {
    for round in 0..radices.len() {
        exchange(call, radices, round, |from, to, part| weaver.message(call, from, to, part, true));
    }
}

/// Each member's own part to all: the same rounds backwards.
pub fn all_gather(call: &Call, radices: &[usize], weaver: &mut Weaver) {
    for round in (0..radices.len()).rev() {
        // What `to` was sent in the first half is what it sends now.
        exchange(call, radices, round, |from, to, part| weaver.message(call, to, from, part, false));
    }
}

/// Calls `send(from, to, part)` for each pair of a round: `to` owns the part from this round on.
fn exchange(call: &Call, radices: &[usize], round: usize, mut send: impl FnMut(usize, usize, &Range<usize>)) {
    let n = call.n();
    // Members below one value of the digits so far: the span that is divided in this round, and its pieces.
    let span: usize = radices[round..].iter().product();
    let piece = span / radices[round];
    for shift in 1..radices[round] {
        for from in 0..n {
            let (first, digit) = (from / span * span, from % span / piece);
            let digit = (digit + shift) % radices[round];
            let to = first + digit * piece + from % piece;
            let owned = first + digit * piece;
            send(from, to, &call.parts(owned..owned + piece, n));
        }
    }
}

/// All-reduce by halving and doubling among any number of members: those beyond the largest power of two hand their
/// values to a partner first and get the result from it.
pub fn halving_doubling(call: &Call, weaver: &mut Weaver) {
    let n = call.n();
    let power = if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 };
    let extra = n - power;
    let active: Vec<usize> = (0..n).filter(|&member| member >= 2 * extra || member % 2 == 0).collect();
    for pair in 0..extra {
        weaver.message(call, 2 * pair + 1, 2 * pair, &call.whole(), true);
    }
    let core = call.among(&active);
    let radices = radices(power, 2);
    reduce_scatter(&core, &radices, weaver);
    for member in 0..power {
        weaver.scale(&core, member, &core.part(member, power));
    }
    all_gather(&core, &radices, weaver);
    for pair in 0..extra {
        weaver.message(call, 2 * pair, 2 * pair + 1, &call.whole(), false);
    }
}

/// From the root along a binomial tree.
pub fn binomial_broadcast(call: &Call, root: usize, weaver: &mut Weaver) {
    let n = call.n();
    let mut reached = 1;
    while reached < n {
        for from in 0..reached.min(n - reached) {
            weaver.message(call, (root + from) % n, (root + from + reached) % n, &call.whole(), false);
        }
        reached *= 2;
    }
}

/// Along a binomial tree to the root.
pub fn binomial_reduce(call: &Call, root: usize, weaver: &mut Weaver) {
    let n = call.n();
    let mut reached = n.next_power_of_two() / 2;
    while reached > 0 {
        for to in 0..reached.min(n.saturating_sub(reached)) {
            weaver.message(call, (root + to + reached) % n, (root + to) % n, &call.whole(), true);
        }
        reached /= 2;
    }
}

/// All-reduce by reduce-scatter and all-gather in these rounds.
pub fn all_reduce(call: &Call, base: usize, weaver: &mut Weaver) {
    let n = call.n();
    let radices = radices(n, base);
    reduce_scatter(call, &radices, weaver);
    for member in 0..n {
        weaver.scale(call, member, &call.part(member, n));
    }
    all_gather(call, &radices, weaver);
}

/// All-reduce where the first `owners` members keep a part each.
pub fn owned(call: &Call, owners: usize, weaver: &mut Weaver) {
    direct::reduce_scatter(call, owners, weaver);
    for owner in 0..owners {
        weaver.scale(call, owner, &call.part(owner, owners));
    }
    direct::all_gather(call, owners, weaver);
}
