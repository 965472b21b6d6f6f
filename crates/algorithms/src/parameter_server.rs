//! The first members keep a part each, which all others push to and pull from: `direct` with fewer owners.

use crate::direct::owned_all_reduce;
use crate::entry::{Entry, Takes};
use crate::{Algorithm, Call, Fit, Group, Kind, Misfit, Weave};

pub const ENTRY: Entry = Entry {
    name: "parameter_server",
    title: "owners of parts",
    takes: Takes::Servers,
    measured_as: &[],
    does: &[Kind::AllReduce],
    ordered: false,
    proposed: false,
    make: |numbers| Algorithm::ParameterServer { servers: numbers[0] },
    fits,
};

/// How many members serve is for the user to say.
fn fits(_: Kind, _: &Group<'_>) -> Vec<Fit> {
    Vec::new()
}

pub fn check(servers: u32, n: usize) -> Result<(), Misfit> {
    let servers = servers as usize;
    if servers == 0 || servers > n { Err(Misfit::Servers { servers, members: n }) } else { Ok(()) }
}

pub fn weave(servers: u32, call: &Call, weave: &mut dyn Weave) {
    owned_all_reduce(call, servers as usize, weave);
}
