//! Who the ranks of a job are, as one of them was told: checked before anybody is called.

use crate::error::Error;
use hocket_ids::Rank;
use hocket_wire::identity::Address;

/// Ranks of one host that mailboxes are laid out for.
pub const LOCAL_WORLD_MAX: usize = 64;
/// Connections per pair of interfaces: more only cost memory and turns.
const STREAMS_MAX: usize = 64;

/// The addresses of all ranks, from one rank's side.
pub struct PeerTable<'a> {
    peers: &'a [Address],
    own: Rank,
}

impl<'a> PeerTable<'a> {
    /// Of a job of `world` ranks; says what is wrong with it.
    pub fn new(peers: &'a [Address], own: Rank, world: usize) -> Result<Self, Error> {
        if peers.len() != world {
            return Err(Error::Usage(format!("{} addresses for a world of {world}", peers.len())));
        }
        let sound = |peer: &&Address| !peer.tcp.is_empty() && (1..=STREAMS_MAX).contains(&peer.streams);
        if let Some(Address { tcp, host, streams }) = peers.iter().find(|peer| !sound(peer)) {
            let listeners = tcp.len();
            let what = format!("host {host}: {listeners} addresses, {streams} streams (1 to {STREAMS_MAX})");
            return Err(Error::Usage(what));
        }
        let peer_table = Self { peers, own };
        if peer_table.position(world) > LOCAL_WORLD_MAX {
            return Err(Error::Usage(format!(
                "more than {LOCAL_WORLD_MAX} ranks on host {}",
                peer_table.host()
            )));
        }
        Ok(peer_table)
    }

    /// Ranks of our host before `rank`.
    pub fn position(&self, rank: usize) -> usize {
        self.peers[..rank].iter().filter(|peer| peer.host == self.host()).count()
    }

    /// Our host.
    pub fn host(&self) -> &str {
        &self.peers[self.own.index()].host
    }

    /// Our own rank and host, for messages.
    pub fn name(&self) -> String {
        format!("rank {} on {}", self.own, self.host())
    }
}
