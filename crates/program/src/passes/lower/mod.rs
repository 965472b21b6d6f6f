//! Lowers collectives to sends and receives by their algorithm; leaves every other op as it is.
//!
//! Before: `all_reduce sum %0[0:8) over 0 1 by ring` on each rank. After: sends, reducing receives and copies that do
//! the same. Gain: everything behind this pass knows messages only.

mod weaver;

use super::{Pass, PassError};
use crate::{Algorithm, Collective, Node, Op, Program, RankBuilder, RankProgram};
use hocket_algorithms::Call;
use hocket_ids::{OpId, Rank};
use std::collections::BTreeSet;
use std::ops::Range;
pub use weaver::{Expansion, Weaver};

pub const PASS: Pass = Pass {
    title: "lower",
    run: |program, _| lower(program).map(Some),
    spec: |site, _| {
        let Op::Collective { what, algorithm, .. } = site.op else { return None };
        let by = algorithm.as_ref().map_or(String::new(), |algorithm| format!(" by {}", algorithm.name()));
        to_lower(site.op).then(|| format!("is {}{by}: it should be messages by now", what.name()))
    },
};

/// Lowers every collective of `program`.
fn lower(program: &Program) -> Result<Program, PassError> {
    let mut cursors: Vec<Cursor<'_>> = program.ranks.iter().map(Cursor::new).collect();
    let builders = program.ranks.iter().map(RankBuilder::with_buffers).collect();
    let mut weaver = Weaver::new(builders, program);
    for (rank, cursor) in cursors.iter_mut().enumerate() {
        cursor.pass_plain_ops(rank, &mut weaver);
    }
    // A group is ready when the last of its members arrives. Ready groups share no rank, so their order is the same to
    // each of them.
    let mut arrived: BTreeSet<usize> = (0..cursors.len()).collect();
    while let Some(rank) = arrived.pop_first() {
        if !all_there(&cursors, rank) {
            continue;
        }
        for member in expand(&mut cursors, rank, &mut weaver)? {
            cursors[member.index()].pass_plain_ops(member.index(), &mut weaver);
            arrived.insert(member.index());
        }
    }
    if let Some(rank) = cursors.iter().position(|cursor| cursor.current().is_some()) {
        return Err(PassError::Unmatched { rank: rank as u32, op: cursors[rank].at });
    }
    Ok(program.with_ranks(weaver.finish()))
}

/// One rank's progress.
struct Cursor<'a> {
    program: &'a RankProgram,
    at: usize,
    /// By old op: the new ops that it became.
    became: Vec<Range<usize>>,
}

impl<'a> Cursor<'a> {
    fn new(program: &'a RankProgram) -> Self {
        Self { program, at: 0, became: Vec::with_capacity(program.nodes.len()) }
    }

    fn current(&self) -> Option<&'a Node> {
        self.program.nodes.get(self.at)
    }

    /// Explicit predecessors, not from memory: memory's order is found again op by op, and need not be waited for as a
    /// whole.
    fn after(&self) -> Vec<OpId> {
        let Some(node) = self.current() else { return Vec::new() };
        let control = node.after.iter().filter(|op| !self.program.nodes[op.index()].op.conflicts(&node.op));
        control.flat_map(|op| self.became[op.index()].clone()).map(OpId::from_index).collect()
    }

    fn advance(&mut self, became: Range<usize>) {
        self.became.push(became);
        self.at += 1;
    }

    fn pass_plain_ops(&mut self, rank: usize, weaver: &mut Weaver) {
        while let Some(node) = self.current() {
            if to_lower(&node.op) {
                return;
            }
            let new = weaver.builder(rank).push_after(node.op.clone(), &self.after(), node.source);
            self.advance(new.index()..new.index() + 1);
        }
    }
}

/// Whether the op is a collective that becomes messages, or nothing: of one member, a reduction in place would copy its memory
/// onto itself.
fn to_lower(op: &Op) -> bool {
    let Op::Collective { what, group, algorithm, .. } = op else { return false };
    match algorithm {
        Some(Algorithm::Library { .. }) => false,
        Some(Algorithm::InPlace) => *what != Collective::AllReduce || group.len() == 1,
        _ => true,
    }
}

/// Whether every rank of the group that `cursors[rank]` waits with is at the same collective.
fn all_there(cursors: &[Cursor<'_>], rank: usize) -> bool {
    let at = |rank: usize| cursors.get(rank)?.current().map(|node| &node.op).filter(|op| to_lower(op));
    let Some(own) = at(rank) else { return false };
    let Op::Collective { group, .. } = own else { return false };
    group.iter().all(|member| at(member.index()).is_some())
        && group.iter().all(|member| at(member.index()).is_some_and(|other| same(own, other)))
}

/// The same collective, wherever its slices lie.
fn same(left: &Op, right: &Op) -> bool {
    let (
        Op::Collective { what, slice, group, op, scale, algorithm },
        Op::Collective { what: what2, slice: slice2, group: group2, op: op2, scale: scale2, algorithm: by2 },
    ) = (left, right)
    else {
        return false;
    };
    let alike = match (what, what2) {
        (Collective::AllToAll { dst }, Collective::AllToAll { dst: dst2 }) => dst.len() == dst2.len(),
        _ => what == what2,
    };
    let reduced = (op, scale.to_bits()) == (op2, scale2.to_bits());
    alike && reduced && slice.len() == slice2.len() && algorithm == by2 && group == group2
}

/// Lowers the collective that a rank and its group have reached; returns the group.
fn expand<'a>(cursors: &mut [Cursor<'a>], rank: usize, weaver: &mut Weaver) -> Result<&'a [Rank], PassError> {
    let Some(node) = cursors[rank].current() else { return Ok(&[]) };
    let Op::Collective { what, slice, group, op, scale, algorithm } = &node.op else { return Ok(&[]) };
    let Some(algorithm) = algorithm else {
        return Err(PassError::Unplanned { rank: rank as u32, op: cursors[rank].at });
    };
    let mut slices = Vec::with_capacity(group.len());
    let mut dsts = Vec::new();
    for member in group {
        let own = cursors[member.index()].current().map(|node| (&node.op, node.source));
        let Some((Op::Collective { what, slice, .. }, source)) = own else { return Ok(&[]) };
        slices.push(*slice);
        if let Collective::AllToAll { dst } = what {
            dsts.push(*dst);
        }
        weaver.set_context(member.index(), cursors[member.index()].after(), source);
    }
    let starts: Vec<usize> = group.iter().map(|m| weaver.builder(m.index()).len()).collect();
    let position = |root| group.iter().position(|member| *member == root);
    let root = what.root().and_then(position).unwrap_or_default();
    let call = Call::new(group.len(), slice.len());
    let mut expansion = Expansion { weaver, members: group, slices, dsts, op: *op, scale: *scale };
    algorithm.weave(what.kind(), root, &call, &mut expansion)?;
    for (member, start) in group.iter().zip(starts) {
        let end = weaver.builder(member.index()).len();
        cursors[member.index()].advance(start..end);
    }
    Ok(group)
}
