//! Collectives whose ops are computed on access: the graph takes no memory, whatever the number of ranks.
//!
//! Ops are numbered step by step, and within a step rank by rank: ranks go through a collective together, so ops that
//! are accessed together are adjacent. Op `2i` is the send and `2i + 1` the receive of the same step and rank. Nothing
//! waits for the end of a send.

use crate::conditions::Costs;
use crate::error::Error;
use crate::step::{Step, Work};
use crate::time::{Picos, from_s};
use hocket_algorithms::ring_passed;
use hocket_network::{Network, NetworkError};
use hocket_trace::Kind;

/// The ring all-reduce of `hocket_algorithms`: n−1 steps that reduce a part, n−1 that pass it on. A rank forwards what
/// it received in the previous step, and posts receives in order.
#[derive(Clone, Debug)]
pub struct Ring {
    n: u32,
    /// By rank: the route to the next one, and the engine's seconds for each byte on it while it moves.
    routes: Vec<(u32, f64)>,
    /// By part: bytes, and the cost of receiving it when it is reduced.
    parts: Vec<(u64, Picos)>,
    send: Picos,
    receive: Picos,
}

impl Ring {
    /// Over all `world` ranks in order, `bytes` on each.
    pub fn new(world: u32, bytes: u64, network: &Network, costs: &Costs) -> Result<Self, Error> {
        check(world)?;
        let next = |rank| {
            network.route(rank, (rank + 1) % world).map(|route| (route, costs.socket_on(route, network)))
        };
        let routes: Result<_, NetworkError> = (0..world).map(next).collect();
        let edge = |part: u32| bytes * u64::from(part) / u64::from(world);
        let receive = from_s(costs.receive_s);
        let part = |part| {
            let bytes = edge(part + 1) - edge(part);
            (bytes, receive + from_s(costs.reduce_s_per_byte * bytes as f64))
        };
        let parts = (0..world).map(part).collect();
        Ok(Self { n: world, routes: routes?, parts, send: from_s(costs.send_s), receive })
    }

    pub(crate) fn world(&self) -> usize {
        self.n as usize
    }

    pub(crate) fn ops(&self) -> u32 {
        4 * (self.n - 1) * self.n
    }

    pub(crate) fn step(&self, op: u32) -> Step {
        let (step, rank) = (op / 2 / self.n, op / 2 % self.n);
        let receives = op % 2 == 1;
        let sender = if receives { before(rank, self.n) } else { rank };
        let (bytes, reducing) = self.parts[ring_passed(step as usize, sender as usize, self.n as usize)];
        let (route, socket_s) = self.routes[sender as usize];
        let on_socket = from_s(socket_s * bytes as f64);
        if receives {
            let cost = if step < self.n - 1 { reducing } else { self.receive };
            let peer = 2 * (step * self.n + sender);
            let work = Work::Receive { route, peer, cost, reading: on_socket };
            return Step { rank, kind: Kind::Recv, bytes, work };
        }
        let work = Work::Send {
            route,
            peer: 2 * (step * self.n + after(rank, self.n)) + 1,
            cost: self.send,
            writing: on_socket,
            reading: on_socket,
            forgotten: true,
        };
        Step { rank, kind: Kind::Send, bytes, work }
    }

    pub(crate) fn waits(&self, op: u32) -> u32 {
        u32::from(op >= 2 * self.n)
    }

    pub(crate) fn successors(&self, op: u32) -> [Option<u32>; 2] {
        let next = op + 2 * self.n;
        if op.is_multiple_of(2) || next >= self.ops() { [None, None] } else { [Some(next - 1), Some(next)] }
    }

    pub(crate) fn roots(&self, rank: u32) -> [Option<u32>; 2] {
        if self.ops() == 0 { [None, None] } else { [Some(2 * rank), Some(2 * rank + 1)] }
    }
}

/// All-to-all, everything in flight at once: rank r sends its n−1 parts to r+1, r+2, ….
#[derive(Clone, Debug)]
pub struct AllToAll {
    n: u32,
    /// Length of a part.
    bytes: u64,
    /// By distance − 1, then by sender: the route, and whether its bytes pass through sockets.
    routes: Vec<(u32, bool)>,
    /// The engine's work on a part that does.
    socket: Picos,
    send: Picos,
    receive: Picos,
}

impl AllToAll {
    /// Over all `world` ranks, `bytes` on each in `world` parts.
    pub fn new(world: u32, bytes: u64, network: &Network, costs: &Costs) -> Result<Self, Error> {
        check(world)?;
        let pairs = (1..world).flat_map(|far| (0..world).map(move |rank| (rank, (rank + far) % world)));
        let route = |(rank, to)| network.route(rank, to).map(|route| (route, network.is_remote(rank, to)));
        let routes: Result<_, NetworkError> = pairs.map(route).collect();
        let bytes = bytes / u64::from(world);
        Ok(Self {
            n: world,
            bytes,
            routes: routes?,
            socket: from_s(costs.socket_s_per_byte * bytes as f64),
            send: from_s(costs.send_s),
            receive: from_s(costs.receive_s),
        })
    }

    pub(crate) fn world(&self) -> usize {
        self.n as usize
    }

    pub(crate) fn ops(&self) -> u32 {
        2 * (self.n - 1) * self.n
    }

    pub(crate) fn step(&self, op: u32) -> Step {
        let (far, rank) = (op / 2 / self.n + 1, op / 2 % self.n);
        let (row, bytes) = ((far - 1) * self.n, self.bytes);
        if op % 2 == 1 {
            let sender = (rank + self.n - far) % self.n;
            let (route, remote) = self.routes[(row + sender) as usize];
            let reading = self.on_socket(remote);
            let work = Work::Receive { route, peer: 2 * (row + sender), cost: self.receive, reading };
            return Step { rank, kind: Kind::Recv, bytes, work };
        }
        let (route, remote) = self.routes[(row + rank) as usize];
        let peer = 2 * (row + (rank + far) % self.n) + 1;
        let on_socket = self.on_socket(remote);
        let (writing, reading) = (on_socket, on_socket);
        let work = Work::Send { route, peer, cost: self.send, writing, reading, forgotten: true };
        Step { rank, kind: Kind::Send, bytes, work }
    }

    fn on_socket(&self, remote: bool) -> Picos {
        if remote { self.socket } else { 0 }
    }

    pub(crate) fn roots(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        let n = self.n;
        (0..n - 1).flat_map(move |row| [2 * (row * n + rank), 2 * (row * n + rank) + 1])
    }
}

fn before(rank: u32, n: u32) -> u32 {
    if rank == 0 { n - 1 } else { rank - 1 }
}

fn after(rank: u32, n: u32) -> u32 {
    if rank + 1 == n { 0 } else { rank + 1 }
}

fn check(world: u32) -> Result<(), Error> {
    // Numbers of ops are 32 bits.
    if (2..=30_000).contains(&world) {
        return Ok(());
    }
    Err(Error::Job { what: format!("a collective of {world} ranks: it has 2 to 30,000") })
}
