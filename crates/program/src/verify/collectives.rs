//! Collectives that are not lowered (yet): which ops of the members form one call. Members of a group call their
//! collectives in one order; a library runs all of a rank's in the order of its ops.

use super::Findings;
use crate::{Algorithm, Op, Program};
use std::collections::BTreeMap;

/// The ops (rank, op) of one call, by member.
pub type Call = Vec<(usize, usize)>;

/// Ranks of a group, and the library if one executes it.
type Group = (Vec<u32>, Option<String>);

/// By (rank, op): which call it is part of.
#[derive(Default)]
pub struct Collectives {
    pub calls: Vec<Call>,
    pub of: BTreeMap<(usize, usize), usize>,
    /// Ops of one rank that a library runs one after the other.
    pub sequences: Vec<Vec<(usize, usize)>>,
}

pub fn check(program: &Program, found: &mut Findings<'_>) -> Collectives {
    let mut collectives = Collectives::default();
    // By group and library: each member's ops in order.
    let mut by_group: BTreeMap<Group, Vec<Vec<usize>>> = BTreeMap::new();
    for (rank, ops) in program.ranks.iter().enumerate() {
        let mut sequence = Vec::new();
        for (at, node) in ops.nodes.iter().enumerate() {
            let Op::Collective { group, algorithm, .. } = &node.op else { continue };
            let library = match algorithm {
                Some(Algorithm::Library { name }) => Some(name.clone()),
                _ => None,
            };
            if library.is_some() {
                sequence.push((rank, at));
            }
            let key = (group.iter().map(|rank| rank.0).collect(), library);
            let members = by_group.entry(key).or_insert_with(|| vec![Vec::new(); group.len()]);
            if let Some(position) = group.iter().position(|member| member.index() == rank) {
                members[position].push(at);
            }
        }
        collectives.sequences.push(sequence);
    }
    for ((group, _), members) in by_group {
        let calls = members.iter().map(Vec::len).max().unwrap_or_default();
        for call in 0..calls {
            let mut ops: Call = Vec::new();
            for (member, own) in group.iter().zip(&members) {
                ops.extend(own.get(call).map(|&op| (*member as usize, op)));
            }
            if let Some(missing) = group.iter().zip(&members).find(|(_, own)| own.len() <= call) {
                let (rank, op) = ops[0];
                let what = format!("is not called by rank {}, which is in its group", missing.0);
                found.between(rank, op, &ops, what);
                continue;
            }
            let node = |&(rank, op): &(usize, usize)| &program.ranks[rank].nodes[op].op;
            if let Some(other) = ops.iter().find(|other| !agree(node(&ops[0]), node(other))) {
                let (rank, op) = *other;
                let what = format!("is another collective than rank {} calls with it", ops[0].0);
                found.between(rank, op, &[ops[0]], what);
            }
            for place in &ops {
                collectives.of.insert(*place, collectives.calls.len());
            }
            collectives.calls.push(ops);
        }
    }
    collectives
}

fn agree(left: &Op, right: &Op) -> bool {
    let facts = |op: &Op| match op {
        Op::Collective { what, slice, op, scale, algorithm, .. } => {
            Some((what.name(), what.root(), slice.len(), *op, scale.to_bits(), algorithm.clone()))
        }
        _ => None,
    };
    facts(left) == facts(right)
}
