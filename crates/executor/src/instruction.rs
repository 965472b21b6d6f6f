//! One rank's part of a program: instructions that name memory and peers directly.

use crate::compute::Compute;
use hocket_ids::Rank;
use hocket_kernels as kernels;
use hocket_program::Space;
use hocket_trace::Kind;
use hocket_wire::claims::CLAIMS_BYTES;
use hocket_wire::link::Landing;
use hocket_wire::memory::{Allocation, Region};

/// One instruction and its place in the dataflow.
#[derive(Debug)]
pub struct Instruction {
    /// The operation.
    pub action: Action,
    /// Number of instructions that must complete first.
    pub after: u32,
    /// Instructions that depend on this one.
    pub then: Box<[u32]>,
}

/// The operation of an instruction.
#[derive(Debug)]
pub enum Action {
    /// Runs on a native thread.
    Compute(Compute),
    /// Sends bytes to a peer.
    Send(Send),
    /// Receives bytes from a peer.
    Receive(Receive),
    /// An all-reduce of ranks that share memory.
    InPlace(InPlace),
    /// A collective that a library executes: its slice, and the output of an all-to-all; on a device, the host's twins of them.
    Library(Region, Option<Region>, Space),
    /// A copy between the device and the host.
    Stage(Stage),
}

/// A copy between the device and the host, at the same place of both.
#[derive(Debug)]
pub struct Stage {
    /// The host's end.
    pub host: Region,
    /// Element type.
    pub dtype: kernels::DType,
    /// Which way.
    pub way: Way,
}

/// Which way a copy between the device and the host goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the host.
    Down,
    /// To the device.
    Up,
}

/// A message to a peer.
#[derive(Debug)]
pub struct Send {
    /// Destination rank.
    pub peer: Rank,
    /// The peer's receive instruction.
    pub peer_op: u32,
    /// The bytes.
    pub src: Region,
    /// Their element type.
    pub dtype: kernels::DType,
    /// Element type on the wire.
    pub wire: kernels::DType,
    /// The count of elements to send, if the message carries one.
    pub count: Option<Region>,
}

/// A message from a peer.
#[derive(Debug)]
pub struct Receive {
    /// Source rank.
    pub peer: Rank,
    /// The peer's send instruction.
    pub peer_op: u32,
    /// Destination of the whole message.
    pub landing: Landing,
    /// Element type in the peer's memory, for a peer whose memory this rank reads.
    pub peer_dtype: kernels::DType,
    /// Element type on the wire.
    pub wire: kernels::DType,
    /// Element type of the region.
    pub dtype: kernels::DType,
    /// The count of elements to receive, if the message carries one.
    pub count: Option<Region>,
}

/// How many of `elements` move: all of them, or the count, which is read when the message starts and not written before
/// it ends. A count beyond the message is treated as all: `is_sound` has failed the job by then.
fn moving(elements: usize, count: Option<&Region>) -> usize {
    count.map_or(elements, |count| usize::try_from(value(count)).unwrap_or(0).min(elements))
}

fn value(count: &Region) -> i64 {
    count.as_bytes().try_into().map_or(-1, i64::from_ne_bytes)
}

/// Whether a count is within its message.
fn is_sound(elements: usize, count: Option<&Region>) -> Result<(), String> {
    let fits = |value: i64| usize::try_from(value).is_ok_and(|value| value <= elements);
    match count.map(value).filter(|value| !fits(*value)) {
        Some(value) => Err(format!("the count of a message of {elements} elements is {value}")),
        None => Ok(()),
    }
}

impl Send {
    /// The bytes to send.
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

    /// Length of the message on the wire, in bytes.
    pub fn wire_bytes(&self) -> usize {
        self.elements() * self.wire.bytes()
    }

    /// Destination of the received bytes.
    pub fn landing(&self) -> Landing {
        let region = self.landing.region.sub(0, self.elements() * self.dtype.bytes());
        Landing { region, land: self.landing.land }
    }
}

impl Instruction {
    /// Its kind in the trace.
    pub fn kind(&self) -> Kind {
        match &self.action {
            Action::Compute(compute) => compute.kind(),
            Action::Send(_) => Kind::Send,
            Action::Receive(_) => Kind::Recv,
            Action::InPlace(_) => Kind::Reduce,
            Action::Library(..) => Kind::Library,
            Action::Stage(_) => Kind::Copy,
        }
    }

    /// The peer of a message.
    pub fn peer(&self) -> Option<Rank> {
        match &self.action {
            Action::Compute(_) | Action::InPlace(_) | Action::Library(..) | Action::Stage(_) => None,
            Action::Send(send) => Some(send.peer),
            Action::Receive(receive) => Some(receive.peer),
        }
    }

    /// Why the message must not start: a bad count.
    pub fn refusal(&self) -> Result<(), String> {
        match &self.action {
            Action::Send(send) => is_sound(send.src.len() / send.dtype.bytes(), send.count.as_ref()),
            Action::Receive(receive) => {
                is_sound(receive.landing.region.len() / receive.dtype.bytes(), receive.count.as_ref())
            }
            Action::Compute(_) | Action::InPlace(_) | Action::Library(..) | Action::Stage(_) => Ok(()),
        }
    }

    /// Bytes moved; for messages, those on the wire.
    pub fn bytes(&self) -> usize {
        match &self.action {
            Action::Compute(compute) => compute.bytes(),
            Action::Send(send) => send.region().len() / send.dtype.bytes() * send.wire.bytes(),
            Action::Receive(receive) => receive.wire_bytes(),
            Action::InPlace(InPlace { region, .. })
            | Action::Library(region, ..)
            | Action::Stage(Stage { host: region, .. }) => region.len(),
        }
    }
}

/// This rank's part of an all-reduce in place.
#[derive(Debug)]
pub struct InPlace {
    /// The members, in the order in which their slices are reduced, and the instruction's number on each.
    pub members: Vec<(Rank, u32)>,
    /// Our position.
    pub own: usize,
    /// Our slice.
    pub region: Region,
    /// The reduction.
    pub op: kernels::ReduceOp,
    /// Element type.
    pub dtype: kernels::DType,
    /// Factor of the result.
    pub factor: f64,
    /// The members' claims, by parity of the launch count; on the first member alone.
    pub claims: Option<Allocation>,
}

impl InPlace {
    /// The position of a rank.
    pub fn position(&self, rank: Rank) -> Option<usize> {
        self.members.iter().position(|(member, _)| *member == rank)
    }

    /// The claims of a launch, if they are in our memory.
    pub fn claims(&self, instance: u32) -> Option<Region> {
        let half = (instance & 1) as usize * CLAIMS_BYTES;
        self.claims.as_ref().map(|memory| memory.region().sub(half, CLAIMS_BYTES))
    }

    /// All members but us.
    pub fn others(&self) -> impl Iterator<Item = &(Rank, u32)> {
        let others = self.members.iter().enumerate().filter(|(at, _)| *at != self.own);
        others.map(|(_, member)| member)
    }
}

/// Ranks that instructions need, ascending.
pub fn peers_of(instructions: &[Instruction]) -> Vec<Rank> {
    let mut peers: Vec<Rank> = instructions
        .iter()
        .flat_map(|instruction| {
            let members = match &instruction.action {
                Action::InPlace(own) => Some(own.others().map(|(rank, _)| *rank)),
                _ => None,
            };
            instruction.peer().into_iter().chain(members.into_iter().flatten())
        })
        .collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}
