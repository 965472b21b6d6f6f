//! Compiles a program into this rank's instructions: slices become regions, and messages carry the peer's own
//! instruction number.

use crate::compute::{Call, Compute};
use crate::error::Error;
use crate::instruction::{Action, InPlace, Instruction, Receive, Send, Stage, Way};
use hocket_ids::{BufferId, Rank, Tag};
use hocket_kernels as kernels;
use hocket_program::{
    Algorithm, BufferKind, Collective, DType, Kernel, Op, Program, RankProgram, Record, Slice, Space,
};
use hocket_sync::meeting::MEMBERS_MAX;
use hocket_wire::link::{Land, Landing};
use hocket_wire::memory::Region;
use std::collections::HashMap;

/// Why the executor cannot run any rank's part of the program, if it cannot: with a device's memory it does no more than
/// [`Program::staged`] asks for. All ranks refuse alike, so none waits for one that refused.
pub fn refuse_spaces(program: &Program) -> Result<(), String> {
    for (rank, own) in program.ranks.iter().enumerate() {
        let device = |slice: &Slice| own.buffers[slice.buffer.index()].space == Space::Device;
        let mut buffers = own.buffers.iter();
        let outside =
            buffers.find(|buffer| buffer.space == Space::Device && buffer.kind != BufferKind::Bound);
        if let Some(buffer) = outside {
            return Err(format!(
                "buffer `{}` of rank {rank} is in device memory, and this executor has none of its own",
                buffer.name
            ));
        }
        for (at, node) in own.nodes.iter().enumerate() {
            let may = match &node.op {
                Op::Copy { src, dst } => {
                    device(src) != device(dst) && (src.start, src.stop) == (dst.start, dst.stop)
                }
                Op::Collective { algorithm: Some(Algorithm::Library { .. }), .. } => {
                    let mut all = node.op.reads().into_iter().chain(node.op.writes());
                    all.all(|slice| device(&slice) && twin(own, &slice).is_some())
                }
                _ => false,
            };
            let mut all = node.op.reads().into_iter().chain(node.op.writes());
            if !may && all.any(|slice| device(&slice)) {
                return Err(format!(
                    "op {at} of rank {rank} works on device memory, which is only copied from and to the same place of the host's, \
                     or given to a library"
                ));
            }
        }
    }
    Ok(())
}

/// The same place of the host's memory. Of bound buffers, the device's come in the order of the host's.
fn twin(own: &RankProgram, slice: &Slice) -> Option<Slice> {
    let all = || own.buffers.iter().enumerate().filter(|(_, buffer)| buffer.kind == BufferKind::Bound);
    let of = |space| all().filter(move |(_, buffer)| buffer.space == space);
    let number = of(Space::Device).position(|(at, _)| at == slice.buffer.index())?;
    let (at, host) = of(Space::Host).nth(number)?;
    let device = &own.buffers[slice.buffer.index()];
    ((host.dtype, host.len) == (device.dtype, device.len))
        .then(|| Slice { buffer: BufferId::from_index(at), ..*slice })
}

/// Whether a rank's part works on twins of a device's memory.
pub fn is_staged(own: &RankProgram) -> bool {
    own.buffers.iter().any(|buffer| buffer.space == Space::Device)
}

/// Sizes in bytes of `rank`'s buffers that the executor must allocate, by buffer; `None` for bound ones.
pub fn own_bytes(program: &Program, rank: Rank) -> Vec<Option<usize>> {
    program.ranks[rank.index()]
        .buffers
        .iter()
        .map(|buffer| (buffer.kind != BufferKind::Bound).then(|| buffer.len * buffer.dtype.bytes()))
        .collect()
}

/// Compiles `rank`'s part. `buffers` are its regions by buffer id, each as long as declared, none of the device's; `functions`
/// are its kernels' functions.
pub fn compile(
    program: &Program,
    rank: Rank,
    buffers: &[Option<Region>],
    functions: &[kernels::Function],
) -> Result<Vec<Instruction>, Error> {
    let wrong = |what: String| Error::Program { name: program.name.clone(), what };
    let own = &program.ranks[rank.index()];
    for (buffer, region) in own.buffers.iter().zip(buffers) {
        let Some(region) = region else { continue };
        let wanted = buffer.len * buffer.dtype.bytes();
        if region.len() != wanted {
            return Err(wrong(format!(
                "buffer `{}` needs {wanted} bytes, got {}",
                buffer.name,
                region.len()
            )));
        }
    }
    let messages = messages(program, rank);
    let given: Vec<BufferId> = own.given().into_iter().map(|(given, _)| given).collect();
    let mut successors: Vec<Vec<u32>> = vec![Vec::new(); own.nodes.len()];
    let mut instructions = Vec::with_capacity(own.nodes.len());
    for (at, node) in own.nodes.iter().enumerate() {
        for before in &node.after {
            let before = successors
                .get_mut(before.index())
                .ok_or_else(|| wrong(format!("op {at} comes after op {before}, which does not exist")))?;
            before.push(at as u32);
        }
        let mut action = action(program, rank, at, &node.op, buffers, functions, &messages).map_err(wrong)?;
        if let (Op::Copy { src, .. }, Action::Compute(Compute::Copy { factor, .. })) = (&node.op, &mut action)
        {
            *factor = given.contains(&src.buffer).then(|| own.buffers[src.buffer.index()].dtype);
        }
        instructions.push(Instruction { action, after: node.after.len() as u32, then: Box::default() });
    }
    for (instruction, then) in instructions.iter_mut().zip(successors) {
        instruction.then = then.into_boxed_slice();
    }
    Ok(instructions)
}

/// A library's collective, on the twins of what is a device's.
fn library(
    own: &RankProgram,
    buffers: &[Option<Region>],
    what: &Collective,
    slice: &Slice,
) -> Result<Action, String> {
    let space = own.buffers[slice.buffer.index()].space;
    let host = |slice: &Slice| match space {
        Space::Host => Ok(region_of(own, buffers, slice)),
        Space::Device => twin(own, slice)
            .map(|slice| region_of(own, buffers, &slice))
            .ok_or("device memory without a twin"),
    };
    let other = match what {
        Collective::AllToAll { dst } => Some(host(dst)?),
        _ => None,
    };
    Ok(Action::Library(host(slice)?, other, space))
}

/// (source, destination, tag) → the peer's instruction number and the element type of its slice.
type Messages = HashMap<(Rank, Rank, Tag), (u32, DType)>;

fn messages(program: &Program, own: Rank) -> Messages {
    let mut found = Messages::new();
    for (at, other) in program.ranks.iter().enumerate() {
        let rank = Rank::from_index(at);
        if rank == own {
            continue;
        }
        let dtype = |slice: &Slice| other.buffers[slice.buffer.index()].dtype;
        for (op, node) in other.nodes.iter().enumerate() {
            match &node.op {
                Op::Send { src, peer, tag, .. } if *peer == own => {
                    found.insert((rank, own, *tag), (op as u32, dtype(src)));
                }
                Op::Recv { dst, peer, tag, .. } if *peer == own => {
                    found.insert((own, rank, *tag), (op as u32, dtype(dst)));
                }
                _ => {}
            }
        }
    }
    found
}

fn action(
    program: &Program,
    rank: Rank,
    at: usize,
    op: &Op,
    buffers: &[Option<Region>],
    functions: &[kernels::Function],
    messages: &Messages,
) -> Result<Action, String> {
    let own = &program.ranks[rank.index()];
    let dtype = |slice: &Slice| own.buffers[slice.buffer.index()].dtype;
    let region = |slice: &Slice| region_of(own, buffers, slice);
    let matching = |key: (Rank, Rank, Tag)| {
        let (from, to, tag) = key;
        messages.get(&key).ok_or_else(|| format!("message {from} → {to} tag {tag} has no other end"))
    };
    Ok(match op {
        Op::Copy { src, dst } => copy(own, buffers, src, dst),
        Op::Cast { src, dst } => Action::Compute(Compute::Cast {
            dst: region(dst),
            dtype: dtype(dst),
            src: region(src),
            src_dtype: dtype(src),
        }),
        Op::Reduce { op, src, dst } => Action::Compute(Compute::Reduce {
            op: *op,
            dst: region(dst),
            dtype: dtype(dst),
            src: region(src),
            src_dtype: dtype(src),
        }),
        Op::Apply { kernel: Kernel::Scale(factor), dst } => {
            Action::Compute(Compute::Scale { dst: region(dst), dtype: dtype(dst), factor: *factor })
        }
        Op::Apply { kernel: Kernel::Round(to), dst } => {
            Action::Compute(Compute::Round { dst: region(dst), dtype: dtype(dst), to: *to })
        }
        Op::Record { what: Record::NonFinite, src } => Action::Compute(Compute::NonFinite {
            src: region(src),
            dtype: dtype(src),
            first_element: src.start,
        }),
        Op::Call { kernel, inputs, outputs } => {
            let spec = program.kernels.get(kernel.index()).ok_or("a call of no kernel")?;
            let function = functions.get(kernel.index()).ok_or("a kernel without a function")?;
            Action::Compute(Compute::Call(Call {
                name: spec.name.clone(),
                function: *function,
                inputs: inputs.iter().map(region).collect(),
                outputs: outputs.iter().map(region).collect(),
                constants: spec.parameters.clone(),
            }))
        }
        Op::Collective { what, slice, algorithm: Some(Algorithm::Library { .. }), .. } => {
            library(own, buffers, what, slice)?
        }
        Op::Send { src, wire, peer, tag, count } => Action::Send(Send {
            peer: *peer,
            peer_op: matching((rank, *peer, *tag))?.0,
            src: region(src),
            dtype: dtype(src),
            wire: *wire,
            count: count.as_ref().map(region),
        }),
        Op::Recv { dst, wire, reduce, peer, tag, count } => {
            let (peer_op, peer_dtype) = *matching((*peer, rank, *tag))?;
            let (own_dtype, wire) = (dtype(dst), *wire);
            let land = match reduce {
                Some(op) => Land::Reduce { op: *op, dtype: own_dtype, wire },
                None if wire == own_dtype && peer_dtype == wire => Land::Store,
                None => Land::Cast { dtype: own_dtype, wire },
            };
            Action::Receive(Receive {
                peer: *peer,
                peer_op,
                landing: Landing { region: region(dst), land },
                peer_dtype,
                wire,
                dtype: own_dtype,
                count: count.as_ref().map(region),
            })
        }
        Op::Collective {
            what: Collective::AllReduce,
            slice,
            op,
            scale,
            algorithm: Some(Algorithm::InPlace),
            ..
        } => {
            let members = members(program, rank, at)?;
            let own = members.iter().position(|(member, _)| *member == rank);
            let own = own.ok_or("a group without its caller")?;
            let (region, op, dtype) = (region(slice), *op, dtype(slice));
            Action::InPlace(InPlace { members, own, region, op, dtype, factor: *scale, claims: None })
        }
        Op::Collective { .. } => {
            return Err("a collective is left; lower the program before it is run".into());
        }
    })
}

fn region_of(own: &RankProgram, buffers: &[Option<Region>], slice: &Slice) -> Region {
    let at = slice.buffer.index();
    let bytes = own.buffers[at].dtype.bytes();
    let whole = buffers[at].as_ref().expect("copies and libraries alone work on the device");
    whole.sub(slice.start * bytes, slice.len() * bytes)
}

/// A copy on the host, or between the host and the device.
fn copy(own: &RankProgram, buffers: &[Option<Region>], src: &Slice, dst: &Slice) -> Action {
    let region = |slice: &Slice| region_of(own, buffers, slice);
    let stage = |slice: &Slice, way| {
        let dtype = own.buffers[slice.buffer.index()].dtype;
        Action::Stage(Stage { host: region(slice), dtype, way })
    };
    let space = |slice: &Slice| own.buffers[slice.buffer.index()].space;
    match (space(src), space(dst)) {
        (Space::Device, _) => stage(dst, Way::Down),
        (_, Space::Device) => stage(src, Way::Up),
        (Space::Host, Space::Host) => {
            Action::Compute(Compute::Copy { dst: region(dst), src: region(src), factor: None })
        }
    }
}

/// Members of the collective `op` of `rank`, and on each the number of its instruction: the one at the same position
/// among the collectives of its group.
fn members(program: &Program, rank: Rank, op: usize) -> Result<Vec<(Rank, u32)>, String> {
    let Some((group, slice)) = of(&program.ranks[rank.index()].nodes[op].op) else {
        return Err("is no collective in place".into());
    };
    if group.len() > MEMBERS_MAX {
        return Err(format!("{} members: at most {MEMBERS_MAX} reduce in place", group.len()));
    }
    let turns = |member: Rank| {
        let nodes = program.ranks[member.index()].nodes.iter().enumerate();
        nodes.filter_map(|(at, node)| {
            of(&node.op).filter(|(other, _)| *other == group).map(|(_, slice)| (at, slice))
        })
    };
    let turn = turns(rank).position(|(at, _)| at == op).unwrap_or_default();
    let kind = |rank: Rank, slice: &Slice| {
        (slice.len(), program.ranks[rank.index()].buffers[slice.buffer.index()].dtype)
    };
    let mut members = Vec::with_capacity(group.len());
    for &member in group {
        match turns(member).nth(turn) {
            Some((at, theirs)) if kind(member, theirs) == kind(rank, slice) => {
                members.push((member, at as u32));
            }
            Some(_) => return Err(format!("rank {member} brings other elements")),
            None => return Err(format!("rank {member} does not take part")),
        }
    }
    Ok(members)
}

fn of(op: &Op) -> Option<(&[Rank], &Slice)> {
    match op {
        Op::Collective {
            what: Collective::AllReduce,
            slice,
            group,
            algorithm: Some(Algorithm::InPlace),
            ..
        } => Some((group, slice)),
        _ => None,
    }
}
