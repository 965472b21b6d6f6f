//! The ranks of an epoch, checked before any of them is dialled.
//!
//! A member is a process of the job. It keeps its identity when the membership changes; its rank is its place in an
//! epoch's table. Two tables determine which links a new epoch opens and closes ([`PeerTable::change`]).

use crate::error::Error;
use hocket_ids::{Member, Rank};
use hocket_wire::identity::Address;
use std::collections::HashMap;

/// Ranks of one host for which mailboxes have room.
pub const LOCAL_WORLD_MAX: usize = 64;
/// Limit of connections per pair of interfaces: more would only cost memory and turns.
const STREAMS_MAX: usize = 64;

/// The ranks of an epoch, from one member's side.
#[derive(Clone, Debug)]
pub struct PeerTable {
    epoch: u64,
    own: Member,
    /// By rank.
    members: Vec<(Member, Address)>,
}

/// What happens to links when one epoch follows another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Ranks of the new epoch without a link yet.
    pub dialled: Vec<Rank>,
    /// Links that stay: the rank in the old epoch and in the new one.
    pub kept: Vec<(Rank, Rank)>,
    /// Ranks of the old epoch whose links end.
    pub closed: Vec<Rank>,
}

impl PeerTable {
    /// The table before the first epoch: `own` alone, without an address.
    pub fn before(own: Member) -> Self {
        Self { epoch: 0, own, members: Vec::new() }
    }

    /// The next epoch, in which `members[rank]` has that rank; the error says what is wrong with it.
    pub fn next(&self, members: Vec<(Member, Address)>) -> Result<Self, Error> {
        let sound = |peer: &Address| !peer.tcp.is_empty() && (0..=STREAMS_MAX).contains(&peer.streams);
        if let Some((_, Address { tcp, host, streams })) = members.iter().find(|(_, peer)| !sound(peer)) {
            let listeners = tcp.len();
            let what = format!(
                "host {host}: {listeners} addresses, {streams} streams (0, which is as the path needs, to {STREAMS_MAX})"
            );
            return Err(Error::Usage(what));
        }
        Self { epoch: self.epoch + 1, own: self.own, members }.checked()
    }

    /// The later epoch `epoch`, in which `members[rank]` has that rank; all of them are in this one.
    pub fn following(&self, epoch: u64, members: &[Member]) -> Result<Self, Error> {
        if epoch <= self.epoch {
            let what = format!("epoch {epoch} cannot follow epoch {}", self.epoch);
            return Err(Error::Usage(what));
        }
        let known: HashMap<_, _> = self.members.iter().map(|(member, address)| (*member, address)).collect();
        let find = |member: &Member| {
            let address = known.get(member).map(|address| (*member, Address::clone(address)));
            address.ok_or_else(|| Error::Usage(format!("there is no connection to member {member} yet")))
        };
        let members = members.iter().map(find).collect::<Result<_, Error>>()?;
        Self { epoch, own: self.own, members }.checked()
    }

    fn checked(self) -> Result<Self, Error> {
        let ranks = self.ranks();
        if ranks.len() != self.world() {
            return Err(Error::Usage("a member has two ranks".into()));
        }
        if !ranks.contains_key(&self.own) {
            return Err(Error::Usage("this process is no member".into()));
        }
        if self.position(self.world()) > LOCAL_WORLD_MAX {
            let host = self.host();
            return Err(Error::Usage(format!("more than {LOCAL_WORLD_MAX} ranks on host {host}")));
        }
        Ok(self)
    }

    /// Counts from 1; 0 before the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.members.len()
    }

    /// Our rank.
    ///
    /// # Panics
    /// Before the first epoch.
    pub fn own(&self) -> Rank {
        let place = self.members.iter().position(|(member, _)| *member == self.own);
        Rank::from_index(place.expect("a table of an epoch has its owner"))
    }

    /// The member of each rank.
    pub fn members(&self) -> Vec<Member> {
        self.members.iter().map(|(member, _)| *member).collect()
    }

    /// The host of `rank`.
    pub fn host_of(&self, rank: Rank) -> &str {
        &self.members[rank.index()].1.host
    }

    /// Our host.
    pub fn host(&self) -> &str {
        self.host_of(self.own())
    }

    /// Ranks of our host before `rank`.
    pub fn position(&self, rank: usize) -> usize {
        let host = self.host();
        self.members[..rank].iter().filter(|(_, peer)| peer.host == host).count()
    }

    /// Ranks to dial, keep and close when `next` follows this epoch.
    pub fn change(&self, next: &Self) -> Change {
        let (before, after) = (self.ranks(), next.ranks());
        let others = |table: &Self| {
            let members = table.members.iter().map(|(member, _)| *member).enumerate();
            let others = members.filter(|(_, member)| *member != self.own);
            others.map(|(at, member)| (Rank::from_index(at), member)).collect::<Vec<_>>()
        };
        let mut change = Change::default();
        for (rank, member) in others(next) {
            match before.get(&member) {
                Some(&old) => change.kept.push((old, rank)),
                None => change.dialled.push(rank),
            }
        }
        let gone = others(self).into_iter().filter(|(_, member)| !after.contains_key(member));
        change.closed = gone.map(|(rank, _)| rank).collect();
        change
    }

    fn ranks(&self) -> HashMap<Member, Rank> {
        self.members.iter().enumerate().map(|(at, (member, _))| (*member, Rank::from_index(at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(ids: &[u64]) -> Vec<(Member, Address)> {
        let address = |id: u64| Address {
            tcp: vec![([127, 0, 0, 1], 1000 + id as u16).into()],
            host: format!("h{}", id / 2),
            streams: 1,
        };
        ids.iter().map(|&id| (Member(id), address(id))).collect()
    }

    /// A job that changes would dial ranks that it has links to, or keep links to dead ones.
    #[test]
    fn a_change_follows_from_two_tables() {
        let none = PeerTable::before(Member(2));
        let first = none.next(members(&[0, 1, 2, 3])).unwrap();
        assert_eq!((first.epoch(), first.own(), first.world()), (1, Rank(2), 4));
        let dialled = [0, 1, 3].map(Rank).to_vec();
        assert_eq!(none.change(&first), Change { dialled: dialled.clone(), ..Change::default() });
        assert_eq!(first.change(&none), Change { closed: dialled, ..Change::default() });
        // Member 0 is lost, 7 joins, ranks move up.
        let second = first.next(members(&[1, 2, 3, 7])).unwrap();
        assert_eq!((second.epoch(), second.own()), (2, Rank(1)));
        let kept = vec![(Rank(1), Rank(0)), (Rank(3), Rank(2))];
        assert_eq!(first.change(&second), Change { dialled: vec![Rank(3)], kept, closed: vec![Rank(0)] });
        assert_eq!(second.change(&second).dialled, []);
    }

    /// A member that nobody has a connection to, or that has been shut out, would be waited for.
    #[test]
    fn an_epoch_follows_with_members_that_are_there() {
        let first = PeerTable::before(Member(2)).next(members(&[0, 1, 2])).unwrap();
        let later = first.following(7, &[Member(2), Member(0)]).unwrap();
        assert_eq!((later.epoch(), later.own(), later.world(), later.host()), (7, Rank(0), 2, "h1"));
        assert_eq!(later.members(), [Member(2), Member(0)]);
        let refused = |epoch, members: &[u64]| {
            let members: Vec<_> = members.iter().copied().map(Member).collect();
            later.following(epoch, &members).unwrap_err().to_string()
        };
        assert!(refused(7, &[2]).contains("cannot follow"));
        assert!(refused(8, &[2, 1]).contains("no connection to member 1"));
        assert!(refused(8, &[0]).contains("no member"));
    }

    /// Positions in mailboxes must be the same on both sides of a pair.
    #[test]
    fn positions_count_ranks_of_the_own_host() {
        let table = PeerTable::before(Member(3)).next(members(&[0, 2, 5, 3])).unwrap();
        assert_eq!((table.host(), table.position(1), table.position(3), table.position(4)), ("h1", 0, 1, 2));
    }

    /// A process that was voted out, or a table with a mistake, would dial any address.
    #[test]
    fn unsound_tables_are_refused() {
        let before = PeerTable::before(Member(9));
        assert!(before.next(members(&[0, 1])).unwrap_err().to_string().contains("no member"));
        assert!(before.next(members(&[9, 1, 1])).unwrap_err().to_string().contains("two ranks"));
        let mut none = members(&[9, 1]);
        none[1].1.tcp.clear();
        assert!(before.next(none).unwrap_err().to_string().contains("0 addresses"));
    }
}
