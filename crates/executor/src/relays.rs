//! The ranks through which messages go between two of which neither can call the other.

use crate::error::Error;
use crate::failure::Who;
use crate::peer_table::PeerTable;
use hocket_ids::{Member, Rank};
use hocket_program::{Op, Program};
use std::collections::{BTreeSet, HashMap};

/// Pairs of members that have no link, the smaller one first: all members know the same.
#[derive(Clone, Debug, Default)]
pub struct Unlinked(BTreeSet<(Member, Member)>);

impl FromIterator<(Member, Member)> for Unlinked {
    fn from_iter<I: IntoIterator<Item = (Member, Member)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(one, other)| (one.min(other), one.max(other))).collect())
    }
}

/// By pair of ranks of an epoch, the lower one first: the ranks between them. The same on all ranks.
#[derive(Clone, Debug, Default)]
pub struct Relays(HashMap<(Rank, Rank), Vec<Rank>>);

impl Relays {
    /// Finds a way for each pair: over as few hops between hosts as there can be, then over the ranks that relay for the fewest
    /// others. [`Error::Mesh`]: two ranks are apart, and so are all that either of them reaches.
    pub fn find(unlinked: &Unlinked, table: &PeerTable) -> Result<Self, Error> {
        let members = table.members();
        let ranks: HashMap<Member, usize> =
            members.iter().enumerate().map(|(at, member)| (*member, at)).collect();
        let mut apart: Vec<(usize, usize)> = unlinked
            .0
            .iter()
            .filter_map(|(one, other)| Some((*ranks.get(one)?, *ranks.get(other)?)))
            .map(|(one, other)| (one.min(other), one.max(other)))
            .collect();
        apart.sort_unstable();
        let hosts: Vec<&str> = (0..members.len()).map(|at| table.host_of(Rank::from_index(at))).collect();
        let mut busy = vec![0; members.len()];
        let mut found = HashMap::new();
        for &(one, other) in &apart {
            let linked = |from: usize, to: usize| apart.binary_search(&(from.min(to), from.max(to))).is_err();
            let Some(way) = way(one, other, &hosts, &busy, linked) else {
                let [one, other] =
                    [one, other].map(|at| Who { rank: Rank::from_index(at), host: hosts[at].to_owned() });
                let what =
                    format!("{one} and {other} cannot reach each other, nor any rank that reaches both");
                return Err(Error::Mesh { what, missing: vec![one, other], left: None });
            };
            for &at in &way {
                busy[at] += 1;
            }
            let pair = (Rank::from_index(one), Rank::from_index(other));
            found.insert(pair, way.into_iter().map(Rank::from_index).collect());
        }
        Ok(Self(found))
    }

    /// Whether each pair has a link.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranks between two, in the order in which a message comes to them.
    pub fn between(&self, from: Rank, to: Rank) -> Vec<Rank> {
        let way = self.0.get(&(from.min(to), from.max(to))).cloned().unwrap_or_default();
        if from < to { way } else { way.into_iter().rev().collect() }
    }

    /// Two ranks that exchange a message in `program` by way of a rank that has no part in it, and so would not pass it on.
    pub fn broken(&self, program: &Program) -> Option<(Rank, Rank)> {
        let takes_part =
            |rank: &Rank| program.ranks.get(rank.index()).is_some_and(|ops| !ops.nodes.is_empty());
        self.0.iter().find_map(|(&(one, other), way)| {
            let sends = |from: Rank, to: Rank| {
                let nodes = program.ranks.get(from.index()).map_or(&[][..], |ops| &ops.nodes);
                nodes.iter().any(|node| matches!(node.op, Op::Send { peer, .. } if peer == to))
            };
            let meets = sends(one, other) || sends(other, one);
            (meets && !way.iter().all(takes_part)).then_some((one, other))
        })
    }

    /// All pairs without a link, the lower rank first, and the ranks between them; ascending.
    pub fn all(&self) -> Vec<(Rank, Rank, Vec<Rank>)> {
        let mut all: Vec<_> = self.0.iter().map(|(&(one, other), way)| (one, other, way.clone())).collect();
        all.sort();
        all
    }
}

/// The cheapest way between two ranks, without these (Dijkstra). A hop to another host costs more than all others together, and one
/// through a rank as much as that rank relays already.
fn way(
    from: usize,
    to: usize,
    hosts: &[&str],
    busy: &[usize],
    linked: impl Fn(usize, usize) -> bool,
) -> Option<Vec<usize>> {
    let world = hosts.len();
    let most = 1 + world * (1 + busy.iter().max().copied().unwrap_or(0));
    let mut cost = vec![usize::MAX; world];
    let mut before = vec![usize::MAX; world];
    let mut open: BTreeSet<(usize, usize)> = [(0, from)].into();
    cost[from] = 0;
    while let Some((so_far, at)) = open.pop_first() {
        if at == to {
            break;
        }
        for next in (0..world).filter(|&next| next != at && linked(at, next)) {
            let hop = if hosts[at] == hosts[next] { 1 } else { most };
            let total = so_far + hop + if next == to { 0 } else { busy[next] };
            if total < cost[next] {
                open.remove(&(cost[next], next));
                open.insert((total, next));
                cost[next] = total;
                before[next] = at;
            }
        }
    }
    let mut way = Vec::new();
    let mut at = *before.get(to).filter(|&&at| at != usize::MAX)?;
    while at != from {
        way.push(at);
        at = before[at];
    }
    way.reverse();
    Some(way)
}

#[cfg(test)]
mod tests {
    use super::{Relays, Unlinked};
    use crate::peer_table::PeerTable;
    use hocket_ids::{Member, Rank};
    use hocket_wire::identity::Address;

    fn found(hosts: &[&str], apart: &[(u64, u64)]) -> Result<Vec<(u32, u32, Vec<u32>)>, String> {
        let address =
            |host: &&str| Address { tcp: vec![([127, 0, 0, 1], 1).into()], host: (*host).into(), streams: 1 };
        let members = hosts.iter().enumerate().map(|(at, host)| (Member(at as u64), address(host)));
        let table = PeerTable::before(Member(0)).next(members.collect()).unwrap();
        let unlinked: Unlinked = apart.iter().map(|&(one, other)| (Member(one), Member(other))).collect();
        let relays = Relays::find(&unlinked, &table).map_err(|error| error.to_string())?;
        for (one, other, way) in relays.all() {
            assert_eq!(relays.between(other, one), way.iter().rev().copied().collect::<Vec<_>>());
        }
        let plain = |(one, other, way): (Rank, Rank, Vec<Rank>)| {
            (one.0, other.0, way.into_iter().map(|rank| rank.0).collect())
        };
        Ok(relays.all().into_iter().map(plain).collect())
    }

    /// One rank would carry all, or messages would cross the network twice where once is enough.
    #[test]
    fn ways_are_short_and_shared() {
        assert_eq!(found(&["a", "b", "c"], &[(2, 1)]).unwrap(), [(1, 2, vec![0])]);
        // Rank 1 reaches rank 3 through a rank of its own host.
        assert_eq!(found(&["a", "b", "b", "c"], &[(1, 3)]).unwrap(), [(1, 3, vec![2])]);
        let two = found(&["a", "b", "c", "d", "e", "f"], &[(2, 3), (4, 5)]).unwrap();
        assert_eq!(two, [(2, 3, vec![0]), (4, 5, vec![1])]);
        // No rank reaches both.
        assert_eq!(found(&["a", "b", "c", "d"], &[(0, 3), (0, 2), (1, 3)]).unwrap()[1], (0, 3, vec![1, 2]));
    }

    /// A job would begin that cannot end.
    #[test]
    fn ranks_that_nobody_reaches_are_named() {
        let why = found(&["a", "b", "c"], &[(0, 2), (1, 2)]).unwrap_err();
        assert_eq!(
            why,
            "rank 0 on a and rank 2 on c cannot reach each other, nor any rank that reaches both"
        );
    }
}
