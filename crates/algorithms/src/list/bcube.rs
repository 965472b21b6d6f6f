//! BCube (Guo et al. 2009): members are numbers of several digits; in round `k` those that differ in digit `k` alone exchange
//! directly. The most significant digit comes first, when most bytes move.

use crate::entry::{Entry, Fits, Takes, one_each};
use crate::{Call, Group, Kind, Misfit, Weave};
use std::ops::Range;

/// The base unless a policy names one.
const BASE: u32 = 4;

pub const ENTRY: Entry = Entry {
    name: "bcube",
    title: "BCube",
    takes: Takes::Base,
    measured_as: &["bcube"],
    does: &[Kind::AllReduce, Kind::ReduceScatter, Kind::AllGather],
    ordered: true,
    proposed: false,
    fits,
    check,
    weave,
    even_elements: one_each,
};

/// With as few members as the base, all are neighbours: `direct`.
fn fits(_: Kind, group: &Group<'_>) -> Fits {
    let cube = ("bcube", vec![BASE]);
    if group.n() > BASE as usize { vec![cube] } else { Vec::new() }
}

const fn check(base: &[u32], _: Kind, _: usize) -> Result<(), Misfit> {
    if base[0] < 2 { Err(Misfit::Base(base[0])) } else { Ok(()) }
}

fn weave(base: &[u32], kind: Kind, _: usize, call: &Call, weave: &mut dyn Weave) {
    let radices = radices(call.n(), base[0] as usize);
    match kind {
        Kind::AllReduce => all_reduce(call, &radices, weave),
        Kind::ReduceScatter => reduce_scatter(call, &radices, weave),
        _ => all_gather(call, &radices, weave),
    }
}

/// The digits' bases, most significant first: as many factors of at most `base` as `n` has, and the rest as one more.
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

/// By reduce-scatter and all-gather in these rounds.
pub fn all_reduce(call: &Call, radices: &[usize], weave: &mut dyn Weave) {
    let n = call.n();
    reduce_scatter(call, radices, weave);
    for member in 0..n {
        call.complete(member, &call.part(member, n), weave);
    }
    all_gather(call, radices, weave);
}

/// Member `i` ends with the reduction of part `i`.
pub fn reduce_scatter(call: &Call, radices: &[usize], weave: &mut dyn Weave) {
    for round in 0..radices.len() {
        exchange(call, radices, round, |from, to, part| call.message(from, to, part, true, weave));
    }
}

/// Each member's own part to all: the same rounds backwards.
pub fn all_gather(call: &Call, radices: &[usize], weave: &mut dyn Weave) {
    for round in (0..radices.len()).rev() {
        // What `to` received in the first half is what it sends now.
        exchange(call, radices, round, |from, to, part| call.message(to, from, part, false, weave));
    }
}

/// Calls `send(from, to, part)` for each pair of a round: `to` owns the part from this round on.
fn exchange(call: &Call, radices: &[usize], round: usize, mut send: impl FnMut(usize, usize, &Range<usize>)) {
    let n = call.n();
    // Members with the same digits so far: the span that this round divides, and its pieces.
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
