//! Runs the program on expressions instead of numbers and compares the results with the contracts.

use super::Findings;
use super::deadlock::Event;
use super::expression::{Contributions, Expressions, Value};
use super::messages::Messages;
use crate::{BufferKind, Contract, DType, Kernel, Op, Program, ReduceOp, Slice};
use hocket_ids::{BufferId, Rank};
use std::collections::HashMap;

/// What elements hold: unknown before the first write of a scratch buffer.
type Held = Option<Value>;

pub fn check(program: &Program, messages: &Messages, order: &[Event], found: &mut Findings<'_>) {
    let mut state = State::new(program);
    let mut collectives: HashMap<(usize, usize), usize> = HashMap::new();
    for &(rank, op, end) in order {
        let node = &program.ranks[rank].nodes[op];
        match (&node.op, end) {
            (Op::Send { src, wire, .. }, false) => {
                for slice in state.unwritten(rank, src) {
                    found.at(rank, op, unwritten(&slice));
                }
                let sent = state.encode(rank, src, *wire);
                state.in_flight.insert((rank, op), sent);
            }
            (Op::Recv { dst, wire, reduce, peer, tag }, true) => {
                let Some(message) = messages.get(&(peer.index(), rank, *tag)) else { continue };
                let Some(sent) = state.in_flight.remove(&(peer.index(), message.send)) else { continue };
                if reduce.is_some() {
                    for slice in state.unwritten(rank, dst) {
                        found.at(rank, op, unwritten(&slice));
                    }
                }
                state.land(rank, dst, &sent, *wire, *reduce);
            }
            (Op::AllReduce { slice, group, op: how, scale, .. }, true) => {
                // All members are there when the last one is; ranks run their collectives of a group in one order.
                let arrived = collectives.entry((group[0].index(), slice.start)).or_default();
                *arrived += 1;
                if *arrived == group.len() {
                    *arrived = 0;
                    state.all_reduce(group, slice, *how, *scale);
                }
            }
            (Op::Send { .. } | Op::Recv { .. } | Op::AllReduce { .. }, _) | (_, false) => {}
            (local, true) => {
                for slice in local.reads().iter().flat_map(|slice| state.unwritten(rank, slice)) {
                    found.at(rank, op, unwritten(&slice));
                }
                state.local(rank, local);
            }
        }
    }
    if found.diagnostics.is_empty() {
        for contract in &program.ensures {
            judge(contract, &mut state, found);
        }
    }
}

fn unwritten(slice: &Slice) -> String {
    format!("reads %{}[{}:{}], which nothing has written", slice.buffer, slice.start, slice.stop)
}

/// Runs of elements that hold the same expression, in order, without gaps.
type Runs = Vec<(usize, usize, Held)>;

struct State<'a> {
    program: &'a Program,
    expressions: Expressions,
    /// By rank and buffer.
    buffers: Vec<Vec<Runs>>,
    /// By rank and send op: what is on its way, from position 0.
    in_flight: HashMap<(usize, usize), Runs>,
}

impl<'a> State<'a> {
    fn new(program: &'a Program) -> Self {
        let mut expressions = Expressions::default();
        let buffers = program.ranks.iter().enumerate().map(|(rank, ops)| {
            let runs = ops.buffers.iter().enumerate().map(|(id, buffer)| {
                let held = (buffer.kind == BufferKind::Bound).then(|| expressions.input(rank, id as u32));
                if buffer.len == 0 { Vec::new() } else { vec![(0, buffer.len, held)] }
            });
            runs.collect()
        });
        let buffers = buffers.collect();
        Self { program, expressions, buffers, in_flight: HashMap::new() }
    }

    fn dtype(&self, rank: usize, buffer: BufferId) -> DType {
        self.program.ranks[rank].buffers[buffer.index()].dtype
    }

    /// The runs inside a slice, positions counted from its start.
    fn read(&self, rank: usize, slice: &Slice) -> Runs {
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
    fn write(&mut self, rank: usize, slice: &Slice, new: &[(usize, usize, Held)]) {
        if slice.is_empty() {
            return;
        }
        let runs = &mut self.buffers[rank][slice.buffer.index()];
        let first = runs.partition_point(|run| run.1 <= slice.start);
        let last = runs.partition_point(|run| run.0 < slice.stop);
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
        let runs = self.read(rank, slice);
        let missing = runs.iter().filter(|run| run.2.is_none());
        missing.map(|run| Slice::new(slice.buffer, slice.start + run.0, slice.start + run.1)).collect()
    }

    /// What crosses when a slice is sent as `wire`.
    fn encode(&mut self, rank: usize, slice: &Slice, wire: DType) -> Runs {
        let lossy = narrows(self.dtype(rank, slice.buffer), wire);
        let mut runs = self.read(rank, slice);
        for run in &mut runs {
            run.2 = run.2.map(|value| if lossy { self.expressions.round(wire, value) } else { value });
        }
        runs
    }

    fn land(&mut self, rank: usize, dst: &Slice, sent: &Runs, wire: DType, reduce: Option<ReduceOp>) {
        let own = self.dtype(rank, dst.buffer);
        let mut landed = sent.clone();
        if narrows(wire, own) {
            for run in &mut landed {
                run.2 = run.2.map(|value| self.expressions.round(own, value));
            }
        }
        if let Some(op) = reduce {
            landed = self.combine(op, &self.read(rank, dst), &landed);
        }
        self.write(rank, dst, &landed);
    }

    fn local(&mut self, rank: usize, op: &Op) {
        match op {
            Op::Copy { src, dst } | Op::Cast { src, dst } => {
                let runs = self.encode(rank, src, self.dtype(rank, dst.buffer));
                self.write(rank, dst, &runs);
            }
            Op::Reduce { op, src, dst } => {
                let runs = self.encode(rank, src, self.dtype(rank, dst.buffer));
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
            Op::Record { .. } | Op::Send { .. } | Op::Recv { .. } | Op::AllReduce { .. } => {}
        }
    }

    fn all_reduce(&mut self, group: &[Rank], slice: &Slice, op: ReduceOp, scale: f64) {
        let mut sum = self.read(group[0].index(), slice);
        for rank in &group[1..] {
            sum = self.combine(op, &sum, &self.read(rank.index(), slice));
        }
        #[expect(clippy::float_cmp, reason = "the neutral factor is exact")]
        if scale != 1.0 {
            for run in &mut sum {
                run.2 = run.2.map(|value| self.expressions.scale(scale, value));
            }
        }
        for rank in group {
            self.write(rank.index(), slice, &sum);
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

fn moved(held: Held, by: i64) -> Held {
    held.map(|value| Value { shift: value.shift + by, ..value })
}

/// Whether a value of type `from` may change when it is held in `to`.
fn narrows(from: DType, to: DType) -> bool {
    from != to && !(to == DType::F64 || (to == DType::F32 && matches!(from, DType::F16 | DType::BF16)))
}

fn judge(contract: &Contract, state: &mut State<'_>, found: &mut Findings<'_>) {
    let Contract::AllReduce { buffer, group, op, scale } = contract;
    let Some(first) = group.first() else { return };
    let whole = |state: &State<'_>, rank: Rank| {
        let len = state.program.ranks[rank.index()].buffers[buffer.index()].len;
        state.read(rank.index(), &Slice::new(*buffer, 0, len))
    };
    let reference = joined(whole(state, *first));
    for rank in group {
        for (start, stop, held) in whole(state, *rank) {
            let made =
                held.and_then(|value| Some((state.expressions.contributions(value.expr)?, value.shift)));
            let wrong = match made {
                Some((made, shift)) => disagreement(&made, shift, *buffer, group, *op, *scale),
                None => Some("holds a mixture of reductions".into()),
            };
            if let Some(wrong) = wrong {
                found.whole(format!("rank {rank}: %{buffer}[{start}:{stop}] {wrong}"));
                return;
            }
        }
        let own = joined(whole(state, *rank));
        if let Some(at) = reference.iter().zip(&own).position(|(a, b)| a != b) {
            let (start, stop, _) = own[at];
            found.whole(format!(
                "replicas differ: rank {rank} and rank {first} hold %{buffer}[{start}:{stop}] rounded or summed in \
                 different ways"
            ));
            return;
        }
    }
}

/// Neighbouring runs of the same expression as one, so that two ranks compare equal however they were cut.
fn joined(runs: Runs) -> Runs {
    let mut joined: Runs = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.2 == run.2 => last.1 = run.1,
            _ => joined.push(run),
        }
    }
    joined
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
