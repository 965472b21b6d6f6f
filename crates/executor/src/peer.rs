//! The other ranks of an epoch, shared by all threads of this one.

use crate::error::Error;
use crate::failure::{Failure, Location, Who};
use crate::peer_table::PeerTable;
use crate::relays::{Relays, Unlinked};
use hocket_ids::Rank;
use hocket_protocol::why::Why;
use hocket_wire::life::Watch;
use hocket_wire::link::{Cards, Link};
use hocket_wire::memory::Region;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Another rank.
pub struct Peer {
    /// Its rank and host.
    pub who: Who,
    /// The link to it.
    pub link: Arc<dyn Link>,
    /// Tells when a neighbour that is watched has ended.
    pub life: Option<Arc<Watch>>,
    /// With which exit code its process ends, once it or another rank has said so.
    pub exit_code: OnceLock<u8>,
}

impl Peer {
    /// An error with this rank at fault: "rank 2 on b0" `what`.
    pub fn failed(&self, why: Why, location: Option<Location>, what: impl fmt::Display) -> Failure {
        let exit_code = None;
        Failure { who: self.who.clone(), why, exit_code, location, what: format!("{} {what}", self.who) }
    }

    /// It left in order although it is needed: "rank 2 on b left the job" `while_what`.
    pub fn left(&self, location: Option<Location>, while_what: impl fmt::Display) -> Failure {
        let exit_code = self.exit_code.get().copied();
        let failure = match exit_code.filter(|code| *code != 0) {
            Some(code) => {
                self.failed(Why::Left, location, format_args!("exited with code {code}{while_what}"))
            }
            None => self.failed(Why::Left, location, format_args!("left the job{while_what}")),
        };
        Failure { exit_code, ..failure }
    }

    /// Whether messages to it may use these cards; the reason where there is one that the two hosts lack.
    pub fn has_cards(&self, cards: Cards) -> Result<(), String> {
        match (cards.highest(), self.link.cards()) {
            (Some(highest), Some(count)) if highest as usize >= count => Err(format!(
                "its messages use card {highest}, and there are {count} on the way to {}",
                self.who
            )),
            _ => Ok(()),
        }
    }

    /// Prepares `region` for moving its bytes between it and us.
    pub fn register(&self, region: &Region) -> Result<(), Error> {
        let refused = |error| Error::Usage(format!("memory for {}: {error}", self.who));
        self.link.register(region).map_err(refused)
    }
}

/// The other ranks of an epoch.
pub struct Peers {
    /// Their table.
    pub table: PeerTable,
    /// Those between which there is no link.
    pub unlinked: Unlinked,
    /// What lies between them.
    pub relays: Relays,
    by_rank: Vec<Option<Peer>>,
}

impl Peers {
    /// By rank; `None` at our own place, and of ranks that we have no link to. [`Error::Mesh`]: two ranks are apart.
    pub fn new(table: PeerTable, by_rank: Vec<Option<Peer>>, unlinked: Unlinked) -> Result<Self, Error> {
        let relays = Relays::find(&unlinked, &table)?;
        Ok(Self { table, unlinked, relays, by_rank })
    }

    /// The rank with its host; `None`: the epoch does not have it.
    pub fn who(&self, rank: Rank) -> Option<Who> {
        (rank.index() < self.table.world()).then(|| Who { rank, host: self.table.host_of(rank).to_owned() })
    }

    /// The peer of that rank; `None`: our own rank, one that we have no link to, or one that the epoch does not have.
    pub fn get(&self, rank: Rank) -> Option<&Peer> {
        self.by_rank.get(rank.index())?.as_ref()
    }

    /// All ranks in order; `None` where [`Self::get`] has none.
    pub fn all(&self) -> impl Iterator<Item = Option<&Peer>> {
        self.by_rank.iter().map(Option::as_ref)
    }
}
