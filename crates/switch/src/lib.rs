//! An Ethernet switch in user space between the hosts of an emulated cluster, each behind a TAP device.
//!
//! The kernel's own queueing disciplines limit rates; not every kernel can delay or lose packets. This switch does
//! both. [`Switch`], a state machine that takes the time as an argument, decides when a frame is delivered, or that it
//! is dropped. [`run`] moves the frames. It may also sum what workers push to a server (`sums`).
#![forbid(unsafe_code)]

mod description;
mod frame;
mod link;
mod network;
mod piece;
mod run;
mod sums;
mod switch;
mod way;

pub use description::{DescriptionError, parse};
pub use frame::{Frame, HEADER_BYTES};
pub use network::{Network, NetworkError, Summing, WayRule};
pub use run::{RunError, run};
pub use switch::{Counters, Switch};

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;
