//! Runs the program on expressions instead of numbers.

use super::Findings;
use super::collectives::Collectives;
use super::deadlock::Event;
use super::expression::{Expressions, Run, Value};
use super::messages::Message;
use super::runs::{Runs, Stretch, all_of, at_position, joined, missing, moved, unknown, within};
use crate::{BufferKind, Collective, DType, Kernel, Op, Program, ReduceOp, Slice};
use hocket_ids::{BufferId, KernelId};
use std::collections::BTreeSet;

/// The contents of all buffers in the end.
pub fn check<'a>(
    program: &'a Program,
    messages: &[Message],
    collectives: &Collectives,
    order: &[Event],
    found: &mut Findings<'_>,
) -> State<'a> {
    let mut state = State::new(program);
    let mut flights = Flights::new(program, messages);
    let mut done = vec![false; collectives.calls.len()];
    for &(rank, op, end) in order {
        // The order has an event per meeting of a collective as well.
        let Some(node) = program.ranks.get(rank).map(|ops| &ops.nodes[op]) else { continue };
        match (&node.op, end) {
            (Op::Send { src, wire, count, .. }, false) => {
                let count = count.map(|count| state.read_written(rank, op, &count, found));
                let mut sent = state.read_written(rank, op, src, found);
                state.encode(&mut sent, state.dtype(rank, src.buffer), *wire);
                flights.depart(rank, op, Flight { sent, count });
            }
            (Op::Recv { dst, wire, reduce, peer, count, .. }, true) => {
                let Some((send, Flight { sent, count: theirs })) = flights.arrive(rank, op) else { continue };
                let ours = count.map(|count| state.read(rank, &count));
                if ours.as_ref().is_some_and(|ours| ours.iter().any(|run| run.2.is_none())) {
                    found.at(rank, op, "has a count that nothing has written");
                } else if ours != theirs {
                    let what = format!("and the send of rank {peer} have counts that may differ");
                    found.between(rank, op, &[(peer.index(), send)], what);
                }
                // Beyond the count, elements keep their values, and must have some.
                let own = reduce.map(|how| (how, state.read_written(rank, op, dst, found)));
                state.land(rank, dst, sent, *wire, own);
            }
            (Op::Collective { what, slice, op: how, scale, .. }, true) => {
                let Some(&call) = collectives.of.get(&(rank, op)) else { continue };
                // All members have arrived when the first of them ends.
                if !std::mem::replace(&mut done[call], true) {
                    let members = &collectives.calls[call];
                    for &(member, op) in members {
                        if let Op::Collective { slice, .. } = &program.ranks[member].nodes[op].op {
                            for slice in needed(what, member, members, slice) {
                                for slice in state.unwritten(member, &slice) {
                                    found.at(member, op, unwritten(&slice));
                                }
                            }
                        }
                    }
                    debug_assert!(slice.start <= slice.stop);
                    state.collective(*what, members, *how, *scale);
                }
            }
            (Op::Send { .. } | Op::Recv { .. } | Op::Collective { .. }, _) | (_, false) => {}
            (local, true) => {
                let mut read = local.reads();
                if let Op::Call { kernel, outputs, .. } = local
                    && program.kernels[kernel.index()].updates
                {
                    read.extend(outputs.iter().copied());
                }
                for slice in read.iter().flat_map(|slice| state.unwritten(rank, slice)) {
                    found.at(rank, op, unwritten(&slice));
                }
                state.local(rank, local);
            }
        }
    }
    state
}

/// The part of a member's slice that a collective reads.
fn needed(what: &Collective, member: usize, members: &[(usize, usize)], slice: &Slice) -> Vec<Slice> {
    let n = members.len();
    let own = members.iter().position(|(rank, _)| *rank == member).unwrap_or_default();
    match what {
        Collective::AllGather | Collective::Gather { .. } => vec![part(slice, own, n)],
        Collective::Broadcast { root } | Collective::Scatter { root } if root.index() != member => Vec::new(),
        _ => vec![*slice],
    }
}

fn part(slice: &Slice, at: usize, n: usize) -> Slice {
    let len = slice.len();
    Slice::new(slice.buffer, slice.start + len * at / n, slice.start + len * (at + 1) / n)
}

fn unwritten(slice: &Slice) -> String {
    format!("reads %{}[{}:{}], which nothing has written", slice.buffer, slice.start, slice.stop)
}

/// Contents in flight, from position 0, and their count.
struct Flight {
    sent: Runs,
    count: Option<Runs>,
}

/// Messages between the start of their send and the end of their receive.
struct Flights {
    /// By rank: the number of its first op, when those of all ranks are counted.
    first: Vec<usize>,
    /// By receive: the send's number, and which op of its rank it is.
    sends: Vec<(u32, u32)>,
    /// By send.
    flying: Vec<Option<Box<Flight>>>,
}

impl Flights {
    const NONE: u32 = u32::MAX;

    fn new(program: &Program, messages: &[Message]) -> Self {
        let mut first = Vec::with_capacity(program.world());
        let mut ops = 0;
        for rank in &program.ranks {
            first.push(ops);
            ops += rank.nodes.len();
        }
        let mut sends = vec![(Self::NONE, 0); ops];
        for message in messages {
            let send = first[message.from] + message.send;
            sends[first[message.to] + message.recv] = (send as u32, message.send as u32);
        }
        Self { first, sends, flying: std::iter::repeat_with(|| None).take(ops).collect() }
    }

    fn depart(&mut self, rank: usize, op: usize, flight: Flight) {
        self.flying[self.first[rank] + op] = Some(Box::new(flight));
    }

    /// The matching send of a receive, and its op.
    fn arrive(&mut self, rank: usize, op: usize) -> Option<(usize, Flight)> {
        let (send, sender_op) = self.sends[self.first[rank] + op];
        let flight = self.flying.get_mut(send as usize)?.take()?;
        Some((sender_op as usize, *flight))
    }
}

pub(super) struct State<'a> {
    pub program: &'a Program,
    pub expressions: Expressions,
    /// By rank and buffer.
    pub buffers: Vec<Vec<Vec<Stretch>>>,
}

impl<'a> State<'a> {
    fn new(program: &'a Program) -> Self {
        let mut expressions = Expressions::default();
        let buffers = program.ranks.iter().enumerate().map(|(rank, ops)| {
            let runs = ops.buffers.iter().enumerate().map(|(id, buffer)| {
                let held = match buffer.kind {
                    BufferKind::Bound => Some(expressions.input(rank, id as u32)),
                    BufferKind::Scratch => None,
                    BufferKind::State => Some(expressions.state(Some(rank), &buffer.name)),
                    BufferKind::SharedState => Some(expressions.state(None, &buffer.name)),
                };
                if buffer.len == 0 { Vec::new() } else { vec![(0, buffer.len, held)] }
            });
            runs.collect()
        });
        let buffers = buffers.collect();
        Self { program, expressions, buffers }
    }

    fn dtype(&self, rank: usize, buffer: BufferId) -> DType {
        self.program.ranks[rank].buffers[buffer.index()].dtype
    }

    /// The runs inside a slice, positions counted from its start.
    pub fn read(&self, rank: usize, slice: &Slice) -> Runs {
        let runs = &self.buffers[rank][slice.buffer.index()];
        let first = runs.partition_point(|run| run.1 <= slice.start);
        runs[first..]
            .iter()
            .take_while(|run| run.0 < slice.stop)
            .map(|&(start, stop, held)| {
                let (from, to) = (start.max(slice.start), stop.min(slice.stop));
                (from - slice.start, to - slice.start, moved(held, slice.start as i64))
            })
            .collect()
    }

    /// Puts runs, positions counted from the slice's start, into it.
    fn write(&mut self, rank: usize, slice: &Slice, new: &[Stretch]) {
        if slice.is_empty() {
            return;
        }
        let runs = &mut self.buffers[rank][slice.buffer.index()];
        let first = runs.partition_point(|run| run.1 <= slice.start);
        if let [(0, stop, held)] = *new
            && (slice.start, slice.start + stop) == (runs[first].0, runs[first].1)
        {
            runs[first].2 = moved(held, -(slice.start as i64));
            return;
        }
        let last = first + runs[first..].partition_point(|run| run.0 < slice.stop);
        let mut between = Vec::with_capacity(new.len() + 2);
        if runs[first].0 < slice.start {
            between.push((runs[first].0, slice.start, runs[first].2));
        }
        between.extend(new.iter().map(|&(start, stop, held)| {
            (slice.start + start, slice.start + stop, moved(held, -(slice.start as i64)))
        }));
        if runs[last - 1].1 > slice.stop {
            between.push((slice.stop, runs[last - 1].1, runs[last - 1].2));
        }
        runs.splice(first..last, between);
    }

    fn unwritten(&self, rank: usize, slice: &Slice) -> Vec<Slice> {
        missing(&self.read(rank, slice), slice)
    }

    /// Reads for an op; the elements must be defined.
    fn read_written(&self, rank: usize, op: usize, slice: &Slice, found: &mut Findings<'_>) -> Runs {
        let runs = self.read(rank, slice);
        for slice in missing(&runs, slice) {
            found.at(rank, op, unwritten(&slice));
        }
        runs
    }

    /// The value on the wire when elements of type `own` are sent as `wire`.
    fn encode(&mut self, runs: &mut Runs, own: DType, wire: DType) {
        if narrows(own, wire) {
            for run in runs {
                run.2 = run.2.map(|value| self.expressions.round(wire, value));
            }
        }
    }

    /// Stores the sent value in a slice, or combines it with the slice's.
    fn land(&mut self, rank: usize, dst: &Slice, sent: Runs, wire: DType, held: Option<(ReduceOp, Runs)>) {
        let mut landed = sent;
        self.encode(&mut landed, wire, self.dtype(rank, dst.buffer));
        if let Some((op, held)) = held {
            landed = self.combine(op, &held, &landed);
        }
        self.write(rank, dst, &landed);
    }

    fn local(&mut self, rank: usize, op: &Op) {
        match op {
            Op::Copy { src, dst } | Op::Cast { src, dst } => {
                let mut runs = self.read(rank, src);
                self.encode(&mut runs, self.dtype(rank, src.buffer), self.dtype(rank, dst.buffer));
                self.write(rank, dst, &runs);
            }
            Op::Reduce { op, src, dst } => {
                let mut runs = self.read(rank, src);
                self.encode(&mut runs, self.dtype(rank, src.buffer), self.dtype(rank, dst.buffer));
                let combined = self.combine(*op, &self.read(rank, dst), &runs);
                self.write(rank, dst, &combined);
            }
            Op::Apply { kernel, dst } => {
                let mut runs = self.read(rank, dst);
                for run in &mut runs {
                    run.2 = run.2.map(|value| match kernel {
                        Kernel::Scale(factor) => self.expressions.scale(*factor, value),
                        Kernel::Round(dtype) => self.expressions.round(*dtype, value),
                    });
                }
                self.write(rank, dst, &runs);
            }
            Op::Call { kernel, inputs, outputs } => self.call(rank, *kernel, inputs, outputs),
            Op::Record { .. } | Op::Send { .. } | Op::Recv { .. } | Op::Collective { .. } => {}
        }
    }

    fn call(&mut self, rank: usize, kernel: KernelId, inputs: &[Slice], outputs: &[Slice]) {
        let spec = &self.program.kernels[kernel.index()];
        let updated: &[Slice] = if spec.updates { outputs } else { &[] };
        let read: Vec<Runs> = inputs.iter().chain(updated).map(|slice| self.read(rank, slice)).collect();
        let mut made = Vec::with_capacity(outputs.len());
        for (at, output) in outputs.iter().enumerate() {
            made.push(if spec.elementwise {
                let mut runs = Runs::new();
                let mut edges: BTreeSet<usize> = read.iter().flatten().map(|run| run.1).collect();
                edges.insert(output.len());
                let mut start = 0;
                for stop in edges.into_iter().filter(|&stop| stop <= output.len()) {
                    let held: Option<Vec<Value>> = read.iter().map(|runs| at_position(runs, start)).collect();
                    let held = held.map(|held| self.expressions.elementwise(kernel.0, at as u32, held));
                    if start < stop {
                        runs.push((start, stop, held));
                    }
                    start = stop;
                }
                runs
            } else {
                let whole: Option<Vec<Vec<Run>>> = read
                    .iter()
                    .map(|runs| joined(runs).into_iter().map(|(a, b, held)| Some((a, b, held?))).collect())
                    .collect();
                let held = whole.map(|inputs| self.expressions.whole(kernel.0, at as u32, inputs));
                all_of(output, held)
            });
        }
        for (output, runs) in outputs.iter().zip(made) {
            self.write(rank, output, &runs);
        }
    }

    fn collective(&mut self, what: Collective, members: &[(usize, usize)], op: ReduceOp, scale: f64) {
        let n = members.len();
        let slices: Vec<(usize, Slice)> = members
            .iter()
            .filter_map(|&(rank, op)| match &self.program.ranks[rank].nodes[op].op {
                Op::Collective { slice, .. } => Some((rank, *slice)),
                _ => None,
            })
            .collect();
        let root = what.root().and_then(|root| slices.iter().position(|(rank, _)| *rank == root.index()));
        let root = root.unwrap_or_default();
        let held: Vec<Runs> = slices.iter().map(|(rank, slice)| self.read(*rank, slice)).collect();
        let whole = |at: usize| slices[at];
        let share = |at: usize, of: usize| (slices[at].0, part(&slices[at].1, of, n));
        let cut = |runs: &Runs, at: usize| {
            let span = part(&Slice::new(BufferId(0), 0, slices[0].1.len()), at, n);
            within(runs, span.start, span.stop)
        };
        let mut writes: Vec<((usize, Slice), Runs)> = Vec::new();
        match what {
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce { .. } => {
                let mut sum = held[0].clone();
                for other in &held[1..] {
                    sum = self.combine(op, &sum, other);
                }
                #[expect(clippy::float_cmp, reason = "the neutral factor is exact")]
                if scale != 1.0 {
                    for run in &mut sum {
                        run.2 = run.2.map(|value| self.expressions.scale(scale, value));
                    }
                }
                for (at, (_, slice)) in slices.iter().enumerate() {
                    match what {
                        Collective::AllReduce => writes.push((whole(at), sum.clone())),
                        Collective::ReduceScatter => {
                            writes.push((whole(at), unknown(slice)));
                            writes.push((share(at, at), cut(&sum, at)));
                        }
                        _ if at == root => writes.push((whole(at), sum.clone())),
                        _ => writes.push((whole(at), unknown(slice))),
                    }
                }
            }
            Collective::Broadcast { .. } => {
                writes.extend((0..n).map(|at| (whole(at), held[root].clone())));
            }
            Collective::AllGather => {
                for at in 0..n {
                    writes.extend((0..n).map(|of| (share(at, of), cut(&held[of], of))));
                }
            }
            Collective::Gather { .. } => {
                writes.extend((0..n).map(|of| (share(root, of), cut(&held[of], of))));
            }
            Collective::Scatter { .. } => {
                writes.extend((0..n).map(|at| (share(at, at), cut(&held[root], at))));
            }
            Collective::AllToAll { .. } => {
                for (at, &(rank, op)) in members.iter().enumerate() {
                    if let Op::Collective { what: Collective::AllToAll { dst }, .. } =
                        &self.program.ranks[rank].nodes[op].op
                    {
                        // Uneven parts meet only where both are equally long, as the lowering moves them.
                        writes.extend((0..n).map(|of| ((rank, part(dst, of, n)), cut(&held[of], at))));
                    }
                }
            }
        }
        for ((rank, slice), runs) in writes {
            self.write(rank, &slice, &runs);
        }
    }

    /// Run by run; both cover the same elements.
    fn combine(&mut self, op: ReduceOp, left: &Runs, right: &Runs) -> Runs {
        let mut combined = Runs::new();
        let (mut l, mut r) = (0, 0);
        let mut start = 0;
        while l < left.len() && r < right.len() {
            let stop = left[l].1.min(right[r].1);
            let held = match (left[l].2, right[r].2) {
                (Some(a), Some(b)) => Some(self.expressions.reduce(op, a, b)),
                _ => None,
            };
            combined.push((start, stop, held));
            l += usize::from(left[l].1 == stop);
            r += usize::from(right[r].1 == stop);
            start = stop;
        }
        combined
    }
}

/// Whether a value of type `from` may change when stored as `to`.
fn narrows(from: DType, to: DType) -> bool {
    from != to && !(to == DType::F64 || (to == DType::F32 && matches!(from, DType::F16 | DType::BF16)))
}
