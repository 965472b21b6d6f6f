//! An op of a rank, and the resource that it takes.

use crate::time::Picos;
use hocket_network::Way;
use hocket_trace::Kind;

/// The resource of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// The rank's engine.
    Compute { cost: Picos },
    /// Nothing: time passes.
    Wait { time: Picos },
    /// The bus between the rank's host and its device, in one direction.
    Copy { way: Way, cost: Picos },
    /// The engine, then the route; ends when the last byte has left.
    Send {
        route: u32,
        /// The receive.
        peer: u32,
        cost: Picos,
        /// The engine's work while bytes move (`sockets.rs`), and that of the receiver's.
        writing: Picos,
        reading: Picos,
        /// Nothing waits for its end: it does not count for the end of its rank.
        forgotten: bool,
    },
    /// The engine, once the last byte has arrived.
    Receive {
        route: u32,
        /// The send.
        peer: u32,
        cost: Picos,
        /// The engine's work while bytes move (`sockets.rs`).
        reading: Picos,
    },
}

/// One op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The rank that runs it.
    pub rank: u32,
    /// Its kind in a record.
    pub kind: Kind,
    /// Bytes moved or written.
    pub bytes: u64,
    /// Its resource.
    pub work: Work,
}
