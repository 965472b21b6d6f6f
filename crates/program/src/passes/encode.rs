//! Sends f32 as a smaller float over chosen links.
//!
//! Before: `send %0[0:8] to 1`. After: `send %0[0:8] as f16 to 1`. If the sent value also stays somewhere without having
//! been encoded, on its rank or on one that has it by other links, `apply round f16` comes right after the op that made
//! it, before it spreads: all replicas hold the same bits, whichever links their copies crossed. Gain: half the bytes on slow links, full precision in the sums.

use super::{Codec, Pass, PassError};
use crate::{DType, Kernel, Op, Program, RankBuilder, RankProgram, Slice};
use hocket_ids::{BufferId, OpId, Rank, Tag};
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
    let origins = Origins::new(program);
    let (mut sent, mut held) = (Vec::new(), Vec::new());
    for (at, rank) in program.ranks.iter().enumerate() {
        let own = Rank::from_index(at);
        for (op, node) in rank.nodes.iter().enumerate() {
            if let Op::Send { src, .. } = &node.op
                && encoded(&node.op, own, links)
            {
                sent.push((at, op, *src));
            }
        }
        for (buffer, known) in rank.buffers.iter().enumerate() {
            let whole = Slice::new(BufferId::from_index(buffer), 0, known.len);
            held.push((at, rank.nodes.len(), whole));
        }
    }
    let sent = origins.of(sent, |_, _| true);
    let held = origins.of(held, |rank, op| !encoded(op, Rank::from_index(rank), links));
    let rounds = |at: usize| {
        let own = sent.iter().filter(|((rank, _), _)| *rank == at);
        own.filter_map(|(origin, slices)| Some((origin.1, common(slices, held.get(origin)?)))).collect()
    };
    let ranks =
        program.ranks.iter().enumerate().map(|(at, rank)| {
            rewrite(rank, &rounds(at), *codec, |op| encoded(op, Rank::from_index(at), links))
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

/// A value's place in its rank: after which op (`None`: before all) it is there. By rank.
type Origin = (usize, Option<usize>);

/// A slice as an op of a rank reads it.
type Read = (usize, usize, Slice);

/// Where values come from, across ranks.
struct Origins<'a> {
    program: &'a Program,
    sends: HashMap<(usize, usize, Tag), usize>,
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
        Self { program, sends }
    }

    /// The ops that made what is read, and the slices that they made of it. A value is followed through a receive of a rank as far
    /// as `through` says; others than these are left out.
    fn of(&self, mut open: Vec<Read>, through: impl Fn(usize, &Op) -> bool) -> HashMap<Origin, Vec<Slice>> {
        let mut found: HashMap<Origin, Vec<Slice>> = HashMap::new();
        let mut seen = HashSet::new();
        while let Some((rank, reader, slice)) = open.pop() {
            if !seen.insert((rank, reader, slice)) {
                continue;
            }
            let nodes = &self.program.ranks[rank].nodes;
            let mut parts = vec![slice];
            for (writer, node) in nodes[..reader].iter().enumerate().rev() {
                for written in node.op.writes().iter().filter(|written| written.overlaps(&slice)) {
                    for part in parts.iter().filter_map(|part| intersect(part, written)) {
                        match self.forwarded(rank, &node.op, &part) {
                            Some(earlier) if through(rank, &node.op) => open.push(earlier),
                            Some(_) => {}
                            None => add(found.entry((rank, Some(writer))).or_default(), part),
                        }
                    }
                    parts = subtract(&parts, written);
                }
                if parts.is_empty() {
                    break;
                }
            }
            for part in parts {
                add(found.entry((rank, None)).or_default(), part);
            }
        }
        found
    }

    /// If `op` only copies a peer's value: the slice that the peer reads.
    fn forwarded(&self, rank: usize, op: &Op, part: &Slice) -> Option<Read> {
        let Op::Recv { dst, reduce: None, peer, tag, count: None, .. } = op else { return None };
        let send = *self.sends.get(&(peer.index(), rank, *tag))?;
        let Op::Send { src, .. } = &self.program.ranks[peer.index()].nodes[send].op else { return None };
        let (start, stop) = (part.start - dst.start + src.start, part.stop - dst.start + src.start);
        Some((peer.index(), send, Slice::new(src.buffer, start, stop)))
    }
}

/// Adds what `known` lacks of a slice.
fn add(known: &mut Vec<Slice>, slice: Slice) {
    let mut parts = vec![slice];
    for other in known.iter() {
        parts = subtract(&parts, other);
    }
    known.extend(parts);
}

/// What both have, in the order of the first.
fn common(slices: &[Slice], others: &[Slice]) -> Vec<Slice> {
    let mut found = Vec::new();
    for slice in slices {
        others.iter().filter_map(|other| intersect(slice, other)).for_each(|part| add(&mut found, part));
    }
    found
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
