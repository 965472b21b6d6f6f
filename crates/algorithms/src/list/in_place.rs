//! Members that share memory: each reduces its part straight out of all members' slices, and into all of them. It is not
//! lowered; what is counted are the same bytes as `direct` moves.

use super::direct::owned_all_reduce;
use crate::entry::{Entry, Takes, any_group, one_each};
use crate::{Algorithm, Call, Fit, Group, Kind, Weave};

pub const ENTRY: Entry = Entry {
    name: "in_place",
    title: "reduction in place, in shared memory",
    takes: Takes::Nothing,
    measured_as: &["in_place"],
    does: &[Kind::AllReduce],
    ordered: false,
    proposed: true,
    make: |_| Algorithm::InPlace,
    fits,
    check: any_group,
    weave,
    even_elements: one_each,
};

fn fits(_: Kind, group: &Group<'_>) -> Vec<Fit> {
    let here = Fit { measured_as: "in_place", algorithm: Algorithm::InPlace };
    if group.is_one_host() { vec![here] } else { Vec::new() }
}

fn weave(_: &[u32], _: Kind, _: usize, call: &Call, weave: &mut dyn Weave) {
    owned_all_reduce(call, call.n(), weave);
}
