//! The first members keep a part each, which all others push to and pull from: `direct` with fewer owners.

use crate::entry::{Entry, Fits, Takes};
use crate::{Call, Group, Kind, Misfit, Owned, Weave};

pub const ENTRY: Entry = Entry {
    name: "parameter_server",
    title: "owners of parts",
    takes: Takes::Servers,
    measured_as: &[],
    does: &[Kind::AllReduce],
    ordered: false,
    proposed: false,
    fits,
    check,
    weave,
    even_elements: |servers, _| servers[0] as usize,
};

/// The user chooses how many members serve.
fn fits(_: Kind, _: &Group<'_>) -> Fits {
    Vec::new()
}

fn check(servers: &[u32], _: Kind, n: usize) -> Result<(), Misfit> {
    let servers = servers[0] as usize;
    if servers == 0 || servers > n { Err(Misfit::Servers { servers, members: n }) } else { Ok(()) }
}

fn weave(servers: &[u32], _: Kind, _: usize, call: &Call, weave: &mut dyn Weave) {
    Owned::first(servers[0] as usize, call.n()).all_reduce(call, weave);
}
