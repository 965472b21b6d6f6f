//! One launch of a graph: what its ops still wait for.

use crate::graph::{Graph, Work};
use crate::time::Picos;

/// Of an op that has ended.
pub const ENDED: u32 = u32::MAX;

/// The state of a launch. Memory is taken when the first rank starts and given back when the last one has ended.
pub struct Instance {
    /// Which graph.
    pub graph: usize,
    /// Which launch of all.
    pub launch: u32,
    /// Of the launch.
    pub priority: u32,
    /// By op: dependencies that are not met; the start of its rank is one, and what the peer must say of a message.
    pub waits: Vec<u32>,
    /// By rank: ops that have not ended.
    pub left: Vec<u32>,
    /// Ranks that have not ended.
    pub ranks_left: u32,
    /// By op, when recorded: ready and started.
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

    /// Takes memory.
    pub fn open(&mut self, graph: &Graph, rendezvous: bool, recorded: bool) {
        let count = |op: u32| {
            let waits = graph.waits(op);
            let peer = match graph.step(op).work {
                Work::Compute { .. } | Work::Wait { .. } => false,
                Work::Send { .. } => rendezvous,
                Work::Receive { .. } => !rendezvous,
            };
            waits + u32::from(waits == 0) + u32::from(peer)
        };
        self.waits = (0..graph.ops()).map(count).collect();
        self.left = (0..graph.world()).map(|rank| graph.counted(rank as u32)).collect();
        self.ranks_left = graph.world() as u32;
        if recorded {
            self.times = vec![(0, 0); self.waits.len()];
        }
    }

    /// Gives memory back.
    pub fn close(&mut self) {
        (self.waits, self.times) = (Vec::new(), Vec::new());
    }
}
