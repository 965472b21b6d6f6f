//! Partners at distances that are powers of two exchange everything, once per round (Thakur, Rabenseifner and Gropp
//! 2005). MPI libraries run it, and ranks can be ordered for it; a program has no place for a partner's values beside
//! one's own, so Hocket does not run it.

use super::halving_doubling::split;
use crate::entry::{Entry, Fits, Takes, any_group};
use crate::{Group, Kind};

pub const ENTRY: Entry = Entry {
    name: "recursive_doubling",
    title: "recursive doubling",
    takes: Takes::Nothing,
    measured_as: &[],
    does: &[],
    ordered: true,
    proposed: false,
    fits,
    check: any_group,
    weave: |_, _, _, _, _| {},
    even_elements: |_, n| split(n).0,
};

fn fits(_: Kind, _: &Group<'_>) -> Fits {
    Vec::new()
}
