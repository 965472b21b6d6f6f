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

/// Op, elements, wire type.
type End = (usize, usize, DType);

pub fn check(program: &Program, found: &mut Findings<'_>) -> Messages {
    let mut ends: BTreeMap<Key, (Option<End>, Option<End>)> = BTreeMap::new();
    for (rank, ops) in program.ranks.iter().enumerate() {
        for (at, node) in ops.nodes.iter().enumerate() {
            let (key, sends, end) = match &node.op {
                Op::Send { src, wire, peer, tag } => {
                    ((rank, peer.index(), *tag), true, (at, src.len(), *wire))
                }
                Op::Recv { dst, wire, peer, tag, .. } => {
                    ((peer.index(), rank, *tag), false, (at, dst.len(), *wire))
                }
                _ => continue,
            };
            let entry = ends.entry(key).or_default();
            let side = if sends { &mut entry.0 } else { &mut entry.1 };
            if let Some((before, ..)) = side.replace(end) {
                found.at(
                    rank,
                    at,
                    format!("has the peer and tag of op {before}: tags name one message each"),
                );
            }
        }
    }
    let mut messages = Messages::new();
    for (key @ (from, to, tag), (send, recv)) in ends {
        match (send, recv) {
            (Some((send, given, wire)), Some((recv, taken, other))) => {
                if given != taken || wire != other {
                    let (wire, other) = (wire.name(), other.name());
                    found.at(to, recv, format!("takes {taken} {other}; rank {from} sends {given} {wire}"));
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
