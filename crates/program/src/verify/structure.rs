//! Bounds, types and dependencies of each op by itself.

use super::Findings;
use crate::{
    Collective, Contract, DType, Kernel, KernelSpec, Op, Program, RankProgram, ReduceOp, Slice, Space,
};

pub fn check(program: &Program, found: &mut Findings<'_>) {
    for (rank, ops) in program.ranks.iter().enumerate() {
        for (at, node) in ops.nodes.iter().enumerate() {
            if let Some(what) = wrong(program, ops, rank, &node.op) {
                found.at(rank, at, what);
            }
            if node.after.iter().any(|before| before.index() >= at) {
                found.at(rank, at, "comes after an op that stands behind it");
            }
        }
    }
    for contract in &program.ensures {
        let (buffer, group) = contract.subject();
        let lens: Vec<Option<usize>> = group
            .iter()
            .map(|rank| program.ranks.get(rank.index())?.buffers.get(buffer.index()).map(|b| b.len))
            .collect();
        if lens.iter().any(|len| len.is_none() || *len != lens[0]) {
            found.whole(
                &[],
                format!("the contract's buffer %{buffer} is not of one length on all ranks of its group"),
            );
        } else if let Some(wrong) = unowned(program, contract, lens.first().copied().flatten()) {
            found.whole(&[], format!("%{buffer}: {wrong}"));
        } else if let (Contract::AllGather { .. }, Some(Some(len))) = (contract, lens.first())
            && len % group.len() != 0
        {
            let ranks = group.len();
            found.whole(&[], format!("%{buffer} of {len} elements has no equal parts for {ranks} ranks"));
        }
    }
}

/// The error of a contract's shares: they are no partition of its buffer, or not every rank has it.
fn unowned(program: &Program, contract: &Contract, len: Option<usize>) -> Option<String> {
    if !matches!(contract, Contract::ToOwners { .. } | Contract::FromOwners { .. }) {
        return None;
    }
    let (buffer, _) = contract.subject();
    let mut next = 0;
    for share in contract.shares() {
        let rank = program.ranks.get(share.owner.index());
        let held = rank.and_then(|rank| rank.buffers.get(buffer.index())).map(|buffer| buffer.len);
        if held.is_none() || held != len {
            return Some(format!("owner {} has no such buffer of the group's length", share.owner));
        }
        if share.start != next || share.stop <= share.start {
            return Some(format!("the owner of element {next} is not known"));
        }
        next = share.stop;
    }
    (Some(next) != len).then(|| format!("the owner of element {next} is not known"))
}

fn wrong(program: &Program, ops: &RankProgram, rank: usize, op: &Op) -> Option<String> {
    for slice in op.reads().into_iter().chain(op.writes()) {
        let Some(buffer) = ops.buffers.get(slice.buffer.index()) else {
            return Some(format!("there is no buffer %{}", slice.buffer));
        };
        if slice.start > slice.stop || slice.stop > buffer.len {
            let (start, stop, len) = (slice.start, slice.stop, buffer.len);
            return Some(format!("elements {start}..{stop} of a buffer of {len}"));
        }
    }
    if let Some(what) = between_spaces(ops, op) {
        return Some(what);
    }
    let dtype = |slice: &Slice| ops.buffers[slice.buffer.index()].dtype;
    let peer_wrong = |peer: hocket_ids::Rank| {
        (peer.index() >= program.world() || peer.index() == rank)
            .then(|| format!("rank {rank} of {} exchanges nothing with rank {peer}", program.world()))
    };
    match op {
        Op::Copy { src, dst } => lengths(src, dst)
            .or_else(|| (dtype(src) != dtype(dst)).then(|| "copies between types; cast".into())),
        Op::Cast { src, dst } => lengths(src, dst).or_else(|| convertible(dtype(src), dtype(dst))),
        Op::Reduce { op, src, dst } => lengths(src, dst)
            .or_else(|| convertible(dtype(src), dtype(dst)))
            .or_else(|| reducible(*op, dtype(dst))),
        Op::Apply { kernel, dst } => {
            let to = if let Kernel::Round(to) = kernel { *to } else { dtype(dst) };
            (!dtype(dst).is_float() || !to.is_float()).then(|| "this kernel is for floats".into())
        }
        Op::Send { src, wire, peer, count, .. } => peer_wrong(*peer)
            .or_else(|| convertible(dtype(src), *wire))
            .or_else(|| counted(count.as_ref(), dtype)),
        Op::Recv { dst, wire, reduce, peer, count, .. } => peer_wrong(*peer)
            .or_else(|| convertible(*wire, dtype(dst)))
            .or_else(|| reduce.and_then(|op| reducible(op, dtype(dst))))
            .or_else(|| counted(count.as_ref(), dtype)),
        Op::Record { .. } => None,
        Op::Call { kernel, inputs, outputs } => {
            let Some(spec) = program.kernels.get(kernel.index()) else {
                return Some(format!("there is no kernel {kernel}"));
            };
            called(spec, inputs, outputs)
        }
        Op::Collective { what, slice, group, op, .. } => {
            let known = group.iter().all(|member| member.index() < program.world());
            let once = group.iter().enumerate().all(|(at, member)| !group[..at].contains(member));
            let here = group.iter().any(|member| member.index() == rank);
            if !known || !once || !here {
                return Some("a group lists ranks of the world, once each, its caller among them".into());
            }
            if what.root().is_some_and(|root| !group.contains(&root)) {
                return Some("the root is not in the group".into());
            }
            match what {
                Collective::AllToAll { dst } if dtype(dst) != dtype(slice) => {
                    Some("moves between types; cast".into())
                }
                Collective::AllToAll { .. } if !slice.len().is_multiple_of(group.len()) => Some(format!(
                    "all_to_all of {} elements among {}: parts must be equal",
                    slice.len(),
                    group.len()
                )),
                Collective::AllToAll { dst } => lengths(slice, dst),
                _ if what.reduces() => reducible(*op, dtype(slice)),
                _ => None,
            }
        }
    }
}

/// Only a copy passes from one space to another, and only the host reads counts.
fn between_spaces(ops: &RankProgram, op: &Op) -> Option<String> {
    let space = |slice: &Slice| ops.buffers[slice.buffer.index()].space;
    if let Op::Send { count: Some(count), .. } | Op::Recv { count: Some(count), .. } = op {
        let own = space(count);
        return (own != Space::Host)
            .then(|| format!("its count is in {} memory; copy it to host", own.name()));
    }
    if matches!(op, Op::Copy { .. }) {
        return None;
    }
    let mut spaces = op.reads().into_iter().chain(op.writes()).map(|slice| space(&slice));
    let first = spaces.next()?;
    let other = spaces.find(|other| *other != first)?;
    Some(format!("works on {} and {} memory at once; copy between them first", first.name(), other.name()))
}

fn counted(count: Option<&Slice>, dtype: impl Fn(&Slice) -> DType) -> Option<String> {
    count
        .filter(|count| count.len() != 1 || dtype(count) != DType::I64)
        .map(|_| "a count is one element of i64".into())
}

fn called(spec: &KernelSpec, inputs: &[Slice], outputs: &[Slice]) -> Option<String> {
    let name = &spec.name;
    for (at, output) in outputs.iter().enumerate() {
        let aliased = inputs.iter().chain(&outputs[..at]).any(|other| other.overlaps(output));
        if aliased {
            return Some(format!(
                "output {at} of kernel `{name}` shares elements with another of its slices"
            ));
        }
    }
    let mut lens = inputs.iter().chain(outputs).map(Slice::len);
    let first = lens.next();
    (spec.elementwise && lens.any(|len| Some(len) != first))
        .then(|| format!("kernel `{name}` is elementwise: its slices are equally long"))
}

fn lengths(src: &Slice, dst: &Slice) -> Option<String> {
    (src.len() != dst.len()).then(|| format!("{} elements into {}", src.len(), dst.len()))
}

fn convertible(from: DType, to: DType) -> Option<String> {
    (from != to && !(from.is_float() && to.is_float()))
        .then(|| format!("{} does not convert to {}", from.name(), to.name()))
}

fn reducible(op: ReduceOp, dtype: DType) -> Option<String> {
    (op.is_bitwise() && dtype.is_float())
        .then(|| format!("`{}` is of integers, not of {}", op.name(), dtype.name()))
}
