//! The machines of elastic training in a simulated world, after the simulator of `TigerBeetle`: one seed is one schedule.
//!
//! The coordinator, the members, the journal's records, votes, drains, liveness, the wait for more members and the sampler are the
//! machines that jobs run; all of them, and no others. Processes, clocks, connections, the journal's disk and the data plane, in which
//! a block's sum is the set of its contributions, are simulated: gradients lie apart from sums, and an engine begins an epoch where its
//! script can follow, once the neighbours that it shuts out have ended. So are the coordinator's host (`gathering`, `convening`: who
//! waits to join, who is at the edge of a step, which generation meets, the journal's head), after the launcher's code in Python, and
//! a meeting, which is one act of the world (`meeting`); `tests/meetings` runs that code itself.
//!
//! Faults fall anywhere between two events. After every event `check` compares what the world has seen with the promises; when the
//! faults end, the job must go on. `hocket_protocol::planted` breaks one rule at a time to prove that this would be noticed.
#![forbid(unsafe_code)]

mod act;
mod check;
mod convening;
mod coordinator;
mod coordinator_host;
mod engine;
mod epoch;
mod event;
mod faults;
mod gathering;
mod hearing;
mod meeting;
mod memory;
mod net;
mod process;
mod swarm;
mod world;

pub use swarm::Swarm;
pub use world::{Failure, Outcome, World, kill_everywhere, run};
