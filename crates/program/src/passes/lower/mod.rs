//! Lowers collectives to sends and receives by their algorithm; leaves every other op as it is.
//!
//! Before: `all_reduce sum %0[0:8) over 0 1 by ring` on each rank. After: sends, reducing receives and copies that do
//! the same. Gain: everything behind this pass knows messages only.

mod direct;
mod message;
mod ring;
mod two_level;

use super::PassError;
use crate::{Algorithm, Node, Op, Program, RankBuilder, RankProgram};
use hocket_ids::{OpId, Rank};
use message::{Call, Weaver};

/// Lowers every collective of `program`.
pub fn lower(program: &Program) -> Result<Program, PassError> {
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

    fn after(&self) -> Vec<OpId> {
        let after = self.current().into_iter().flat_map(|node| &node.after);
        after.flat_map(|op| self.became[op.index()].clone()).collect()
    }

    fn advance(&mut self, became: Vec<OpId>) {
        self.became.push(became);
        self.at += 1;
    }

    fn pass_plain_ops(&mut self, rank: usize, weaver: &mut Weaver) {
        while let Some(node) = self.current() {
            if matches!(node.op, Op::AllReduce { .. }) {
                return;
            }
            let new = weaver.builder(rank).push_after(node.op.clone(), &self.after(), node.source);
            self.advance(vec![new]);
        }
    }
}

/// Whether every rank of the group that `cursors[rank]` waits with is at the same collective.
fn all_there(cursors: &[Cursor<'_>], rank: usize) -> bool {
    let Some(Op::AllReduce { group, .. }) = cursors[rank].current().map(|node| &node.op) else {
        return false;
    };
    let own = &cursors[rank].current().map(|node| &node.op);
    group.iter().all(|member| {
        cursors.get(member.index()).is_some_and(|cursor| cursor.current().map(|node| &node.op) == *own)
    })
}

fn expand(cursors: &mut [Cursor<'_>], rank: usize, weaver: &mut Weaver) -> Result<(), PassError> {
    let Some(node) = cursors[rank].current() else { return Ok(()) };
    let Op::AllReduce { slice, group, op, scale, algorithm } = &node.op else { return Ok(()) };
    let Some(algorithm) = algorithm else {
        return Err(PassError::Unplanned { rank: rank as u32, op: cursors[rank].at });
    };
    let members: Vec<Rank> = group.clone();
    let starts: Vec<usize> = members.iter().map(|m| weaver.builder(m.index()).len()).collect();
    for member in &members {
        weaver.set_context(member.index(), cursors[member.index()].after(), node.source);
    }
    let call = Call { slice: *slice, members: &members, op: *op, scale: *scale };
    match algorithm {
        Algorithm::Ring => ring::all_reduce(&call, weaver),
        Algorithm::Direct => direct::all_reduce(&call, weaver),
        Algorithm::TwoLevel { sizes } => two_level::all_reduce(&call, sizes, weaver)?,
    }
    for (member, start) in members.iter().zip(starts) {
        let end = weaver.builder(member.index()).len();
        let became = (start..end).map(OpId::from_index).collect();
        cursors[member.index()].advance(became);
    }
    Ok(())
}
