//! Program → this rank's instructions: slices become regions, messages know the peer's own instruction number.

use crate::error::Error;
use hocket_ids::{Rank, Tag};
use hocket_kernels as kernels;
use hocket_program::{BufferKind, DType, Kernel, Op, Program, Record, ReduceOp, Slice};
use hocket_trace::Kind;
use hocket_wire::memory::Region;
use hocket_wire::tcp::{Land, Landing};
use std::collections::HashMap;

/// One instruction and its place in the dataflow.
#[derive(Debug)]
pub struct Instruction {
    /// What to do.
    pub action: Action,
    /// Instructions that must complete before.
    pub after: u32,
    /// Instructions that wait for this one.
    pub then: Box<[u32]>,
}

/// What an instruction does.
#[derive(Debug)]
pub enum Action {
    /// Runs on a native thread.
    Compute(Compute),
    /// Gives bytes to a peer.
    Send(Send),
    /// Takes bytes from a peer.
    Receive(Receive),
}

/// Work on local memory.
#[derive(Debug)]
pub enum Compute {
    Copy {
        dst: Region,
        src: Region,
    },
    Cast {
        dst: Region,
        dtype: kernels::DType,
        src: Region,
        src_dtype: kernels::DType,
    },
    Reduce {
        op: kernels::ReduceOp,
        dst: Region,
        dtype: kernels::DType,
        src: Region,
        src_dtype: kernels::DType,
    },
    Scale {
        dst: Region,
        dtype: kernels::DType,
        factor: f64,
    },
    Round {
        dst: Region,
        dtype: kernels::DType,
        to: kernels::DType,
    },
    NonFinite {
        src: Region,
        dtype: kernels::DType,
        first_element: usize,
    },
}

/// A message to a peer.
#[derive(Debug)]
pub struct Send {
    /// Where to.
    pub peer: Rank,
    /// The peer's receive instruction.
    pub peer_op: u32,
    /// The bytes.
    pub src: Region,
    /// Their element type.
    pub dtype: kernels::DType,
    /// Element type on the wire.
    pub wire: kernels::DType,
}

/// A message from a peer.
#[derive(Debug)]
pub struct Receive {
    /// Where from.
    pub peer: Rank,
    /// The peer's send instruction.
    pub peer_op: u32,
    /// Where the whole message lands.
    pub landing: Landing,
    /// Element type in the peer's memory, for a peer whose memory we read.
    pub peer_dtype: kernels::DType,
    /// Element type on the wire.
    pub wire: kernels::DType,
    /// Element type of the region.
    pub dtype: kernels::DType,
}

impl Receive {
    /// Bytes of the message on the wire.
    pub fn wire_bytes(&self) -> usize {
        self.landing.region.len() / self.dtype.bytes() * self.wire.bytes()
    }
}

impl Instruction {
    /// How the trace calls it.
    pub fn kind(&self) -> Kind {
        match &self.action {
            Action::Compute(Compute::Copy { .. }) => Kind::Copy,
            Action::Compute(Compute::Cast { .. }) => Kind::Cast,
            Action::Compute(Compute::Reduce { .. }) => Kind::Reduce,
            Action::Compute(Compute::Scale { .. } | Compute::Round { .. }) => Kind::Apply,
            Action::Compute(Compute::NonFinite { .. }) => Kind::Record,
            Action::Send(_) => Kind::Send,
            Action::Receive(_) => Kind::Recv,
        }
    }

    /// The peer, of a message.
    pub fn peer(&self) -> Option<Rank> {
        match &self.action {
            Action::Compute(_) => None,
            Action::Send(send) => Some(send.peer),
            Action::Receive(receive) => Some(receive.peer),
        }
    }

    /// Bytes moved, on the wire for messages.
    pub fn bytes(&self) -> usize {
        match &self.action {
            Action::Compute(
                Compute::Copy { dst, .. }
                | Compute::Cast { dst, .. }
                | Compute::Reduce { dst, .. }
                | Compute::Scale { dst, .. }
                | Compute::Round { dst, .. }
                | Compute::NonFinite { src: dst, .. },
            ) => dst.len(),
            Action::Send(send) => send.src.len() / send.dtype.bytes() * send.wire.bytes(),
            Action::Receive(receive) => receive.wire_bytes(),
        }
    }
}

/// Elements of each scratch buffer of `rank`, in bytes, by buffer: what the executor must allocate.
pub fn scratch_bytes(program: &Program, rank: Rank) -> Vec<Option<usize>> {
    program.ranks[rank.index()]
        .buffers
        .iter()
        .map(|buffer| (buffer.kind == BufferKind::Scratch).then(|| buffer.len * buffer.dtype.bytes()))
        .collect()
}

/// Compiles `rank`'s part; `buffers` are its regions by buffer id, each as long as declared.
pub fn compile(program: &Program, rank: Rank, buffers: &[Region]) -> Result<Vec<Instruction>, Error> {
    let wrong = |what: String| Error::Program { name: program.name.clone(), what };
    let own = &program.ranks[rank.index()];
    for (buffer, region) in own.buffers.iter().zip(buffers) {
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
    let mut successors: Vec<Vec<u32>> = vec![Vec::new(); own.nodes.len()];
    let mut instructions = Vec::with_capacity(own.nodes.len());
    for (at, node) in own.nodes.iter().enumerate() {
        for before in &node.after {
            let before = successors
                .get_mut(before.index())
                .ok_or_else(|| wrong(format!("op {at} comes after op {before}, which does not exist")))?;
            before.push(at as u32);
        }
        let action = action(program, rank, &node.op, buffers, &messages).map_err(wrong)?;
        instructions.push(Instruction { action, after: node.after.len() as u32, then: Box::default() });
    }
    for (instruction, then) in instructions.iter_mut().zip(successors) {
        instruction.then = then.into_boxed_slice();
    }
    Ok(instructions)
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
    op: &Op,
    buffers: &[Region],
    messages: &Messages,
) -> Result<Action, String> {
    let own = &program.ranks[rank.index()];
    let dtype = |slice: &Slice| kernel_dtype(own.buffers[slice.buffer.index()].dtype);
    let region = |slice: &Slice| {
        let bytes = own.buffers[slice.buffer.index()].dtype.bytes();
        buffers[slice.buffer.index()].sub(slice.start * bytes, slice.len() * bytes)
    };
    let matching = |key: (Rank, Rank, Tag)| {
        let (from, to, tag) = key;
        messages.get(&key).ok_or_else(|| format!("message {from} → {to} tag {tag} has no other end"))
    };
    Ok(match op {
        Op::Copy { src, dst } => Action::Compute(Compute::Copy { dst: region(dst), src: region(src) }),
        Op::Cast { src, dst } => Action::Compute(Compute::Cast {
            dst: region(dst),
            dtype: dtype(dst),
            src: region(src),
            src_dtype: dtype(src),
        }),
        Op::Reduce { op, src, dst } => Action::Compute(Compute::Reduce {
            op: kernel_reduce(*op),
            dst: region(dst),
            dtype: dtype(dst),
            src: region(src),
            src_dtype: dtype(src),
        }),
        Op::Apply { kernel: Kernel::Scale(factor), dst } => {
            Action::Compute(Compute::Scale { dst: region(dst), dtype: dtype(dst), factor: *factor })
        }
        Op::Apply { kernel: Kernel::Round(to), dst } => {
            Action::Compute(Compute::Round { dst: region(dst), dtype: dtype(dst), to: kernel_dtype(*to) })
        }
        Op::Record { what: Record::NonFinite, src } => Action::Compute(Compute::NonFinite {
            src: region(src),
            dtype: dtype(src),
            first_element: src.start,
        }),
        Op::Send { src, wire, peer, tag } => Action::Send(Send {
            peer: *peer,
            peer_op: matching((rank, *peer, *tag))?.0,
            src: region(src),
            dtype: dtype(src),
            wire: kernel_dtype(*wire),
        }),
        Op::Recv { dst, wire, reduce, peer, tag } => {
            let (peer_op, peer_dtype) = *matching((*peer, rank, *tag))?;
            let (own_dtype, wire) = (dtype(dst), kernel_dtype(*wire));
            let land = match reduce {
                Some(op) => Land::Reduce { op: kernel_reduce(*op), dtype: own_dtype, wire },
                None if wire == own_dtype && kernel_dtype(peer_dtype) == wire => Land::Store,
                None => Land::Cast { dtype: own_dtype, wire },
            };
            Action::Receive(Receive {
                peer: *peer,
                peer_op,
                landing: Landing { region: region(dst), land },
                peer_dtype: kernel_dtype(peer_dtype),
                wire,
                dtype: own_dtype,
            })
        }
        Op::AllReduce { .. } => return Err("a collective is left; lower the program before it is run".into()),
    })
}

fn kernel_dtype(dtype: DType) -> kernels::DType {
    match dtype {
        DType::F64 => kernels::DType::F64,
        DType::F32 => kernels::DType::F32,
        DType::F16 => kernels::DType::F16,
        DType::BF16 => kernels::DType::BF16,
        DType::I64 => kernels::DType::I64,
        DType::I32 => kernels::DType::I32,
        DType::I8 => kernels::DType::I8,
        DType::U8 => kernels::DType::U8,
    }
}

fn kernel_reduce(op: ReduceOp) -> kernels::ReduceOp {
    match op {
        ReduceOp::Sum => kernels::ReduceOp::Sum,
        ReduceOp::Min => kernels::ReduceOp::Min,
        ReduceOp::Max => kernels::ReduceOp::Max,
    }
}
