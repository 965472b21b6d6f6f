//! Programs in virtual time: the same ops as the native executor's, over a model of the network.
//!
//! Messages are flows. Those that cross a link at the same time share it max-min fairly; each rank has one engine
//! thread, which serves per-message costs and computing ops one after the other, and sockets in between. Pure: no I/O,
//! no clock, no threads, no unseeded randomness.
#![forbid(unsafe_code)]

mod bucket;
mod channel;
mod check;
mod clock;
mod compile;
mod conditions;
mod engine;
mod error;
mod event;
mod graph;
mod instance;
mod messages;
mod outcome;
mod pattern;
mod rank;
mod scheduled;
mod share;
mod sockets;
mod step;
mod stuck;
mod time;

pub use compile::{Part, compile, compile_part};
pub use conditions::{CapacityChange, Conditions, Costs};
pub use engine::simulate;
pub use error::Error;
pub use graph::{Graph, Listed};
pub use messages::{Timed, timed};
pub use outcome::{LaunchSpan, Outcome};
pub use pattern::{AllToAll, Ring};
pub use rank::{Act, Job, Launch, Phase, Started};
pub use scheduled::{Bucket, Training};
pub use share::Shares;
pub use step::{Step, Work};
pub use time::{Picos, from_s, to_s};
