//! Each send meets exactly one receive with as many elements of the same type, and the other way round.

use super::Findings;
use crate::{DType, Op, Program};
use hocket_ids::{Rank, Tag};
use std::collections::BTreeMap;

/// (source, destination, tag) of a message.
pub type Key = (usize, usize, Tag);

/// The two ends of a message, as op numbers.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub send: usize,
    pub recv: usize,
}

/// All messages of a program.
pub type Messages = BTreeMap<Key, Message>;

/// Op, elements, wire type, whether a count says how many move.
type End = (usize, usize, DType, bool);

pub fn check(program: &Program, found: &mut Findings<'_>) -> Messages {
    let mut ends: BTreeMap<Key, (Option<End>, Option<End>)> = BTreeMap::new();
    for (rank, ops) in program.ranks.iter().enumerate() {
        for (at, node) in ops.nodes.iter().enumerate() {
            let (key, sends, end) = match &node.op {
                Op::Send { src, wire, peer, tag, count } => {
                    ((rank, peer.index(), *tag), true, (at, src.len(), *wire, count.is_some()))
                }
                Op::Recv { dst, wire, peer, tag, count, .. } => {
                    ((peer.index(), rank, *tag), false, (at, dst.len(), *wire, count.is_some()))
                }
                _ => continue,
            };
            let entry = ends.entry(key).or_default();
            let side = if sends { &mut entry.0 } else { &mut entry.1 };
            if let Some((before, ..)) = side.replace(end) {
                let what = format!("has the peer and tag of op {before}: tags name one message each");
                found.between(rank, at, &[(rank, before)], what);
            }
        }
    }
    let mut messages = Messages::new();
    for (key @ (from, to, tag), (send, recv)) in ends {
        match (send, recv) {
            (Some((send, given, wire, counted)), Some((recv, taken, other, counts))) => {
                if given != taken || wire != other {
                    let (wire, other) = (wire.name(), other.name());
                    let what = format!("takes {taken} {other}; rank {from} sends {given} {wire}");
                    found.between(to, recv, &[(from, send)], what);
                } else if counted != counts {
                    let what = format!("and the send of rank {from}: one has a count, the other has none");
                    found.between(to, recv, &[(from, send)], what);
                }
                messages.insert(key, Message { send, recv });
            }
            (Some((send, ..)), None) => {
                found.at(
                    from,
                    send,
                    format!("rank {} never receives tag {tag} from it", Rank::from_index(to)),
                );
            }
            (None, Some((recv, ..))) => {
                found.at(to, recv, format!("rank {} never sends tag {tag} to it", Rank::from_index(from)));
            }
            (None, None) => {}
        }
    }
    messages
}
