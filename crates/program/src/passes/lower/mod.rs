//! Lowers collectives to sends and receives by their algorithm; leaves every other op as it is.
//!
//! Before: `all_reduce sum %0[0:8) over 0 1 by ring` on each rank. After: sends, reducing receives and copies that do
//! the same. Gain: everything behind this pass knows messages only.

mod weaver;

use super::{Pass, PassError};
use crate::{Algorithm, Collective, Node, Op, Program, RankBuilder, RankProgram, Slice};
use hocket_algorithms::Call;
use hocket_ids::OpId;
use weaver::{Expansion, Weaver};

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
    loop {
        for (rank, cursor) in cursors.iter_mut().enumerate() {
            cursor.pass_plain_ops(rank, &mut weaver);
        }
        let Some(rank) = cursors.iter().position(|cursor| cursor.current().is_some()) else { break };
        let Some(ready) = (0..cursors.len()).find(|&at| all_there(&cursors, at)) else {
            return Err(PassError::Unmatched { rank: rank as u32, op: cursors[rank].at });
        };
        expand(&mut cursors, ready, &mut weaver)?;
    }
    Ok(Program { ranks: weaver.finish(), ..program.clone() })
}

/// One rank's progress.
struct Cursor<'a> {
    program: &'a RankProgram,
    at: usize,
    /// By old op: the new ops that it became.
    became: Vec<Vec<OpId>>,
}

impl<'a> Cursor<'a> {
    fn new(program: &'a RankProgram) -> Self {
        Self { program, at: 0, became: Vec::with_capacity(program.nodes.len()) }
    }

    fn current(&self) -> Option<&'a Node> {
        self.program.nodes.get(self.at)
    }

    /// What comes before for another reason than memory; that is found again op by op, and need not be waited for as a whole.
    fn after(&self) -> Vec<OpId> {
        let Some(node) = self.current() else { return Vec::new() };
        let control = node.after.iter().filter(|op| !self.program.nodes[op.index()].op.conflicts(&node.op));
        control.flat_map(|op| self.became[op.index()].clone()).collect()
    }

    fn advance(&mut self, became: Vec<OpId>) {
        self.became.push(became);
        self.at += 1;
    }

    fn pass_plain_ops(&mut self, rank: usize, weaver: &mut Weaver) {
        while let Some(node) = self.current() {
            if to_lower(&node.op) {
                return;
            }
            let new = weaver.builder(rank).push_after(node.op.clone(), &self.after(), node.source);
            self.advance(vec![new]);
        }
    }
}

/// Whether the op is a collective that becomes messages.
fn to_lower(op: &Op) -> bool {
    let Op::Collective { what, algorithm, .. } = op else { return false };
    match algorithm {
        Some(Algorithm::Library { .. }) => false,
        Some(Algorithm::InPlace) => *what != Collective::AllReduce,
        _ => true,
    }
}

/// Whether every rank of the group that `cursors[rank]` waits with is at the same collective.
fn all_there(cursors: &[Cursor<'_>], rank: usize) -> bool {
    let at = |rank: usize| cursors.get(rank)?.current().map(|node| &node.op).filter(|op| to_lower(op));
    let Some(own) = at(rank) else { return false };
    let Op::Collective { group, .. } = own else { return false };
    group.iter().all(|member| at(member.index()).is_some_and(|other| same(own, other)))
}

/// The same collective, wherever its slices lie.
fn same(left: &Op, right: &Op) -> bool {
    let place = |op: &Op| {
        let mut op = op.clone();
        if let Op::Collective { what, slice, .. } = &mut op {
            let nowhere = |slice: &mut Slice| *slice = Slice::new(hocket_ids::BufferId(0), 0, slice.len());
            nowhere(slice);
            if let Collective::AllToAll { dst } = what {
                nowhere(dst);
            }
        }
        op
    };
    place(left) == place(right)
}

fn expand(cursors: &mut [Cursor<'_>], rank: usize, weaver: &mut Weaver) -> Result<(), PassError> {
    let Some(node) = cursors[rank].current() else { return Ok(()) };
    let Op::Collective { what, slice, group, op, scale, algorithm } = &node.op else { return Ok(()) };
    let Some(algorithm) = algorithm else {
        return Err(PassError::Unplanned { rank: rank as u32, op: cursors[rank].at });
    };
    let mut slices = Vec::with_capacity(group.len());
    let mut dsts = Vec::new();
    for member in group {
        let own = cursors[member.index()].current().map(|node| (&node.op, node.source));
        let Some((Op::Collective { what, slice, .. }, source)) = own else { return Ok(()) };
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
        let became = (start..end).map(OpId::from_index).collect();
        cursors[member.index()].advance(became);
    }
    Ok(())
}
