//! Connections between processes, and to the coordinator: each lane keeps its order and loses nothing until the connection ends.
//!
//! A cut holds back what is sent over it until it heals, as TCP's retransmissions do; whoever waits learns nothing but
//! silence. Processes of one host are joined by mailboxes in memory, which no cut reaches.

pub const LANES: usize = 2;
/// The coordinator's place among the ends of connections.
pub const COORDINATOR: usize = usize::MAX;

pub type ConnectionId = usize;

#[derive(Debug)]
pub struct Connection {
    pub ends: [usize; 2],
    /// Whether each end takes what comes: its process lives and has not closed it.
    pub open: [bool; 2],
    last_us: [[u64; LANES]; 2],
}

impl Connection {
    pub fn side(&self, process: usize) -> usize {
        usize::from(self.ends[1] == process)
    }
}

/// All connections that ever were, and the cuts between hosts.
#[derive(Debug, Default)]
pub struct Network {
    pub connections: Vec<Connection>,
    /// From a host to a host (the coordinator's is the last): until when nothing passes.
    cuts: Vec<((usize, usize), u64)>,
}

impl Network {
    pub fn connect(&mut self, ends: [usize; 2]) -> ConnectionId {
        self.connections.push(Connection { ends, open: [true; 2], last_us: [[0; LANES]; 2] });
        self.connections.len() - 1
    }

    /// Nothing passes from one host to the other until then.
    pub fn cut(&mut self, from: usize, to: usize, until_us: u64) {
        self.cuts.push(((from, to), until_us));
    }

    pub fn heal(&mut self) {
        self.cuts.clear();
    }

    /// Until when a way is cut; zero when it is not.
    pub fn cut_until(&self, from: usize, to: usize) -> u64 {
        let of = |&&(way, _): &&((usize, usize), u64)| way == (from, to) && from != to;
        self.cuts.iter().filter(of).map(|&(_, until_us)| until_us).max().unwrap_or(0)
    }

    /// When something that is ready to arrive at `at_us` arrives, after all before it on that lane.
    pub fn in_order(&mut self, connection: ConnectionId, from_side: usize, lane: usize, at_us: u64) -> u64 {
        let last = &mut self.connections[connection].last_us[from_side][lane];
        *last = at_us.max(*last);
        *last
    }

    /// When the last of what an end has sent arrives.
    pub fn drained(&self, connection: ConnectionId, from_side: usize) -> u64 {
        self.connections[connection].last_us[from_side].iter().copied().max().unwrap_or(0)
    }
}
