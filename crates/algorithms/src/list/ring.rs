//! Around the members in order (Patarasuk and Yuan 2009, section 3): every member sends (n−1)/n of the bytes to the next one,
//! once for each half of an all-reduce. Broadcast and reduce are chains, which chunking turns into pipelines.

use crate::entry::{Entry, Fits, Takes, any_group, one_each};
use crate::{Call, Group, Kind, Weave};

pub const ENTRY: Entry = Entry {
    name: "ring",
    title: "a ring",
    takes: Takes::Nothing,
    measured_as: &["ring"],
    does: &[Kind::AllReduce, Kind::ReduceScatter, Kind::AllGather, Kind::Broadcast, Kind::Reduce],
    ordered: true,
    proposed: true,
    fits,
    check: any_group,
    weave,
    even_elements: one_each,
};

fn fits(_: Kind, _: &Group<'_>) -> Fits {
    vec![("ring", Vec::new())]
}

fn weave(_: &[u32], kind: Kind, root: usize, call: &Call, weave: &mut dyn Weave) {
    match kind {
        Kind::AllReduce => all_reduce(call, weave),
        Kind::ReduceScatter => reduce_scatter(call, weave),
        Kind::AllGather => all_gather(call, weave),
        Kind::Broadcast => broadcast(call, root, weave),
        _ => reduce(call, root, weave),
    }
}

pub fn all_reduce(call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    reduce_scatter(call, weave);
    for member in 0..n {
        call.complete(member, &call.part(member, n), weave);
    }
    all_gather(call, weave);
}

/// The part that member `i` of `n` passes to the next one in a step of an all-reduce, of which n − 1 reduce and as many follow.
pub const fn passed(step: usize, i: usize, n: usize) -> usize {
    (i + 2 * n - 1 - step) % n
}

/// Member `i` ends with the reduction of part `i`.
pub fn reduce_scatter(call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    for step in 0..n - 1 {
        for i in 0..n {
            call.message(i, (i + 1) % n, &call.part(passed(step, i, n), n), true, weave);
        }
    }
}

/// Each member's own part travels around.
pub fn all_gather(call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    for step in n - 1..2 * (n - 1) {
        for i in 0..n {
            call.message(i, (i + 1) % n, &call.part(passed(step, i, n), n), false, weave);
        }
    }
}

fn broadcast(call: &Call, root: usize, weave: &mut dyn Weave) {
    let n = call.n();
    for step in 1..n {
        call.message((root + step - 1) % n, (root + step) % n, &call.whole(), false, weave);
    }
}

fn reduce(call: &Call, root: usize, weave: &mut dyn Weave) {
    let n = call.n();
    for step in (1..n).rev() {
        call.message((root + step) % n, (root + step - 1) % n, &call.whole(), true, weave);
    }
}
