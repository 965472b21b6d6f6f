//! Algorithms of collectives, one file each. An algorithm is written once, as messages between members of a group, to the
//! trait [`Weave`]: the `lower` pass of `hocket-program` implements it to build ops, [`Counts`] to count what is sent.
//!
//! Pure: knows nothing of programs, memory, networks or time. `list.rs` is the only list of algorithms.
#![forbid(unsafe_code)]

mod algorithm;
mod bcube;
mod call;
mod count;
mod direct;
mod double_binary_tree;
mod entry;
mod group;
mod halving_doubling;
mod in_place;
mod kind;
mod list;
mod misfit;
mod parameter_server;
mod recursive_doubling;
mod ring;
mod two_level;

pub use algorithm::Algorithm;
pub use bcube::radices;
pub use call::{Call, Stage, Weave};
pub use count::{Counts, Flow};
pub use double_binary_tree::{depth as tree_depth, parent as tree_parent, place as tree_place};
pub use entry::{Entry, Takes};
pub use group::{Fit, Group};
pub use kind::Kind;
pub use list::{LIST, fitting};
pub use misfit::Misfit;
pub use ring::passed as ring_passed;
