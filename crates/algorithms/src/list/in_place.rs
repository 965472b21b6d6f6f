//! Members that share memory: each reduces its part straight out of all members' slices, and into all of them. It is
//! not lowered; its counts are the bytes that `direct` moves.

use crate::entry::{Entry, Fits, Takes, any_group, one_each};
use crate::{Call, Group, Kind, Owned, Weave};

pub const ENTRY: Entry = Entry {
    name: "in_place",
    title: "reduction in place, in shared memory",
    takes: Takes::Nothing,
    measured_as: &["in_place"],
    does: &[Kind::AllReduce],
    ordered: false,
    proposed: true,
    fits,
    check: any_group,
    weave,
    even_elements: one_each,
};

fn fits(_: Kind, group: &Group<'_>) -> Fits {
    let here = ("in_place", Vec::new());
    if group.is_one_host() { vec![here] } else { Vec::new() }
}

fn weave(_: &[u32], _: Kind, _: usize, call: &Call, weave: &mut dyn Weave) {
    Owned::first(call.n(), call.n()).all_reduce(call, weave);
}
