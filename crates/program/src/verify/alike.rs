//! One proof for programs that differ only in lengths: most buckets of a job.
//!
//! A program is *pointwise* when every op, and both ends of every message, access the same positions of their buffers.
//! Then an element's fate depends on nothing but the slices that it lies in. Two pointwise programs are *alike* when
//! they are equal up to positions, and one strictly increasing map takes every edge of a slice of one to the same edge
//! of the other: slices that overlap, touch or are empty in one do so in the other, and the elements between two
//! neighbouring edges go through the same ops. All input of the verifier is then the same, and what is proven of one
//! holds for the other. None of this is assumed: the comparison visits every op of both, and if it fails, the program
//! is verified by itself.

use super::{Diagnostic, Findings, messages, verify};
use crate::{Contract, Op, Program, RankProgram, Slice};
use std::collections::HashMap;
use std::sync::Arc;

/// Limit of programs kept for comparison: buckets differ in their number of chunks.
const KEPT_MAX: usize = 16;

/// Limit of ops of all kept programs.
const KEPT_OPS_MAX: usize = 1 << 20;

/// Verifies programs one after the other, and those that are alike once.
#[derive(Debug, Default)]
pub struct Proofs {
    /// Pointwise, and without findings; the latest first.
    proven: Vec<Arc<Program>>,
    /// Number of programs that were like another one.
    pub shared: usize,
}

impl Proofs {
    /// As [`verify`].
    pub fn verify(&mut self, program: &Arc<Program>) -> Vec<Diagnostic> {
        if let Some(at) = self.proven.iter().position(|proven| alike(proven, program)) {
            let proven = self.proven.remove(at);
            self.proven.insert(0, proven);
            self.shared += 1;
            return Vec::new();
        }
        let findings = verify(program);
        if findings.is_empty() && is_pointwise(program) {
            self.proven.insert(0, Arc::clone(program));
            self.forget();
        }
        findings
    }

    fn forget(&mut self) {
        let ops = |program: &Arc<Program>| program.ranks.iter().map(|rank| rank.nodes.len()).sum::<usize>();
        let mut held = 0;
        let kept = self.proven.iter().take(KEPT_MAX).take_while(|program| {
            held += ops(program);
            held <= KEPT_OPS_MAX
        });
        // The latest is worth its memory: others like it come next.
        let kept = kept.count().max(1);
        self.proven.truncate(kept);
    }
}

/// Whether every op and message of a program without findings stays at its positions.
fn is_pointwise(program: &Program) -> bool {
    let elementwise = program.kernels.iter().all(|kernel| kernel.elementwise);
    let contracts = program.ensures.iter().all(|contract| !matches!(contract, Contract::AllGather { .. }));
    let ops = program.ranks.iter().flat_map(|rank| &rank.nodes).all(|node| match &node.op {
        // Parts of a slice are at positions that no op names; a count is only known at run time.
        Op::Collective { .. } | Op::Send { count: Some(_), .. } | Op::Recv { count: Some(_), .. } => false,
        op => {
            let mut touched = op.reads().into_iter().chain(op.writes());
            let first = touched.next();
            touched.all(|slice| first.is_some_and(|first| same_positions(&first, &slice)))
        }
    });
    elementwise && contracts && ops && {
        let mut found = Findings::of(program);
        let op = |rank: usize, op: usize| &program.ranks[rank].nodes[op].op;
        messages::check(program, &mut found).iter().all(|message| {
            match (op(message.from, message.send), op(message.to, message.recv)) {
                (Op::Send { src, .. }, Op::Recv { dst, .. }) => same_positions(src, dst),
                _ => false,
            }
        })
    }
}

fn same_positions(left: &Slice, right: &Slice) -> bool {
    (left.start, left.stop) == (right.start, right.stop)
}

/// Whether `other` is the pointwise program `proven`, but for lengths.
fn alike(proven: &Program, other: &Program) -> bool {
    let mut edges = Edges::default();
    proven.world() == other.world()
        && proven.kernels == other.kernels
        && proven.ranks.iter().zip(&other.ranks).all(|(left, right)| same_rank(left, right, &mut edges))
        && same_contracts(proven, other, &mut edges)
        && edges.increase()
}

/// Equal but for the positions of shares.
fn same_contracts(left: &Program, right: &Program, edges: &mut Edges) -> bool {
    let unshared = |contract: &Contract| match contract.clone() {
        Contract::ToOwners { buffer, group, op, scale, .. } => {
            Contract::ToOwners { buffer, group, op, scale, shares: Vec::new() }
        }
        Contract::FromOwners { buffer, group, .. } => {
            Contract::FromOwners { buffer, group, shares: Vec::new() }
        }
        other => other,
    };
    left.ensures.len() == right.ensures.len()
        && left.ensures.iter().zip(&right.ensures).all(|(left, right)| {
            let mut shares = left.shares().iter().zip(right.shares());
            unshared(left) == unshared(right)
                && left.shares().len() == right.shares().len()
                && shares.all(|(left, right)| {
                    left.owner == right.owner
                        && edges.take(left.start, right.start)
                        && edges.take(left.stop, right.stop)
                })
        })
}

fn same_rank(left: &RankProgram, right: &RankProgram, edges: &mut Edges) -> bool {
    left.buffers.len() == right.buffers.len()
        && left.nodes.len() == right.nodes.len()
        && left.buffers.iter().zip(&right.buffers).all(|(left, right)| {
            (left.dtype, left.kind, left.space, &left.name)
                == (right.dtype, right.kind, right.space, &right.name)
                && edges.take(0, 0)
                && edges.take(left.len, right.len)
        })
        && left
            .nodes
            .iter()
            .zip(&right.nodes)
            .all(|(left, right)| left.after == right.after && same_op(&left.op, &right.op, edges))
}

/// Equal but for positions, whose edges are recorded.
fn same_op(left: &Op, right: &Op, edges: &mut Edges) -> bool {
    let mut same = |left: &Slice, right: &Slice| edges.slice(left, right);
    match (left, right) {
        (Op::Copy { src, dst }, Op::Copy { src: src2, dst: dst2 })
        | (Op::Cast { src, dst }, Op::Cast { src: src2, dst: dst2 }) => same(src, src2) && same(dst, dst2),
        (Op::Reduce { op, src, dst }, Op::Reduce { op: op2, src: src2, dst: dst2 }) => {
            op == op2 && same(src, src2) && same(dst, dst2)
        }
        (Op::Apply { kernel, dst }, Op::Apply { kernel: kernel2, dst: dst2 }) => {
            kernel == kernel2 && same(dst, dst2)
        }
        (
            Op::Send { src, wire, peer, tag, count: None },
            Op::Send { src: src2, wire: wire2, peer: peer2, tag: tag2, count: None },
        ) => (wire, peer, tag) == (wire2, peer2, tag2) && same(src, src2),
        (
            Op::Recv { dst, wire, reduce, peer, tag, count: None },
            Op::Recv { dst: dst2, wire: wire2, reduce: reduce2, peer: peer2, tag: tag2, count: None },
        ) => (wire, reduce, peer, tag) == (wire2, reduce2, peer2, tag2) && same(dst, dst2),
        (Op::Record { what, src }, Op::Record { what: what2, src: src2 }) => what == what2 && same(src, src2),
        (
            Op::Call { kernel, inputs, outputs },
            Op::Call { kernel: kernel2, inputs: inputs2, outputs: outputs2 },
        ) => {
            kernel == kernel2
                && (inputs.len(), outputs.len()) == (inputs2.len(), outputs2.len())
                && inputs.iter().chain(outputs).zip(inputs2.iter().chain(outputs2)).all(|(l, r)| same(l, r))
        }
        _ => false,
    }
}

/// The edge of the other program that corresponds to each edge of the first.
#[derive(Default)]
struct Edges {
    known: HashMap<usize, usize>,
    /// Neighbouring ops often touch the same slice.
    last: Option<(Slice, Slice)>,
}

impl Edges {
    fn slice(&mut self, left: &Slice, right: &Slice) -> bool {
        if left.buffer != right.buffer {
            return false;
        }
        if self.last.is_some_and(|(l, r)| same_positions(&l, left) && same_positions(&r, right)) {
            return true;
        }
        self.last = Some((*left, *right));
        self.take(left.start, right.start) && self.take(left.stop, right.stop)
    }

    /// Whether nothing contradicts that one edge corresponds to the other.
    fn take(&mut self, left: usize, right: usize) -> bool {
        *self.known.entry(left).or_insert(right) == right
    }

    /// Whether edges come in the same order in both, and none coincide in one alone.
    fn increase(&self) -> bool {
        let mut edges: Vec<(usize, usize)> = self.known.iter().map(|(left, right)| (*left, *right)).collect();
        edges.sort_unstable();
        edges.windows(2).all(|pair| pair[0].1 < pair[1].1)
    }
}

#[cfg(test)]
mod tests;
