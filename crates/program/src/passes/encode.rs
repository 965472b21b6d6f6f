//! Sends f32 as a smaller float over chosen links.
//!
//! Before: `send %0[0:8) to 1`. After: `send %0[0:8) as f16 to 1`; and where the value that is sent also stays as the
//! sender's own result, `apply round f16 %0[0:8)` right after it was made, so that all replicas hold the same bits. Gain:
//! half the bytes on slow links, full precision on the others.

use super::PassError;
use crate::{DType, Kernel, Op, Program, RankBuilder, RankProgram, Slice};
use hocket_ids::{OpId, Rank};
use std::collections::HashSet;

/// `program` with messages over `links` (source, destination) encoded as `codec`.
pub fn encode(program: &Program, links: &[(Rank, Rank)], codec: DType) -> Result<Program, PassError> {
    if !matches!(codec, DType::F16 | DType::BF16) {
        return Err(PassError::Codec(codec.name()));
    }
    let links: HashSet<(Rank, Rank)> = links.iter().copied().collect();
    let ranks = program
        .ranks
        .iter()
        .enumerate()
        .map(|(at, rank)| encode_rank(rank, Rank::from_index(at), &links, codec))
        .collect();
    Ok(Program { ranks, ..program.clone() })
}

fn encode_rank(rank: &RankProgram, own: Rank, links: &HashSet<(Rank, Rank)>, codec: DType) -> RankProgram {
    let encoded = |op: &Op| match op {
        Op::Send { wire, peer, .. } => *wire == DType::F32 && links.contains(&(own, *peer)),
        Op::Recv { wire, peer, .. } => *wire == DType::F32 && links.contains(&(*peer, own)),
        _ => false,
    };
    let kept = kept_slices(rank, encoded);
    let mut builder = RankBuilder::with_buffers(rank);
    let mut became: Vec<Vec<OpId>> = Vec::with_capacity(rank.nodes.len());
    // What is sent as it was given has no op that made it: it is rounded before all else.
    let mut open = kept;
    for part in unwritten(rank, &open) {
        builder.push(Op::Apply { kernel: Kernel::Round(codec), dst: part }, None);
        open = subtract(&open, &part);
    }
    for (at, node) in rank.nodes.iter().enumerate() {
        let mut op = node.op.clone();
        if encoded(&op)
            && let Op::Send { wire, .. } | Op::Recv { wire, .. } = &mut op
        {
            *wire = codec;
        }
        let after: Vec<OpId> = node.after.iter().flat_map(|before| became[before.index()].clone()).collect();
        let mut new = vec![builder.push_after(op, &after, node.source)];
        if let Some(written) = node.op.writes() {
            for part in made_final(rank, at, &written, &open) {
                new.push(builder.push(Op::Apply { kernel: Kernel::Round(codec), dst: part }, node.source));
            }
        }
        became.push(new);
    }
    builder.finish()
}

/// Slices that are sent encoded and not written again: the sender keeps what others receive.
fn kept_slices(rank: &RankProgram, encoded: impl Fn(&Op) -> bool) -> Vec<Slice> {
    let mut kept = Vec::new();
    let mut written: Vec<Slice> = Vec::new();
    for node in rank.nodes.iter().rev() {
        if let Op::Send { src, .. } = &node.op
            && encoded(&node.op)
        {
            let mut parts = vec![*src];
            for later in written.iter().filter(|later| later.overlaps(src)) {
                parts = subtract(&parts, later);
            }
            kept.extend(parts);
        }
        written.extend(node.op.writes());
    }
    disjoint(kept)
}

/// Parts of `open` that op `at` writes last.
fn made_final(rank: &RankProgram, at: usize, written: &Slice, open: &[Slice]) -> Vec<Slice> {
    let mut parts: Vec<Slice> = open.iter().filter_map(|slice| intersect(slice, written)).collect();
    if parts.is_empty() {
        return parts;
    }
    for later in rank.nodes[at + 1..].iter().filter_map(|node| node.op.writes()) {
        if later.overlaps(written) {
            parts = subtract(&parts, &later);
        }
    }
    parts
}

/// Parts of `slices` that no op writes.
fn unwritten(rank: &RankProgram, slices: &[Slice]) -> Vec<Slice> {
    let mut parts = slices.to_vec();
    for written in rank.nodes.iter().filter_map(|node| node.op.writes()) {
        parts = subtract(&parts, &written);
    }
    parts
}

fn intersect(a: &Slice, b: &Slice) -> Option<Slice> {
    a.overlaps(b).then(|| Slice::new(a.buffer, a.start.max(b.start), a.stop.min(b.stop)))
}

fn subtract(parts: &[Slice], cut: &Slice) -> Vec<Slice> {
    let mut left = Vec::with_capacity(parts.len() + 1);
    for part in parts {
        if !part.overlaps(cut) {
            left.push(*part);
            continue;
        }
        if part.start < cut.start {
            left.push(Slice::new(part.buffer, part.start, cut.start));
        }
        if cut.stop < part.stop {
            left.push(Slice::new(part.buffer, cut.stop, part.stop));
        }
    }
    left
}

fn disjoint(slices: Vec<Slice>) -> Vec<Slice> {
    let mut apart: Vec<Slice> = Vec::with_capacity(slices.len());
    for slice in slices {
        let mut parts = vec![slice];
        for known in apart.iter().filter(|known| known.overlaps(&slice)) {
            parts = subtract(&parts, known);
        }
        apart.extend(parts);
    }
    apart
}
