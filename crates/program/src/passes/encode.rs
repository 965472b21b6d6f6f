//! Sends f32 as a smaller float over chosen links.
//!
//! Before: `send %0[0:8] to 1`. After: `send %0[0:8] as f16 to 1`. If the sent value also stays somewhere as a result,
//! `apply round f16` comes right after the op that made it, before it spreads: all replicas hold the same bits,
//! whichever links their copies crossed. Gain: half the bytes on slow links, full precision in the sums.

use super::{Codec, Pass, PassError};
use crate::{DType, Kernel, Op, Program, RankBuilder, RankProgram, Slice};
use hocket_ids::{OpId, Rank, Tag};
use std::collections::{HashMap, HashSet};

pub const PASS: Pass = Pass {
    title: "encode",
    run: |program, options| options.codec.as_ref().map(|codec| encode(program, codec)).transpose(),
    spec: |site, options| {
        let Codec { dtype, links } = options.codec.as_ref()?;
        encoded(site.op, site.rank, links)
            .then(|| format!("sends f32 over a link with codec {}", dtype.name()))
    },
};

/// `program` with messages over the codec's links encoded.
fn encode(program: &Program, codec: &Codec) -> Result<Program, PassError> {
    let Codec { dtype: codec, links } = codec;
    if !matches!(codec, DType::F16 | DType::BF16) {
        return Err(PassError::Codec(codec.name()));
    }
    let mut origins = Origins::new(program);
    for (at, rank) in program.ranks.iter().enumerate() {
        let own = Rank::from_index(at);
        for (op, slice) in kept_slices(rank, |op| encoded(op, own, links)) {
            origins.trace(at, op, slice);
        }
    }
    let ranks = program.ranks.iter().enumerate().map(|(at, rank)| {
        rewrite(rank, &origins.rounds[at], *codec, |op| encoded(op, Rank::from_index(at), links))
    });
    Ok(program.with_ranks(ranks.collect()))
}

fn encoded(op: &Op, own: Rank, links: &HashSet<(Rank, Rank)>) -> bool {
    match op {
        Op::Send { wire, peer, count: None, .. } => *wire == DType::F32 && links.contains(&(own, *peer)),
        Op::Recv { wire, peer, count: None, .. } => *wire == DType::F32 && links.contains(&(*peer, own)),
        _ => false,
    }
}

/// Encoded sends of slices that are not overwritten: the sender keeps what others receive.
fn kept_slices(rank: &RankProgram, encoded: impl Fn(&Op) -> bool) -> Vec<(usize, Slice)> {
    let mut kept = Vec::new();
    let mut written: Vec<Slice> = Vec::new();
    for (at, node) in rank.nodes.iter().enumerate().rev() {
        if let Op::Send { src, .. } = &node.op
            && encoded(&node.op)
        {
            let mut parts = vec![*src];
            for later in written.iter().filter(|later| later.overlaps(src)) {
                parts = subtract(&parts, later);
            }
            kept.extend(parts.into_iter().map(|part| (at, part)));
        }
        written.extend(node.op.writes());
    }
    kept
}

/// Traces values to their origin, across ranks, which is where they are rounded.
struct Origins<'a> {
    program: &'a Program,
    sends: HashMap<(usize, usize, Tag), usize>,
    /// By rank: after which op (`None`: before all) which slice is rounded.
    rounds: Vec<HashMap<Option<usize>, Vec<Slice>>>,
    seen: HashSet<(usize, usize, Slice)>,
}

impl<'a> Origins<'a> {
    fn new(program: &'a Program) -> Self {
        let mut sends = HashMap::new();
        for (rank, ops) in program.ranks.iter().enumerate() {
            for (at, node) in ops.nodes.iter().enumerate() {
                if let Op::Send { peer, tag, .. } = &node.op {
                    sends.insert((rank, peer.index(), *tag), at);
                }
            }
        }
        Self { program, sends, rounds: vec![HashMap::new(); program.world()], seen: HashSet::new() }
    }

    /// Follows the value that op `reader` of `rank` reads in `slice` back to the op that made it.
    fn trace(&mut self, rank: usize, reader: usize, slice: Slice) {
        let mut open = vec![(rank, reader, slice)];
        while let Some((rank, reader, slice)) = open.pop() {
            if !self.seen.insert((rank, reader, slice)) {
                continue;
            }
            let nodes = &self.program.ranks[rank].nodes;
            let mut parts = vec![slice];
            for (writer, node) in nodes[..reader].iter().enumerate().rev() {
                for written in node.op.writes().iter().filter(|written| written.overlaps(&slice)) {
                    for part in parts.iter().filter_map(|part| intersect(part, written)) {
                        match self.forwarded(rank, &node.op, &part) {
                            Some(earlier) => open.push(earlier),
                            None => self.round(rank, Some(writer), part),
                        }
                    }
                    parts = subtract(&parts, written);
                }
                if parts.is_empty() {
                    break;
                }
            }
            for part in parts {
                self.round(rank, None, part);
            }
        }
    }

    /// If `op` only copies a peer's value: the slice that the peer reads.
    fn forwarded(&self, rank: usize, op: &Op, part: &Slice) -> Option<(usize, usize, Slice)> {
        let Op::Recv { dst, reduce: None, peer, tag, count: None, .. } = op else { return None };
        let send = *self.sends.get(&(peer.index(), rank, *tag))?;
        let Op::Send { src, .. } = &self.program.ranks[peer.index()].nodes[send].op else { return None };
        let (start, stop) = (part.start - dst.start + src.start, part.stop - dst.start + src.start);
        Some((peer.index(), send, Slice::new(src.buffer, start, stop)))
    }

    fn round(&mut self, rank: usize, after: Option<usize>, slice: Slice) {
        let known = self.rounds[rank].entry(after).or_default();
        let mut parts = vec![slice];
        for other in known.iter() {
            parts = subtract(&parts, other);
        }
        known.extend(parts);
    }
}

fn rewrite(
    rank: &RankProgram,
    rounds: &HashMap<Option<usize>, Vec<Slice>>,
    codec: DType,
    encoded: impl Fn(&Op) -> bool,
) -> RankProgram {
    let mut builder = RankBuilder::with_buffers(rank);
    let mut became: Vec<Vec<OpId>> = Vec::with_capacity(rank.nodes.len());
    let round = |part: &Slice| Op::Apply { kernel: Kernel::Round(codec), dst: *part };
    for part in rounds.get(&None).into_iter().flatten() {
        builder.push(round(part), None);
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
        for part in rounds.get(&Some(at)).into_iter().flatten() {
            new.push(builder.push(round(part), node.source));
        }
        became.push(new);
    }
    builder.finish()
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
