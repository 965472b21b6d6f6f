//! Chooses the transport between two ranks from the connections and memory that were opened between them.

use crate::bell::Bell;
use crate::fabric::{FabricLink, FabricPort, Shared};
use crate::life::Watch;
use crate::link::{Link, Port};
use crate::memory::Arena;
use crate::mesh::Connections;
use crate::shaper::Shaper;
use crate::shm::link::{ShmLink, ShmPort};
use crate::tcp::{Pace, TcpLink, TcpPort, Terms};
use hocket_ids::Rank;
use std::sync::Arc;

/// The local rank's side of its links.
pub struct Local<'a> {
    /// Its registered memory.
    pub arena: &'a Arena,
    /// Wakes its I/O thread.
    pub bell: &'a Arc<Bell>,
    /// Its position among the ranks of its host.
    pub position: usize,
    /// What it agrees about with all ranks.
    pub terms: Terms,
    /// Its endpoint on the fabric that carries payloads between hosts, if there is one.
    pub fabric: Option<&'a Arc<Shared>>,
    /// Whether epochs end before the job does.
    pub elastic: bool,
    /// The emulated network, if there is one.
    pub shaper: Option<&'a Arc<Shaper>>,
}

/// Both halves of a link, and the life of a neighbour that is watched.
pub type Ends = (Arc<dyn Link>, Box<dyn Port>, Option<Arc<Watch>>);

/// The link to `rank`, or why there is none; `position` is that rank's place among those of our host, if it is one of them.
pub fn link(
    rank: Rank,
    connections: Connections,
    position: usize,
    local: &Local<'_>,
) -> Result<Ends, String> {
    Ok(match connections {
        Connections::Near { stream, neighbour } => {
            let bell = Bell::new(&neighbour.arena, neighbour.waker);
            let theirs = (neighbour.arena, bell);
            let link = ShmLink::new(rank, local.arena, theirs, local.position, Arc::clone(local.bell));
            let link = Arc::new(link);
            let life = neighbour.life.map(Arc::new);
            let port = ShmPort::new(Arc::clone(&link), stream, position, local.terms, life.clone());
            (link, Box::new(port), life)
        }
        Connections::Far { mut streams, fabric: Some(address), .. } if streams.len() == 1 => {
            let shared = local.fabric.ok_or("its connection has a fabric, and this rank has none")?;
            let (shared, bell) = (Arc::clone(shared), Arc::clone(local.bell));
            let link = Arc::new(FabricLink::new(rank, shared, local.terms.checksums, bell));
            let (stream, in_place) = (streams.remove(0), !local.elastic);
            let port = FabricPort::new(Arc::clone(&link), stream, &address, local.terms, in_place);
            (link, Box::new(port.map_err(|error| error.to_string())?), None)
        }
        Connections::Far { streams, cards, .. } => {
            let bell = Arc::clone(local.bell);
            let link = TcpLink::new(rank, streams.len(), cards, local.terms.checksums, bell);
            let link = Arc::new(link);
            let pace =
                local.shaper.map(|shaper| Pace { shaper: Arc::clone(shaper), destination: rank.index() });
            let port = TcpPort::new(Arc::clone(&link), streams, local.terms, pace.as_ref());
            (link, Box::new(port), None)
        }
    })
}
