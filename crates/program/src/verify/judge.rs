//! Compares the final contents of a program's buffers, as expressions, with its contract.

use super::Findings;
use super::expression::{Contributions, Value};
use super::runs::{Stretch, joined, moved};
use super::values::State;
use crate::{BufferKind, Contract, Program, ReduceOp, Share, Slice};
use hocket_ids::{BufferId, Rank};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// A contract, by the final expressions of its buffer.
pub fn contract(contract: &Contract, state: &mut State<'_>, found: &mut Findings<'_>) {
    let (buffer, group) = contract.subject();
    let Some(first) = group.first() else { return };
    let shares = match contract {
        Contract::ToOwners { op, scale, shares, .. } => {
            return owners(shares, buffer, group, (*op, *scale), state, found);
        }
        Contract::FromOwners { shares, .. } => Cow::Borrowed(&shares[..]),
        Contract::AllGather { .. } => {
            Cow::Owned(equal_shares(group, state.program.ranks[first.index()].buffers[buffer.index()].len))
        }
        Contract::AllReduce { .. } | Contract::Same { .. } => Cow::default(),
    };
    if !shares.is_empty() {
        return gathered(&shares, buffer, group, state, found);
    }
    let whole = |state: &State<'_>, rank: Rank| {
        let len = state.program.ranks[rank.index()].buffers[buffer.index()].len;
        state.read(rank.index(), &Slice::new(buffer, 0, len))
    };
    let len = state.program.ranks[first.index()].buffers[buffer.index()].len;
    let reference = joined(&whole(state, *first));
    // Ranks hold the same expressions: each is judged once.
    let mut judged: HashSet<Value> = HashSet::new();
    for rank in group {
        for (start, stop, held) in whole(state, *rank) {
            let slice = Slice::new(buffer, start, stop);
            let wrong = match (contract, held) {
                (_, None) => Some("holds nothing that is defined".into()),
                (Contract::AllReduce { op, scale, .. }, Some(value)) => {
                    if !judged.insert(value) {
                        continue;
                    }
                    match state.expressions.contributions(value.expr, &state.program.kernels) {
                        Some(made) => disagreement(&made, value.shift, buffer, group, *op, *scale),
                        None => Some("holds a mixture of reductions".into()),
                    }
                }
                (_, Some(value)) => {
                    judged.insert(value);
                    None
                }
            };
            if let Some(wrong) = wrong {
                let made = writers(state.program, *rank, &slice);
                found.whole(&made, format!("rank {rank}: %{buffer}[{start}:{stop}] {wrong}"));
                return;
            }
        }
        let own = joined(&whole(state, *rank));
        if let Some(at) = reference.iter().zip(&own).position(|(a, b)| a != b) {
            let (start, stop, _) = own[at];
            let slice = Slice::new(buffer, start, stop);
            let mut made = writers(state.program, *first, &slice);
            made.extend(writers(state.program, *rank, &slice));
            found.whole(
                &made,
                format!(
                    "replicas differ: rank {rank} and rank {first} hold %{buffer}[{start}:{stop}] rounded or summed in \
                     different ways"
                ),
            );
            return;
        }
    }
    if let Contract::Same { .. } = contract
        && !reference.is_empty()
        && let seen = state.expressions.ranks(judged.iter().map(|value| value.expr))
        && let Some(missing) = group.iter().find(|rank| !seen.contains(&rank.index()))
    {
        let made = writers(state.program, *first, &Slice::new(buffer, 0, len));
        found.whole(&made, format!("%{buffer} lacks the contribution of rank {missing}"));
    }
}

/// Shared state is the same on all ranks at the start; so it must be at the end.
pub fn shared_state(state: &State<'_>, found: &mut Findings<'_>) {
    let mut known: HashMap<&str, (usize, Vec<Stretch>)> = HashMap::new();
    for (rank, ops) in state.program.ranks.iter().enumerate() {
        for (id, buffer) in ops.buffers.iter().enumerate().filter(|(_, b)| b.kind == BufferKind::SharedState)
        {
            let own = joined(&state.buffers[rank][id]);
            let (first, reference) = known.entry(&buffer.name).or_insert_with(|| (rank, own.clone()));
            if own != *reference {
                let slice = Slice::new(BufferId::from_index(id), 0, buffer.len);
                let made = writers(state.program, Rank::from_index(rank), &slice);
                let name = &buffer.name;
                let what = format!("shared state `{name}` is not the same on rank {first} and rank {rank}");
                found.whole(&made, what);
                return;
            }
        }
    }
}

/// The ops of a rank whose writes to a slice remain.
fn writers(program: &Program, rank: Rank, slice: &Slice) -> Vec<(usize, usize)> {
    let nodes = program.ranks[rank.index()].nodes.iter().enumerate();
    let mut made: Vec<(usize, usize)> = nodes
        .filter(|(_, node)| node.op.writes().iter().any(|write| write.overlaps(slice)))
        .map(|(op, _)| (rank.index(), op))
        .collect();
    let few = made.len().saturating_sub(4);
    made.drain(..few);
    made
}

/// Each rank of a group owns an equal part.
fn equal_shares(group: &[Rank], len: usize) -> Vec<Share> {
    let part = len / group.len();
    let share =
        |(at, owner): (usize, &Rank)| Share { owner: *owner, start: at * part, stop: (at + 1) * part };
    group.iter().enumerate().map(share).filter(|share| share.start < share.stop).collect()
}

/// Whether owners hold the reduction of their shares.
fn owners(
    shares: &[Share],
    buffer: BufferId,
    group: &[Rank],
    (op, scale): (ReduceOp, f64),
    state: &mut State<'_>,
    found: &mut Findings<'_>,
) {
    for &Share { owner, start, stop } in shares {
        let slice = Slice::new(buffer, start, stop);
        for (from, to, held) in state.read(owner.index(), &slice) {
            let wrong = match held {
                None => Some("holds nothing that is defined".into()),
                Some(value) => match state.expressions.contributions(value.expr, &state.program.kernels) {
                    // Positions of a run are counted from the start of the share.
                    Some(made) => disagreement(&made, value.shift - start as i64, buffer, group, op, scale),
                    None => Some("holds a mixture of reductions".into()),
                },
            };
            if let Some(wrong) = wrong {
                let (start, stop) = (start + from, start + to);
                let made = writers(state.program, owner, &Slice::new(buffer, start, stop));
                found.whole(&made, format!("owner {owner}: %{buffer}[{start}:{stop}] {wrong}"));
                return;
            }
        }
    }
}

/// Whether all hold the owners' initial values of the shares.
fn gathered(
    shares: &[Share],
    buffer: BufferId,
    group: &[Rank],
    state: &mut State<'_>,
    found: &mut Findings<'_>,
) {
    for rank in group {
        for &Share { owner, start, stop } in shares {
            let theirs = state.expressions.input(owner.index(), buffer.0);
            for (from, to, held) in state.read(rank.index(), &Slice::new(buffer, start, stop)) {
                // Positions of a run are counted from the start of the share.
                let held = moved(held, -(start as i64));
                if held == Some(theirs) {
                    continue;
                }
                let (start, stop) = (start + from, start + to);
                let wrong = misplaced(state, held, owner);
                let made = writers(state.program, *rank, &Slice::new(buffer, start, stop));
                found.whole(&made, format!("rank {rank}: %{buffer}[{start}:{stop}] {wrong}"));
                return;
            }
        }
    }
}

/// The contents of elements that should be those of a share, unchanged.
fn misplaced(state: &mut State<'_>, held: Option<Value>, owner: Rank) -> String {
    let Some(value) = held else { return "holds nothing that is defined".into() };
    let ranks: Vec<String> = state.expressions.ranks([value.expr]).iter().map(ToString::to_string).collect();
    match (&ranks[..], value.shift) {
        ([rank], 0) if *rank == owner.to_string() => format!("is rank {owner}'s part changed, not as it was"),
        ([rank], shift) if shift != 0 => {
            format!("should be rank {owner}'s part, is made of rank {rank}'s elements {shift:+} from there")
        }
        _ => format!("should be rank {owner}'s part, is made of rank {}'s elements", ranks.join(", ")),
    }
}

fn disagreement(
    made: &Contributions,
    shift: i64,
    buffer: BufferId,
    group: &[Rank],
    op: ReduceOp,
    scale: f64,
) -> Option<String> {
    let term = |rank: &Rank| (rank.index(), buffer.0, -shift);
    let missing: Vec<String> =
        group.iter().filter(|rank| !made.terms.contains_key(&term(rank))).map(ToString::to_string).collect();
    if !missing.is_empty() {
        return Some(format!("lacks the contribution of rank {}", missing.join(", ")));
    }
    let doubled: Vec<String> =
        group.iter().filter(|rank| made.terms[&term(rank)].0 > 1).map(ToString::to_string).collect();
    if !doubled.is_empty() {
        return Some(format!("has the contribution of rank {} more than once", doubled.join(", ")));
    }
    if made.terms.len() > group.len() {
        return Some("has contributions that are not its own elements of the group".into());
    }
    if group.len() > 1 && made.op != Some(op) {
        return Some(format!("is not reduced by {op:?}"));
    }
    let factor = made.terms.values().find(|(_, factor)| (factor / scale - 1.0).abs() > 1e-12);
    factor.map(|(_, factor)| format!("is scaled by {factor}, not by {scale}"))
}
