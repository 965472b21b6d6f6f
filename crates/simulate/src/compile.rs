//! Compiles a lowered program into a graph for the engine: messages get their routes, ops their engine time. Invalid
//! programs are refused here.

use crate::conditions::Costs;
use crate::error::Error;
use crate::graph::{Graph, Listed};
use crate::step::{Step, Work};
use crate::time::{Picos, from_s};
use hocket_ids::{Rank, Tag};
use hocket_network::{Network, Way};
use hocket_program::{DType, Kernel, Op, Program, RankProgram, Slice, Space};
use hocket_trace::Kind;
use std::collections::HashMap;

/// Compiles all ranks of `program`. A message with a count is assumed to have its maximum length.
///
/// Refuses a program whose ranks diverge (a message without its other end, or with another size there) or that contains
/// a collective which is not lowered, and names the first such op.
pub fn compile(program: &Program, network: &Network, costs: &Costs) -> Result<Graph, Error> {
    compile_part(program, network, costs, Part::default())
}

/// The part of a program's bytes that one card carries, where each message is striped over several.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub card: u32,
    pub share: f64,
}

impl Default for Part {
    fn default() -> Self {
        Self { card: 0, share: 1.0 }
    }
}

/// The same for a part of each message, and of the work on it.
pub fn compile_part(program: &Program, network: &Network, costs: &Costs, part: Part) -> Result<Graph, Error> {
    costs.check()?;
    let mut ends = Ends::of(program)?;
    let mut listed =
        Listed { name: program.name.clone(), first: vec![0], first_then: vec![0], ..Listed::default() };
    for (at, rank) in program.ranks.iter().enumerate() {
        let first = listed.steps.len() as u32;
        for (op, node) in rank.nodes.iter().enumerate() {
            let place = Place { program, rank: at as u32, op: op as u32, part };
            listed.steps.push(place.step(rank, &node.op, &mut ends, network, costs)?);
            listed.waits.push(node.after.len() as u32);
        }
        list_successors(rank, first, &mut listed);
        listed.first.push(listed.steps.len() as u32);
    }
    Ok(Graph::Listed(listed))
}

fn list_successors(rank: &RankProgram, first: u32, listed: &mut Listed) {
    let mut counts = vec![0_u32; rank.nodes.len()];
    for before in rank.nodes.iter().flat_map(|node| &node.after) {
        counts[before.index()] += 1;
    }
    let start = listed.then.len() as u32;
    let mut next = Vec::with_capacity(counts.len());
    let mut end = start;
    for count in counts {
        next.push(end);
        end += count;
        listed.first_then.push(end);
    }
    listed.then.resize(end as usize, 0);
    for (op, node) in rank.nodes.iter().enumerate() {
        for before in &node.after {
            let place = &mut next[before.index()];
            listed.then[*place as usize] = first + op as u32;
            *place += 1;
        }
    }
}

/// One end of a message: number of the op, and bytes on the wire.
type End = Option<(u32, u64)>;

/// Both ends of each message.
struct Ends {
    /// (source, destination, tag) → the send and the receive.
    by_message: HashMap<(Rank, Rank, Tag), [End; 2]>,
}

impl Ends {
    fn of(program: &Program) -> Result<Self, Error> {
        let mut by_message: HashMap<(Rank, Rank, Tag), [End; 2]> = HashMap::new();
        let mut number = 0;
        let mut findings = Vec::new();
        for (at, rank) in program.ranks.iter().enumerate() {
            let own = Rank::from_index(at);
            for (op, node) in rank.nodes.iter().enumerate() {
                let (key, side, elements, wire) = match &node.op {
                    Op::Send { src, wire, peer, tag, .. } => ((own, *peer, *tag), 0, src.len(), wire),
                    Op::Recv { dst, wire, peer, tag, .. } => ((*peer, own, *tag), 1, dst.len(), wire),
                    _ => {
                        number += 1;
                        continue;
                    }
                };
                let end = &mut by_message.entry(key).or_default()[side];
                if end.is_some() {
                    findings.push((
                        op,
                        at,
                        format!("a second message from rank {} to rank {} with tag {}", key.0, key.1, key.2),
                    ));
                }
                *end = Some((number, (elements * wire.bytes()) as u64));
                number += 1;
            }
        }
        let ends = Self { by_message };
        ends.compare(program, &mut findings);
        let others = findings.len().saturating_sub(1);
        match findings.into_iter().min() {
            None => Ok(ends),
            Some((op, rank, what)) => Err(Error::Program {
                name: program.name.clone(),
                rank: rank as u32,
                op: op as u32,
                what,
                others,
            }),
        }
    }

    /// Adds errors, with ends in program order.
    fn compare(&self, program: &Program, findings: &mut Vec<(usize, usize, String)>) {
        for (at, rank) in program.ranks.iter().enumerate() {
            let own = Rank::from_index(at);
            for (op, node) in rank.nodes.iter().enumerate() {
                let (key, sends) = match &node.op {
                    Op::Send { peer, tag, .. } => ((own, *peer, *tag), true),
                    Op::Recv { peer, tag, .. } => ((*peer, own, *tag), false),
                    _ => continue,
                };
                let what = match self.by_message.get(&key) {
                    Some([Some((_, sent)), Some((_, taken))]) if sent != taken => {
                        format!(
                            "rank {} sends {sent} bytes, rank {} receives {taken} (tag {})",
                            key.0, key.1, key.2
                        )
                    }
                    Some([Some(_), Some(_)]) => continue,
                    _ if sends => format!("sends tag {} to rank {}, which never receives it", key.2, key.1),
                    _ => format!("receives tag {} from rank {}, which never sends it", key.2, key.0),
                };
                findings.push((op, at, what));
            }
        }
    }

    /// Number of the other end.
    fn other(&self, key: (Rank, Rank, Tag), own_side: usize) -> u32 {
        self.by_message.get(&key).and_then(|ends| ends[1 - own_side]).map_or(0, |(number, _)| number)
    }
}

#[derive(Clone, Copy)]
struct Place<'a> {
    program: &'a Program,
    rank: u32,
    op: u32,
    part: Part,
}

impl Place<'_> {
    /// What is left of so many bytes.
    fn of_part(self, bytes: usize) -> u64 {
        if self.part.share < 1.0 { (bytes as f64 * self.part.share).round() as u64 } else { bytes as u64 }
    }

    fn wrong(self, what: String) -> Error {
        Error::Program { name: self.program.name.clone(), rank: self.rank, op: self.op, what, others: 0 }
    }

    fn step(
        self,
        rank: &RankProgram,
        op: &Op,
        ends: &mut Ends,
        network: &Network,
        costs: &Costs,
    ) -> Result<Step, Error> {
        let own = Rank(self.rank);
        let dtype = |slice: &Slice| rank.buffers[slice.buffer.index()].dtype;
        let space = |slice: &Slice| rank.buffers[slice.buffer.index()].space;
        let size = |slice: &Slice| self.of_part(slice.len() * dtype(slice).bytes());
        let on_wire = |slice: &Slice, wire: &DType| self.of_part(slice.len() * wire.bytes());
        let compute = |kind, slice: &Slice, s_per_byte: f64| {
            let bytes = size(slice);
            Step { rank: self.rank, kind, bytes, work: Work::Compute { cost: times(s_per_byte, bytes) } }
        };
        let casting = |slice: &Slice, wire: DType| {
            if wire == dtype(slice) { 0 } else { times(costs.cast_s_per_byte, size(slice)) }
        };
        let on_socket =
            |route, slice: &Slice, wire: &DType| times(costs.socket_on(route, network), on_wire(slice, wire));
        Ok(match op {
            Op::Send { src, wire, peer, tag, .. } => {
                let route = network.route_on(self.part.card, self.rank, peer.0)?;
                let on_socket = on_socket(route, src, wire);
                let work = Work::Send {
                    route,
                    peer: ends.other((own, *peer, *tag), 0),
                    cost: from_s(costs.send_s) + casting(src, *wire),
                    writing: on_socket,
                    reading: on_socket,
                    forgotten: false,
                };
                Step { rank: self.rank, kind: Kind::Send, bytes: on_wire(src, wire), work }
            }
            Op::Recv { dst, wire, reduce, peer, tag, .. } => {
                let reducing = if reduce.is_some() { times(costs.reduce_s_per_byte, size(dst)) } else { 0 };
                let route = network.route_on(self.part.card, peer.0, self.rank)?;
                let work = Work::Receive {
                    route,
                    peer: ends.other((*peer, own, *tag), 1),
                    cost: from_s(costs.receive_s) + casting(dst, *wire) + reducing,
                    reading: on_socket(route, dst, wire),
                };
                Step { rank: self.rank, kind: Kind::Recv, bytes: on_wire(dst, wire), work }
            }
            Op::Copy { src, dst } => match (space(src), space(dst)) {
                (Space::Host, Space::Host) => compute(Kind::Copy, dst, costs.copy_s_per_byte),
                (Space::Device, _) => self.carried(Way::Down, size(dst), costs)?,
                (Space::Host, Space::Device) => self.carried(Way::Up, size(dst), costs)?,
            },
            Op::Cast { dst, .. } => compute(Kind::Cast, dst, costs.cast_s_per_byte),
            Op::Reduce { dst, .. } => compute(Kind::Reduce, dst, costs.reduce_s_per_byte),
            Op::Apply { kernel: Kernel::Scale(_), dst } => compute(Kind::Apply, dst, costs.copy_s_per_byte),
            Op::Apply { kernel: Kernel::Round(_), dst } => compute(Kind::Apply, dst, costs.cast_s_per_byte),
            Op::Record { src, .. } => compute(Kind::Record, src, costs.copy_s_per_byte),
            Op::Call { kernel, inputs, outputs } => {
                let scatters = self.program.kernels[kernel.index()].scatters();
                let whole = if scatters { &[][..] } else { outputs };
                let bytes: u64 = inputs.iter().chain(whole).map(size).sum();
                let s_per_byte = if scatters { costs.reduce_s_per_byte } else { costs.copy_s_per_byte };
                let work = Work::Compute { cost: times(s_per_byte, bytes) };
                Step { rank: self.rank, kind: Kind::Apply, bytes, work }
            }
            Op::Collective { what, algorithm, .. } => {
                let why = if algorithm.is_some() {
                    "it is not lowered, or a library's"
                } else {
                    "it has no algorithm"
                };
                return Err(
                    self.wrong(format!("collective `{}` is unknown to the simulator: {why}", what.name()))
                );
            }
        })
    }

    /// A copy between the rank's host and its device.
    fn carried(self, way: Way, bytes: u64, costs: &Costs) -> Result<Step, Error> {
        let missing = || self.wrong("it copies between host and device, and no bus is given".into());
        let bus = costs.bus.ok_or_else(missing)?;
        let work = Work::Copy { way, cost: from_s(bus.carry_s(way, bytes as f64)) };
        Ok(Step { rank: self.rank, kind: Kind::Copy, bytes, work })
    }
}

fn times(s_per_byte: f64, bytes: u64) -> Picos {
    from_s(s_per_byte * bytes as f64)
}
