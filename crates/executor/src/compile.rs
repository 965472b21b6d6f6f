//! Program → this rank's instructions: slices become regions, messages know the peer's own instruction number.

use crate::compute::{Call, Compute};
use crate::error::Error;
use crate::in_place::{InPlace, members};
use hocket_ids::{Rank, Tag};
use hocket_kernels as kernels;
use hocket_program::{BufferKind, Collective, DType, Kernel, Op, Program, Record, Slice};
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
    /// An all-reduce of ranks that share memory.
    InPlace(InPlace),
    /// A collective that a library does: its slice, and the other one of an all-to-all.
    Library(Region, Option<Region>),
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
    /// Where it says how many of the elements go.
    pub count: Option<Region>,
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
    /// Where it says how many of the elements come.
    pub count: Option<Region>,
}

/// How many of `elements` move: all, or what the count says, which is read when the message starts and is not written
/// before it ends. A count that says more than there are is as good as all: `is_sound` has failed the job by then.
fn moving(elements: usize, count: Option<&Region>) -> usize {
    count.map_or(elements, |count| usize::try_from(said(count)).unwrap_or(0).min(elements))
}

fn said(count: &Region) -> i64 {
    count.as_bytes().try_into().map_or(-1, i64::from_ne_bytes)
}

/// Whether a count is within its message.
fn is_sound(elements: usize, count: Option<&Region>) -> Result<(), String> {
    let wrong = |said: i64| usize::try_from(said).is_ok_and(|said| said <= elements);
    match count.map(said).filter(|said| !wrong(*said)) {
        Some(said) => Err(format!("a count says {said} of {elements} elements")),
        None => Ok(()),
    }
}

impl Send {
    /// What leaves.
    pub fn region(&self) -> Region {
        let elements = self.src.len() / self.dtype.bytes();
        self.src.sub(0, moving(elements, self.count.as_ref()) * self.dtype.bytes())
    }
}

impl Receive {
    /// Elements of the message.
    pub fn elements(&self) -> usize {
        moving(self.landing.region.len() / self.dtype.bytes(), self.count.as_ref())
    }

    /// Bytes of the message on the wire.
    pub fn wire_bytes(&self) -> usize {
        self.elements() * self.wire.bytes()
    }

    /// Where what comes lands.
    pub fn landing(&self) -> Landing {
        let region = self.landing.region.sub(0, self.elements() * self.dtype.bytes());
        Landing { region, land: self.landing.land }
    }
}

impl Instruction {
    /// How the trace calls it.
    pub fn kind(&self) -> Kind {
        match &self.action {
            Action::Compute(compute) => compute.kind(),
            Action::Send(_) => Kind::Send,
            Action::Receive(_) => Kind::Recv,
            Action::InPlace(_) => Kind::Reduce,
            Action::Library(..) => Kind::Library,
        }
    }

    /// The peer, of a message.
    pub fn peer(&self) -> Option<Rank> {
        match &self.action {
            Action::Compute(_) | Action::InPlace(_) | Action::Library(..) => None,
            Action::Send(send) => Some(send.peer),
            Action::Receive(receive) => Some(receive.peer),
        }
    }

    /// Why it must not start: what a count says.
    pub fn refusal(&self) -> Result<(), String> {
        match &self.action {
            Action::Send(send) => is_sound(send.src.len() / send.dtype.bytes(), send.count.as_ref()),
            Action::Receive(receive) => {
                is_sound(receive.landing.region.len() / receive.dtype.bytes(), receive.count.as_ref())
            }
            Action::Compute(_) | Action::InPlace(_) | Action::Library(..) => Ok(()),
        }
    }

    /// Bytes moved, on the wire for messages.
    pub fn bytes(&self) -> usize {
        match &self.action {
            Action::Compute(compute) => compute.bytes(),
            Action::Send(send) => send.region().len() / send.dtype.bytes() * send.wire.bytes(),
            Action::Receive(receive) => receive.wire_bytes(),
            Action::InPlace(InPlace { region, .. }) | Action::Library(region, _) => region.len(),
        }
    }
}

/// Bytes of each buffer of `rank` that the executor must allocate, by buffer; `None` for bound ones.
pub fn own_bytes(program: &Program, rank: Rank) -> Vec<Option<usize>> {
    program.ranks[rank.index()]
        .buffers
        .iter()
        .map(|buffer| (buffer.kind != BufferKind::Bound).then(|| buffer.len * buffer.dtype.bytes()))
        .collect()
}

/// Compiles `rank`'s part; `buffers` are its regions by buffer id, each as long as declared, `functions` what its kernels run.
pub fn compile(
    program: &Program,
    rank: Rank,
    buffers: &[Region],
    functions: &[kernels::Function],
) -> Result<Vec<Instruction>, Error> {
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
        let action = action(program, rank, at, &node.op, buffers, functions, &messages).map_err(wrong)?;
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
    at: usize,
    op: &Op,
    buffers: &[Region],
    functions: &[kernels::Function],
    messages: &Messages,
) -> Result<Action, String> {
    let own = &program.ranks[rank.index()];
    let dtype = |slice: &Slice| own.buffers[slice.buffer.index()].dtype;
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
        Op::Collective {
            what, slice, algorithm: Some(hocket_program::Algorithm::Library { .. }), ..
        } => {
            let other = match what {
                Collective::AllToAll { dst } => Some(region(dst)),
                _ => None,
            };
            Action::Library(region(slice), other)
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
            algorithm: Some(hocket_program::Algorithm::InPlace),
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
