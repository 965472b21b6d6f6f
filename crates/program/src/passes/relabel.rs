//! Lets physical rank `order[i]` play logical rank `i`.
//!
//! Before: a ring over logical ranks 0, 1, 2, 3. After, with order 0, 2, 1, 3: the same ring through physical ranks in
//! that order. Gain: algorithms are written once, and fit the network through the order alone.

use super::{Pass, PassError};
use crate::{Collective, Contract, Op, Program};
use hocket_ids::Rank;

pub const PASS: Pass = Pass {
    title: "relabel",
    run: |program, options| options.order.as_ref().map(|order| relabel(program, order)).transpose(),
    spec: |_, _| None,
};

/// `program` with its ranks renamed.
fn relabel(program: &Program, order: &[Rank]) -> Result<Program, PassError> {
    let world = program.world();
    let mut sorted: Vec<usize> = order.iter().map(|rank| rank.index()).collect();
    sorted.sort_unstable();
    if sorted != (0..world).collect::<Vec<_>>() {
        return Err(PassError::Order { order: order.iter().map(|rank| rank.0).collect(), world });
    }
    let rename = |rank: &mut Rank| *rank = order[rank.index()];
    let mut renamed = program.clone();
    for (logical, physical) in order.iter().enumerate() {
        let target = &mut renamed.ranks[physical.index()];
        target.clone_from(&program.ranks[logical]);
        for node in &mut target.nodes {
            match &mut node.op {
                Op::Send { peer, .. } | Op::Recv { peer, .. } => rename(peer),
                Op::Collective { what, group, .. } => {
                    group.iter_mut().for_each(rename);
                    if let Collective::Broadcast { root }
                    | Collective::Reduce { root }
                    | Collective::Gather { root }
                    | Collective::Scatter { root } = what
                    {
                        rename(root);
                    }
                }
                _ => {}
            }
        }
    }
    for contract in &mut renamed.ensures {
        match contract {
            Contract::AllReduce { group, .. }
            | Contract::AllGather { group, .. }
            | Contract::Same { group, .. } => group.iter_mut().for_each(rename),
            Contract::ToOwners { group, shares, .. } | Contract::FromOwners { group, shares, .. } => {
                group.iter_mut().for_each(rename);
                for share in shares {
                    rename(&mut share.owner);
                }
            }
        }
    }
    Ok(renamed)
}
