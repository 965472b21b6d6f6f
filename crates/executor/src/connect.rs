//! The first epoch of members: a rank joins the mesh of all, and its threads start.

use crate::engine::Engine;
use crate::error::Error;
use crate::failure::Who;
use crate::io_thread::Io;
use crate::lock::lock;
use crate::peer::{Peer, Peers};
use crate::peer_table::PeerTable;
use crate::threads::Threads;
use hocket_ids::{Member, Rank};
use hocket_wire::connection::Terms;
use hocket_wire::endpoint::{Own, Pair};
use hocket_wire::identity::Address;
use hocket_wire::mesh::{Agree, Unlinked};
use hocket_wire::poll::Poller;
use std::sync::OnceLock;
use std::time::Duration;

impl Engine {
    /// Joins the mesh of all ranks and starts the threads: this begins the first epoch, in which each rank is the member
    /// of that number.
    ///
    /// With `agree`, pairs of hosts of which one can be called use that, and messages of programs between two that cannot call
    /// each other go through other ranks.
    pub fn connect(
        &self,
        peers: &[Address],
        timeout: Duration,
        agree: Option<Agree<'_>>,
    ) -> Result<(), Error> {
        if peers.len() != self.world {
            return Err(Error::Usage(format!("{} addresses for a world of {}", peers.len(), self.world)));
        }
        let core = self.core();
        let own = self.identity.rank;
        let before = PeerTable::before(Member(own.0.into()));
        let members = peers.iter().enumerate().map(|(at, peer)| (Member(at as u64), peer.clone()));
        let table = before.next(members.collect())?;
        let mut threads = lock(&self.threads);
        let mut listener =
            lock(&self.listener).take().ok_or_else(|| Error::Usage("connected already".into()))?;
        // Anything that a system limit may forbid comes before there are peers, which would have to be told.
        let bell = &core.bell;
        let poller = Poller::new(bell.waker())?;
        let (started, begin) = Threads::start(&core)?;
        *threads = started;
        let dialled = before.change(&table).dialled;
        let life = lock(&self.life);
        let (arena, endpoints) = (&self.arena, &self.endpoints);
        let shared = Own { arena, waker: bell.waker(), life: life.as_ref(), endpoints };
        let mesh = listener.connect(&self.identity, peers, &dialled, shared, timeout, agree)?;
        let (checksums, patience) = (self.identity.checksums, self.patience);
        let terms = Terms { checksums, patience, epoch: table.epoch() };
        let mut ports = Vec::new();
        let mut known: Vec<Option<Peer>> = (0..self.world).map(|_| None).collect();
        for (rank, connections) in dialled.into_iter().zip(mesh.connections) {
            let Some(connections) = connections else { continue };
            let who = Who { rank, host: table.host_of(rank).to_owned() };
            let positions = (table.position(own.index()), table.position(rank.index()));
            let addresses = (&peers[own.index()], &peers[rank.index()]);
            let (link, port, life) = connections
                .link(Pair { rank, positions, addresses, arena, bell, terms })
                .map_err(|cause| Error::System(format!("no link to {who}: {cause}")))?;
            port.watch(&poller, ports.len() as u32)?;
            ports.push(Some((rank, port)));
            known[rank.index()] = Some(Peer { who, link, life, exit_code: OnceLock::new() });
        }
        let member = |rank: Rank| Member(rank.0.into());
        let unlinked =
            mesh.unlinked.iter().map(|Unlinked { ranks: (one, other), .. }| (member(*one), member(*other)));
        if core.peers.set(Peers::new(table, known, unlinked.collect())?).is_err() {
            return Err(Error::Usage("connected already".into()));
        }
        begin
            .send(Io { poller, ports, listener })
            .map_err(|_| Error::System("the I/O thread has ended before it began".into()))
    }
}
