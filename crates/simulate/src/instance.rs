//! One launch of a graph: the open dependencies of its ops, and their records.

use crate::graph::Graph;
use crate::step::{Step, Work};
use crate::time::Picos;
use hocket_network::Network;
use hocket_trace::{Kind, NO_PEER, Record};

const PS_PER_NS: u64 = 1000;

/// Marks an op that has ended.
pub const ENDED: u32 = u32::MAX;

/// The state of a launch. Memory is allocated when the first rank starts and freed when the last one has ended.
pub struct Instance {
    /// Number of its graph.
    pub graph: usize,
    /// Number of the launch.
    pub launch: u32,
    /// Of the launch.
    pub priority: u32,
    /// By op: open dependencies, including the start of its rank and, for a message, the peer's announcement.
    pub waits: Vec<u32>,
    /// By rank: ops that have not ended.
    pub left: Vec<u32>,
    /// Ranks that have not ended.
    pub ranks_left: u32,
    /// By op, if recorded: ready and start times.
    pub times: Vec<(Picos, Picos)>,
}

impl Instance {
    /// Before any rank starts it.
    pub fn new(graph: usize, launch: u32, priority: u32) -> Self {
        Self {
            graph,
            launch,
            priority,
            waits: Vec::new(),
            left: Vec::new(),
            ranks_left: 0,
            times: Vec::new(),
        }
    }

    /// Whether it has memory.
    pub fn is_open(&self) -> bool {
        !self.left.is_empty()
    }

    /// Allocates memory, for a job of so many ranks.
    pub fn open(&mut self, graph: &Graph, world: usize, rendezvous: bool, recorded: bool) {
        let count = |op: u32| {
            let waits = graph.waits(op);
            let peer = match graph.step(op).work {
                Work::Compute { .. } | Work::Wait { .. } | Work::Copy { .. } => false,
                Work::Send { .. } => rendezvous,
                Work::Receive { .. } => !rendezvous,
            };
            waits + u32::from(waits == 0) + u32::from(peer)
        };
        self.waits = (0..graph.ops()).map(count).collect();
        self.left = (0..world).map(|rank| graph.counted(rank as u32)).collect();
        self.ranks_left = world as u32;
        if recorded {
            self.times = vec![(0, 0); self.waits.len()];
        }
    }

    /// Frees memory.
    pub fn close(&mut self) {
        (self.waits, self.times) = (Vec::new(), Vec::new());
    }

    /// The record of an op that ends now, if ops are recorded.
    pub fn record(&self, network: &Network, graph: &Graph, op: u32, step: &Step, now: Picos) -> Record {
        let (ready, start) = self.times[op as usize];
        let route = match step.work {
            Work::Compute { .. } | Work::Wait { .. } | Work::Copy { .. } => None,
            Work::Send { route, .. } | Work::Receive { route, .. } => Some(network.ends(route)),
        };
        let peer = route.map(|(from, to)| if step.kind == Kind::Send { to } else { from });
        Record {
            ready_ns: ready / PS_PER_NS,
            start_ns: start.max(ready) / PS_PER_NS,
            end_ns: now / PS_PER_NS,
            bytes: step.bytes,
            program: self.launch,
            instance: 0,
            op: graph.place(op),
            peer: peer.unwrap_or(NO_PEER),
            kind: step.kind,
        }
    }
}
