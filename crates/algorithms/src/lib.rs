//! Algorithms of collectives, one file each. An algorithm is written once, as messages between members of a group, to
//! the trait [`Weave`]: the `lower` pass of `hocket-program` implements it to build ops, [`Counts`] to count traffic.
//!
//! Pure: knows nothing of programs, memory, networks or time. `list.rs` is the only list of algorithms; their files are in `list/`.
#![forbid(unsafe_code)]

mod call;
mod count;
mod entry;
mod group;
mod kind;
mod list;
mod misfit;
mod owned;
mod segments;

pub use call::{Call, Stage, Weave};
pub use count::{Counts, Flow};
pub use entry::{Entry, Takes};
pub use group::Group;
pub use kind::Kind;
pub use list::{
    Algorithm, Fit, LIST, collect_spread_pieces, fitting, radices, ring_passed, tree_depth, tree_parent,
    tree_place,
};
pub use misfit::Misfit;
pub use owned::{Owned, Via};
