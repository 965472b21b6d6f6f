//! The machines of elastic training in a simulated world, after the simulator of `TigerBeetle`: one seed is one schedule.
//!
//! The coordinator, the members, the journal's format, votes, drains, liveness and the sampler are the machines that jobs run. Fences,
//! transfers and what members do by `Restore`, `Redo` and `Fetch` are machines too, but no job runs them yet: jobs keep sums apart from
//! gradients, copy the state to joiners by a broadcast, and wait for the end of a neighbour that was evicted. So a million schedules
//! are evidence for losses and leaves, not for joins. Processes, clocks, connections, the journal's disk and the data plane, in which a
//! block's sum is the set of its contributions, are simulated.
//! Faults fall anywhere between two events. After every event `check` compares what the world has seen with the promises; when the
//! faults end, the job must go on. `hocket_protocol::planted` breaks one rule at a time to prove that this would be noticed.
#![forbid(unsafe_code)]

mod act;
mod check;
mod coordinator;
mod coordinator_host;
mod engine;
mod epoch;
mod event;
mod faults;
mod hearing;
mod memory;
mod net;
mod process;
mod swarm;
mod world;

pub use swarm::Swarm;
pub use world::{Failure, Outcome, World, kill_everywhere, run};
