//! Each send matches exactly one receive with as many elements of the same type, and vice versa.

use super::Findings;
use crate::{DType, Op, Program, Slice, Space};
use hocket_ids::{Rank, Tag};

/// A message: its ranks, and the op numbers of its two ends.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub from: usize,
    pub to: usize,
    pub send: usize,
    pub recv: usize,
}

/// One end: op, elements, wire type, whether it carries a count, and the space of its slice.
#[derive(Clone, Copy)]
struct End {
    op: usize,
    elements: usize,
    wire: DType,
    counted: bool,
    space: Space,
}

/// All messages of a program, by source, destination and tag.
pub fn check(program: &Program, found: &mut Findings<'_>) -> Vec<Message> {
    let mut messages = Vec::new();
    let (sends, recvs) = ends(program, found);
    for (from, (sends, recvs)) in sends.iter().zip(&recvs).enumerate() {
        let (mut s, mut r) = (0, 0);
        loop {
            match (sends.get(s), recvs.get(r)) {
                (Some((to, tag, send)), Some((to2, tag2, recv))) if (to, tag) == (to2, tag2) => {
                    agree((from, *to), send, recv, found);
                    messages.push(Message { from, to: *to, send: send.op, recv: recv.op });
                    (s, r) = (s + 1, r + 1);
                }
                (Some((to, tag, send)), other)
                    if other.is_none_or(|(to2, tag2, _)| (to, tag) < (to2, tag2)) =>
                {
                    let to = Rank::from_index(*to);
                    found.at(from, send.op, format!("rank {to} never receives tag {tag} from it"));
                    s += 1;
                }
                (_, Some((to, tag, recv))) => {
                    let from = Rank::from_index(from);
                    found.at(*to, recv.op, format!("rank {from} never sends tag {tag} to it"));
                    r += 1;
                }
                (_, None) => break,
            }
        }
    }
    messages
}

/// By source: destination, tag and end of each send and each receive, in order.
type BySource = Vec<Vec<(usize, Tag, End)>>;

fn ends(program: &Program, found: &mut Findings<'_>) -> (BySource, BySource) {
    let (mut sends, mut recvs) = (vec![Vec::new(); program.world()], vec![Vec::new(); program.world()]);
    for (rank, ops) in program.ranks.iter().enumerate() {
        // Without a structure check, there may be no such buffer.
        let space = |slice: &Slice| ops.buffers.get(slice.buffer.index()).map_or(Space::Host, |b| b.space);
        for (op, node) in ops.nodes.iter().enumerate() {
            match &node.op {
                Op::Send { src, wire, peer, tag, count } => {
                    let (elements, counted, space) = (src.len(), count.is_some(), space(src));
                    let end = End { op, elements, wire: *wire, counted, space };
                    sends[rank].push((peer.index(), *tag, end));
                }
                Op::Recv { dst, wire, peer, tag, count, .. } => {
                    let (elements, counted, space) = (dst.len(), count.is_some(), space(dst));
                    let end = End { op, elements, wire: *wire, counted, space };
                    // Without a structure check, there may be no such rank.
                    if let Some(recvs) = recvs.get_mut(peer.index()) {
                        recvs.push((rank, *tag, end));
                    }
                }
                _ => {}
            }
        }
    }
    for (sends, side) in [(true, &mut sends), (false, &mut recvs)] {
        for (from, ends) in side.iter_mut().enumerate() {
            ends.sort_unstable_by_key(|(to, tag, end)| (*to, *tag, end.op));
            for pair in ends.windows(2) {
                let [(to, tag, before), (to2, tag2, end)] = pair else { continue };
                if (to, tag) == (to2, tag2) {
                    let rank = if sends { from } else { *to };
                    let what =
                        format!("has the peer and tag of op {}: tags name one message each", before.op);
                    found.between(rank, end.op, &[(rank, before.op)], what);
                }
            }
            ends.dedup_by_key(|(to, tag, _)| (*to, *tag));
        }
    }
    (sends, recvs)
}

fn agree((from, to): (usize, usize), send: &End, recv: &End, found: &mut Findings<'_>) {
    if (send.elements, send.wire) != (recv.elements, recv.wire) {
        let (wire, other) = (send.wire.name(), recv.wire.name());
        let what = format!("takes {} {other}; rank {from} sends {} {wire}", recv.elements, send.elements);
        found.between(to, recv.op, &[(from, send.op)], what);
    } else if send.counted != recv.counted {
        let what = format!("and the send of rank {from}: one has a count, the other has none");
        found.between(to, recv.op, &[(from, send.op)], what);
    } else if !send.space.reaches(recv.space) {
        let (left, right) = (send.space.name(), recv.space.name());
        let what = format!(
            "lands in {right} memory what rank {from} sends from {left} memory: no link moves that; copy to host first"
        );
        found.between(to, recv.op, &[(from, send.op)], what);
    }
}
