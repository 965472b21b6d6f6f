//! Splits ops into chunks so that an op's dependents start when its first chunk is done.
//!
//! Before: `recv %0[0:8) add`, then `send %0[0:8)`. After, with chunks of 4 elements: two receives and two sends, each send
//! after its own receive. Gain: transfers, reductions and casts of one bucket overlap, and urgent buckets overtake.

use super::Pass;
use crate::{Algorithm, KernelSpec, Op, Program, RankBuilder, RankProgram, Slice};
use hocket_ids::{OpId, Tag};

pub const PASS: Pass = Pass {
    title: "chunk",
    run: |program, options| Ok(Some(chunk(program, options.chunk_bytes))),
    spec: |site, options| {
        let count = pieces(site.ops, &site.program.kernels, site.op, options.chunk_bytes);
        (count > 1).then(|| format!("is of {count} chunks of {} bytes", options.chunk_bytes))
    },
};

/// `program` with no op above `chunk_bytes` of its own element type.
fn chunk(program: &Program, chunk_bytes: usize) -> Program {
    let pieces = |rank: &RankProgram, op: &Op| pieces(rank, &program.kernels, op, chunk_bytes);
    let pieces_max = program
        .ranks
        .iter()
        .flat_map(|rank| rank.nodes.iter().map(|node| pieces(rank, &node.op)))
        .max()
        .unwrap_or(1);
    let ranks = program.ranks.iter().map(|rank| split(rank, |op| pieces(rank, op), pieces_max)).collect();
    program.with_ranks(ranks)
}

fn split(rank: &RankProgram, pieces: impl Fn(&Op) -> usize, pieces_max: usize) -> RankProgram {
    let mut builder = RankBuilder::with_buffers(rank);
    // By old op: the range of the new ops that it became.
    let mut became: Vec<(usize, usize)> = Vec::with_capacity(rank.nodes.len());
    let mut control: Vec<OpId> = Vec::new();
    for node in &rank.nodes {
        // Piece by piece, memory determines the order again; explicit order remains.
        control.clear();
        for before in node.after.iter().map(|before| before.index()) {
            if !rank.nodes[before].op.conflicts(&node.op) {
                control.extend((became[before].0..became[before].1).map(OpId::from_index));
            }
        }
        let (first, count) = (builder.len(), pieces(&node.op));
        for at in 0..count {
            builder.push_after(piece(&node.op, at, count, pieces_max), &control, node.source);
        }
        became.push((first, builder.len()));
    }
    builder.finish()
}

/// The slice that determines how an op is split: both ends of a message have as many elements of one type.
fn extent(op: &Op, kernels: &[KernelSpec]) -> Option<Slice> {
    match op {
        // Its members share memory: pieces of it are just as good.
        Op::Collective { slice, algorithm: Some(Algorithm::InPlace), .. } => Some(*slice),
        // The length of a counted message is only known when it starts.
        Op::Send { count: Some(_), .. } | Op::Recv { count: Some(_), .. } | Op::Collective { .. } => None,
        Op::Call { kernel, outputs, .. } => kernels
            .get(kernel.index())
            .filter(|kernel| kernel.elementwise)
            .and_then(|_| outputs.first().copied()),
        Op::Copy { dst, .. }
        | Op::Cast { dst, .. }
        | Op::Reduce { dst, .. }
        | Op::Apply { dst, .. }
        | Op::Recv { dst, .. } => Some(*dst),
        Op::Send { src, .. } | Op::Record { src, .. } => Some(*src),
    }
}

fn pieces(rank: &RankProgram, kernels: &[KernelSpec], op: &Op, chunk_bytes: usize) -> usize {
    let Some(slice) = extent(op, kernels) else { return 1 };
    let bytes = match op {
        Op::Send { wire, .. } | Op::Recv { wire, .. } => wire.bytes(),
        _ => rank.buffers[slice.buffer.index()].dtype.bytes(),
    };
    slice.len().div_ceil((chunk_bytes / bytes).max(1)).max(1)
}

fn piece(op: &Op, at: usize, count: usize, pieces_max: usize) -> Op {
    let part = |slice: &mut Slice| {
        let len = slice.len();
        let edge = |at: usize| slice.start + len * at / count;
        (slice.start, slice.stop) = (edge(at), edge(at + 1));
    };
    let renumber = |tag: &mut Tag| *tag = Tag::from_index(tag.index() * pieces_max + at);
    let mut op = op.clone();
    match &mut op {
        Op::Copy { src, dst } | Op::Cast { src, dst } | Op::Reduce { src, dst, .. } => {
            part(src);
            part(dst);
        }
        Op::Apply { dst, .. } => part(dst),
        Op::Record { src, .. } => part(src),
        Op::Send { src, tag, .. } => {
            part(src);
            renumber(tag);
        }
        Op::Recv { dst, tag, .. } => {
            part(dst);
            renumber(tag);
        }
        Op::Call { inputs, outputs, .. } => inputs.iter_mut().chain(outputs).for_each(|slice| {
            if count > 1 {
                part(slice);
            }
        }),
        Op::Collective { slice, .. } if count > 1 => part(slice),
        Op::Collective { .. } => {}
    }
    op
}
