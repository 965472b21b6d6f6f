//! A link to another rank, whatever carries it: what the executor asks of one, and what one tells the executor.
//!
//! A link has two halves. Any thread posts and sends through [`Link`], which never waits. The I/O thread polls the [`Port`],
//! which moves bytes and tells the [`Sink`] what came.
//!
//! Bytes of a message move in one of two ways. Where this rank can reach the other's registered memory ([`Link::memory`]), the
//! sender posts where its bytes lie, the receiver takes them from there and posts that it has; such a link also offers
//! reductions in place. Elsewhere the receiver posts that its memory is ready, and [`Link::send`] pushes the bytes into it.
//!
//! A transport is a folder of this crate that implements both halves, and a line in `transports`. All transports pass the same
//! tests (`conformance`).

use crate::memory::{Mapping, Region};
use crate::poll::{Poller, Readiness};
use crate::tcp::Info;
use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_protocol::checksum::Damage;
use hocket_protocol::frame::{Data, Frame, FrameError};
use hocket_protocol::why::Why;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The half of a link that any thread of this rank uses. Nothing waits: the port moves what is handed over here.
pub trait Link: Send + Sync {
    /// The rank at the other end.
    fn rank(&self) -> Rank;

    /// Bytes of `region` will be sent, received or reduced in place over the link. An error says why they cannot be reached.
    fn register(&self, region: &Region) -> io::Result<()>;

    /// The other rank's registered memory, where this rank reads and writes it directly.
    fn memory(&self) -> Option<&Arc<Mapping>>;

    /// Tells the other rank something small; posts keep their order. An error says why the other rank is not woken, or
    /// that this link has no such post.
    fn post(&self, post: Post) -> io::Result<()>;

    /// Pushes a message whose receive was posted, the most urgent first; [`Sink::sent`] reports its end. An error as of
    /// [`Self::post`].
    fn send(&self, message: Message) -> io::Result<()>;

    /// Tells the other rank that the job failed: because of `rank`, what that did, and in words. Messages that have not
    /// begun are dropped.
    fn abort(&self, rank: Rank, why: Why, text: &str);

    /// Whether the other rank said goodbye.
    fn has_left(&self) -> bool;

    /// Payload bytes pushed so far.
    fn sent_bytes(&self) -> u64;

    /// What the port saw of the network when it last looked; it looks again soon. Nothing where there is no network.
    fn info(&self) -> Option<Info>;
}

/// The half of a link that the I/O thread owns. Dropping it ends the link without a goodbye.
pub trait Port: Send {
    /// Registers what the port waits for, as that of link `number`.
    fn watch(&self, poller: &Poller, number: u32) -> io::Result<()>;

    /// Something that is watched became ready.
    fn handle_ready(&mut self, ready: Readiness);

    /// Takes what came and sends what waits, a bounded amount of each. `now` is on a clock that does not go back.
    fn poll(&mut self, sink: &mut dyn Sink, now: Duration) -> Turn;

    /// Whether there is nothing to do until something becomes ready, is posted or sent, or the last turn's time has come.
    fn is_idle(&self) -> bool;

    /// The longest pause between two polls by which the other rank's silence is noticed in time.
    fn pause_max(&self) -> Duration;

    /// A step of leaving in order, which does not wait: says goodbye, sends what waits, hears the other rank out. Whether
    /// nothing more can come or go.
    fn close(&mut self, sink: &mut dyn Sink) -> bool;
}

/// What came from the other rank, in the order of arrival. An `Err` says what is wrong with what it did, and ends the link.
pub trait Arrivals {
    /// A payload is coming; where it lands.
    fn landing(&mut self, data: &Data) -> Result<Landing, String>;
    /// That payload is in place.
    fn landed(&mut self, data: &Data);
    /// The other rank posted something.
    fn posted(&mut self, post: Post) -> Result<(), String>;
    /// The job fails for the other rank: because of which rank, what that did, and in words.
    fn aborted(&mut self, rank: Rank, why: Why, text: &str) -> Result<(), String>;
}

/// What a link tells its owner, from the thread that polls.
pub trait Sink: Arrivals {
    /// A message has left: its bytes may be written again.
    fn sent(&mut self, sent: Sent);
    /// The other rank said goodbye.
    fn left(&mut self);
    /// Whether this rank waits for the other now: if so, silence is not borne for ever.
    fn is_awaited(&mut self) -> bool;
    /// A connection of the link ended, other than after a goodbye, to which an owner that leaves itself has no claim; `ends` names both its ends where it leads to another host.
    fn ended(&mut self, ends: Option<&str>, error: &LinkError);
}

/// What a poll did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Something moved: poll again at once.
    pub busy: bool,
    /// Poll again after so long, even when nothing happens.
    pub again: Option<Duration>,
}

/// Something small that one rank tells another about a message between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// The sender's receive that matches the addressee's send `op` is ready: the bytes may be pushed.
    Posted {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's send instruction.
        op: u32,
    },
    /// The bytes of the addressee's receive `op` lie at `offset_bytes` of the sender's memory: they may be taken.
    Ready {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's receive instruction.
        op: u32,
        /// In the sender's arena.
        offset_bytes: u64,
        /// Of the message.
        len_bytes: u64,
    },
    /// The bytes of the addressee's send `op` have been taken: they may be written again.
    Taken {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's send instruction.
        op: u32,
    },
    /// The bytes of the sender's collective in place lie at `offset_bytes` of its memory.
    Brought {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's instruction.
        op: u32,
        /// In the sender's arena.
        offset_bytes: u64,
        /// Of the sender's bucket.
        len_bytes: u64,
        /// Where the members' claims lie in the sender's arena, if it is the first member.
        claims: u64,
    },
    /// The sender has a message of no program.
    Offer {
        /// Its number of the send.
        send: u32,
        /// What the receive must have, too.
        tag: u64,
        /// Of the message.
        bytes: u64,
        /// Where its bytes lie in the sender's arena, for a receiver that takes them.
        place: Option<u64>,
    },
    /// A receive takes that offer: the bytes may be pushed.
    Accept {
        /// The addressee's number of the send.
        send: u32,
        /// The sender's number of the receive.
        receive: u32,
    },
    /// The bytes of that message have been taken.
    Given {
        /// The addressee's number of the send.
        send: u32,
    },
}

/// A message that may be pushed: its receive is posted, its bytes are final.
#[derive(Debug)]
pub struct Message {
    /// Lower goes first.
    pub priority: u32,
    /// Program number.
    pub program: u32,
    /// Launch count.
    pub instance: u32,
    /// Our own send instruction.
    pub op: u32,
    /// The addressee's receive instruction.
    pub peer_op: u32,
    /// The bytes, in their own type.
    pub region: Region,
    /// Element type of the region.
    pub dtype: DType,
    /// Element type on the wire.
    pub wire: DType,
}

impl Message {
    /// Bytes that cross the wire.
    pub fn wire_bytes(&self) -> usize {
        self.region.len() / self.dtype.bytes() * self.wire.bytes()
    }
}

/// A message that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Program number.
    pub program: u32,
    /// Launch count.
    pub instance: u32,
    /// Our send instruction.
    pub op: u32,
    /// Bytes on the wire.
    pub bytes: usize,
}

/// What is done with a payload.
#[derive(Clone, Copy, Debug)]
pub enum Land {
    /// Stored as it is.
    Store,
    /// Converted from `wire` to `dtype`.
    Cast {
        /// Element type of the region.
        dtype: DType,
        /// Element type on the wire.
        wire: DType,
    },
    /// Converted from `wire` to `dtype` and reduced into what is there.
    Reduce {
        /// The reduction.
        op: ReduceOp,
        /// Element type of the region.
        dtype: DType,
        /// Element type on the wire.
        wire: DType,
    },
}

impl Land {
    /// Bytes on the wire and in the region of one element.
    pub fn element_bytes(self) -> (usize, usize) {
        match self {
            Self::Store => (1, 1),
            Self::Cast { dtype, wire } | Self::Reduce { dtype, wire, .. } => (wire.bytes(), dtype.bytes()),
        }
    }

    /// Lands `bytes`, as they crossed the wire, in `region`, which is as long as they need.
    pub fn apply(self, region: &Region, bytes: &[u8]) {
        match self {
            Self::Store => region.as_bytes_mut().copy_from_slice(bytes),
            Self::Cast { dtype, wire } => region.cast_from(dtype, wire, bytes),
            Self::Reduce { op, dtype, wire } => region.reduce_from(op, dtype, wire, bytes),
        }
    }
}

/// Where one payload goes.
#[derive(Clone, Debug)]
pub struct Landing {
    /// Just its bytes, in the destination's own type.
    pub region: Region,
    /// How it gets there.
    pub land: Land,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The other end was closed without a goodbye: its process died.
    #[error("closed its connection")]
    Closed,
    /// The system says so.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// It sent a malformed frame.
    #[error("sent a malformed frame: {0}")]
    Frame(#[from] FrameError),
    /// A frame's checksum does not fit what arrived.
    #[error("sent {frame:?}, which arrived damaged: its CRC32C is {:08x} for {:08x}", .damage.found, .damage.wanted)]
    Damaged {
        /// What the header says; it may be what is damaged.
        frame: Frame,
        /// Both sums.
        damage: Damage,
    },
    /// It did something well-formed that makes no sense now.
    #[error("broke the protocol: {0}")]
    Violation(String),
    /// Nothing came from it for too long while this rank waited for it.
    #[error("has been silent for {:.1} s", .silence.as_secs_f64())]
    Silent {
        /// How long.
        silence: Duration,
    },
}

impl LinkError {
    /// What the other rank did.
    pub fn why(&self) -> Why {
        match self {
            // Of a record that cannot be decrypted.
            Self::Io(cause) if cause.kind() == io::ErrorKind::InvalidData => Why::Damaged,
            Self::Closed | Self::Io(_) => Why::Lost,
            Self::Damaged { .. } => Why::Damaged,
            Self::Frame(_) | Self::Violation(_) => Why::Violation,
            Self::Silent { .. } => Why::Silent,
        }
    }
}
