//! Everybody with everybody: each owner's part goes to it, or from it, in one round. Where memory is shared, every byte is read
//! once per member and never copied on the way.

use crate::entry::{Entry, Takes, any_group, one_each};
use crate::{Algorithm, Call, Fit, Group, Kind, Weave};

pub const ENTRY: Entry = Entry {
    name: "direct",
    title: "direct exchange",
    takes: Takes::Nothing,
    measured_as: &["direct"],
    does: &Kind::ALL,
    ordered: false,
    proposed: false,
    make: |_| Algorithm::Direct,
    fits,
    check: any_group,
    weave,
    even_elements: one_each,
};

fn fits(_: Kind, _: &Group<'_>) -> Vec<Fit> {
    vec![Fit { measured_as: "direct", algorithm: Algorithm::Direct }]
}

fn weave(_: &[u32], kind: Kind, root: usize, call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    let others = (0..n).filter(|&member| member != root);
    match kind {
        Kind::AllReduce => owned_all_reduce(call, n, weave),
        Kind::ReduceScatter => reduce_scatter(call, n, weave),
        Kind::AllGather => all_gather(call, n, weave),
        Kind::Broadcast => others.for_each(|to| call.message(root, to, &call.whole(), false, weave)),
        Kind::Reduce => others.for_each(|from| call.message(from, root, &call.whole(), true, weave)),
        Kind::Gather => others.for_each(|from| call.message(from, root, &call.part(from, n), false, weave)),
        Kind::Scatter => others.for_each(|to| call.message(root, to, &call.part(to, n), false, weave)),
        Kind::AllToAll => all_to_all(call, weave),
    }
}

/// All-reduce where the first `owners` members keep a part each.
pub fn owned_all_reduce(call: &Call, owners: usize, weave: &mut dyn Weave) {
    reduce_scatter(call, owners, weave);
    for owner in 0..owners {
        call.complete(owner, &call.part(owner, owners), weave);
    }
    all_gather(call, owners, weave);
}

/// The first `owners` members end with the reduction of their part of as many.
fn reduce_scatter(call: &Call, owners: usize, weave: &mut dyn Weave) {
    let n = call.n();
    for owner in 0..owners {
        for k in 1..n {
            call.message((owner + k) % n, owner, &call.part(owner, owners), true, weave);
        }
    }
}

/// Each owner's part to all.
fn all_gather(call: &Call, owners: usize, weave: &mut dyn Weave) {
    let n = call.n();
    for owner in 0..owners {
        for k in 1..n {
            call.message(owner, (owner + k) % n, &call.part(owner, owners), false, weave);
        }
    }
}

/// Part `j` of member `i` to part `i` of member `j`. In round `k` each member sends to the `k`-th after it.
fn all_to_all(call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    for k in 0..n {
        for i in 0..n {
            let j = (i + k) % n;
            call.exchange(i, &call.part(j, n), j, &call.part(i, n), weave);
        }
    }
}
