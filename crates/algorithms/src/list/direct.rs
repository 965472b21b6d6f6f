//! All with all: each owner's part goes to it, or from it, in one round. With shared memory, every byte is read once
//! per member and never copied on the way.

use crate::entry::{Entry, Fits, Takes, any_group, one_each};
use crate::{Call, Group, Kind, Owned, Weave};

pub const ENTRY: Entry = Entry {
    name: "direct",
    title: "direct exchange",
    takes: Takes::Nothing,
    measured_as: &["direct"],
    does: &Kind::ALL,
    ordered: false,
    proposed: false,
    fits,
    check: any_group,
    weave,
    even_elements: one_each,
};

fn fits(_: Kind, _: &Group<'_>) -> Fits {
    vec![("direct", Vec::new())]
}

fn weave(_: &[u32], kind: Kind, root: usize, call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    let others = (0..n).filter(|&member| member != root);
    match kind {
        Kind::AllReduce => Owned::first(n, n).all_reduce(call, weave),
        Kind::ReduceScatter => Owned::first(n, n).reduce_scatter(call, weave),
        Kind::AllGather => Owned::first(n, n).from_owners(call, weave),
        Kind::Broadcast => others.for_each(|to| call.message(root, to, &call.whole(), false, weave)),
        Kind::Reduce => others.for_each(|from| call.message(from, root, &call.whole(), true, weave)),
        Kind::Gather => others.for_each(|from| call.message(from, root, &call.part(from, n), false, weave)),
        Kind::Scatter => others.for_each(|to| call.message(root, to, &call.part(to, n), false, weave)),
        Kind::AllToAll => all_to_all(call, weave),
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
