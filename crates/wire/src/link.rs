//! A link to another rank over any transport: the operations that the executor calls, and the events that a link
//! reports.
//!
//! A link has two halves. Any thread posts and sends through [`Link`], which never blocks. The I/O thread polls the
//! [`Port`], which moves bytes and reports arrivals to the [`Sink`].
//!
//! A message's bytes move in one of two ways. Where this rank can reach the other's registered memory
//! ([`Link::memory`]), the sender posts where its bytes lie; the receiver copies them from there and posts that it has.
//! Such a link also offers reductions in place. Elsewhere the receiver posts that its memory is ready, and
//! [`Link::send`] pushes the bytes into it.
//!
//! A transport is a folder of this crate that implements both halves, and a line in `transports`. All transports pass
//! the same tests (`conformance`).

use crate::connection::Info;
use crate::memory::{Mapping, Region};
use crate::poll::{Poller, Readiness};
use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_protocol::checksum::Damage;
use hocket_protocol::frame::{Data, Frame, FrameError, NO_PROGRAM};
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use std::io;
use std::sync::Arc;
use std::time::Duration;

const NO_FABRIC: &str = "spoke of a fabric (HOCKET_WIRE must be the same on all ranks)";

/// The half of a link that any thread of this rank uses. Nothing blocks: the port moves what is queued here.
pub trait Link: Send + Sync {
    /// Prepares `region` for sending, receiving or reducing in place over the link. An error gives the reason why it
    /// cannot be reached.
    fn register(&self, _region: &Region) -> io::Result<()> {
        Ok(())
    }

    /// The other rank's registered memory, where this rank reads and writes it directly.
    fn memory(&self) -> Option<&Arc<Mapping>> {
        None
    }

    /// Posts a small notice to the other rank; posts keep their order. Fails if the other rank cannot be woken, or if
    /// this link has no such post.
    fn post(&self, post: Post) -> io::Result<()>;

    /// Tells the other rank that a receive is ready, where bytes are pushed. Fails as [`Self::post`] does.
    fn invite(&self, receive: Receive) -> io::Result<()> {
        self.post(receive.announcement(0))
    }

    /// Pushes a message whose receive was posted, the most urgent first; [`Sink::sent`] reports its end. Fails as
    /// [`Self::post`] does.
    fn send(&self, message: Message) -> io::Result<()>;

    /// Tells the other rank that the job failed: the rank at fault, the reason as data, and a text. Messages that have
    /// not begun are dropped.
    fn abort(&self, rank: Rank, why: Why, text: &str);

    /// Says a word to the other rank, in order with aborts and the goodbye. Fails as [`Self::post`] does.
    fn say(&self, word: Word) -> io::Result<()>;

    /// Whether the other rank said goodbye.
    fn has_left(&self) -> bool;

    /// Payload bytes pushed so far.
    fn sent_bytes(&self) -> u64 {
        0
    }

    /// Cards that its messages may choose among; `None` where they cross none.
    fn cards(&self) -> Option<usize> {
        None
    }

    /// The port's latest statistics of the network; calling this makes it refresh them soon. `None` where there is no
    /// network.
    fn info(&self) -> Option<Info> {
        None
    }
}

/// The half of a link that the I/O thread owns. Dropping it ends the link without a goodbye.
pub trait Port: Send {
    /// Registers the port's descriptors with the poller, as those of link `number`.
    fn watch(&self, poller: &Poller, number: u32) -> io::Result<()>;

    /// A registered descriptor became ready.
    fn handle_ready(&mut self, ready: Readiness);

    /// Receives and sends a bounded amount. `now` is on a clock that does not go back.
    fn poll(&mut self, sink: &mut dyn Sink, now: Duration) -> Turn;

    /// Whether there is nothing to do until a descriptor becomes ready, something is posted or sent, or the time from
    /// the last turn comes.
    fn is_idle(&self) -> bool;

    /// The longest pause between two polls that still notices the other rank's silence in time.
    fn pause_max(&self) -> Duration;

    /// The epoch in force ends: nothing of it lands any more, and nothing of it leaves but the rest of frames that have
    /// begun. Goodbyes, aborts and signs of life still come and go.
    fn stop(&mut self);

    /// A later epoch begins: says so wherever the other rank receives, in order with everything else. What that rank has
    /// posted of it already comes with the next poll. No other thread posts or sends meanwhile.
    fn enter(&mut self, epoch: u64) -> io::Result<()>;

    /// One non-blocking step of an orderly shutdown: says goodbye, sends what is queued, and receives until the other
    /// rank's goodbye. Returns whether nothing more can come or go.
    fn close(&mut self, sink: &mut dyn Sink) -> bool;
}

/// Events from the other rank, in the order of arrival. An `Err` describes what is wrong with the event, and ends the
/// link.
pub trait Arrivals {
    /// A payload is about to arrive; returns where it lands.
    fn landing(&mut self, data: &Data) -> Result<Landing, String>;
    /// The payload is in place.
    fn landed(&mut self, data: &Data);
    /// The other rank posted a notice.
    fn posted(&mut self, post: Post) -> Result<(), String>;
    /// The other rank reports that the job failed: the rank at fault, the reason as data, and a text.
    fn aborted(&mut self, rank: Rank, why: Why, text: &str) -> Result<(), String>;
    /// The other rank says a word.
    fn heard(&mut self, _word: Word) -> Result<(), String> {
        Ok(())
    }
    /// The other rank has begun an epoch of members: nothing more of another one comes of it.
    fn began(&mut self, _epoch: u64) {}
    /// The other rank has computed the sum of a piece that it sends over a fabric.
    fn summed(&mut self, _tag: u64, _crc32c: u32) -> Result<(), String> {
        Err(NO_FABRIC.into())
    }
    /// So many pieces have left it over a fabric in this epoch, and no more will.
    fn pushed(&mut self, _pieces: u64) -> Result<(), String> {
        Err(NO_FABRIC.into())
    }
}

/// Events that a link reports to its owner, from the polling thread.
pub trait Sink: Arrivals {
    /// A message has left: its bytes may be overwritten.
    fn sent(&mut self, sent: Sent);
    /// The other rank said goodbye.
    fn left(&mut self);
    /// Whether this rank is waiting for the other: only then does silence count against it.
    fn is_awaited(&mut self) -> bool;
    /// A connection of the link ended without a goodbye. An owner that is itself leaving may ignore it. `ends` names
    /// both ends if it leads to another host.
    fn ended(&mut self, ends: Option<&str>, error: &LinkError);
}

/// Result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Something moved: poll again at once.
    pub busy: bool,
    /// Poll again after this time, even if nothing happens.
    pub again: Option<Duration>,
}

/// A small notice from one rank to another about a message between them.
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
        /// Tag of the message's first piece on a fabric, or 0.
        tag: u64,
    },
    /// The bytes for the addressee's receive `op` lie at `offset_bytes` of the sender's memory: they may be copied.
    Ready {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's receive instruction.
        op: u32,
        /// Offset in the sender's arena.
        offset_bytes: u64,
        /// Length of the message.
        len_bytes: u64,
    },
    /// The bytes of the addressee's send `op` have been copied: they may be overwritten.
    Taken {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's send instruction.
        op: u32,
    },
    /// The sender's bytes for a collective in place lie at `offset_bytes` of its memory.
    Brought {
        /// Program number.
        program: u32,
        /// Launch count.
        instance: u32,
        /// The addressee's instruction.
        op: u32,
        /// Offset in the sender's arena.
        offset_bytes: u64,
        /// Length of the sender's bucket.
        len_bytes: u64,
        /// Offset of the members' claims in the sender's arena, if the sender is the first member.
        claims: u64,
    },
    /// The sender offers a message that belongs to no program.
    Offer {
        /// The sender's number of the send.
        send: u32,
        /// Must equal the receive's tag.
        tag: u64,
        /// Length of the message.
        bytes: u64,
        /// Offset of its bytes in the sender's arena, for a receiver that copies them.
        place: Option<u64>,
    },
    /// A receive accepts that offer: the bytes may be pushed.
    Accept {
        /// The addressee's number of the send.
        send: u32,
        /// The sender's number of the receive.
        receive: u32,
        /// Tag of the message's first piece on a fabric, or 0.
        tag: u64,
    },
    /// The bytes of that message have been copied.
    Given {
        /// The addressee's number of the send.
        send: u32,
    },
}

/// A receive that is ready: its memory may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// Program number, or `NO_PROGRAM`.
    pub program: u32,
    /// Launch count; of no program: our number of the receive.
    pub instance: u32,
    /// Our own receive instruction.
    pub op: u32,
    /// The addressee's send instruction, or its number of the send.
    pub peer_op: u32,
    /// Length on the wire.
    pub bytes: u64,
}

impl Receive {
    /// What the other rank is told; `tag`: of the first piece on a fabric, or 0.
    pub fn announcement(&self, tag: u64) -> Post {
        let Self { program, instance, peer_op, .. } = *self;
        match program {
            NO_PROGRAM => Post::Accept { send: peer_op, receive: instance, tag },
            program => Post::Posted { program, instance, op: peer_op, tag },
        }
    }
}

/// A message that may be pushed: its receive is posted and its bytes are final.
#[derive(Debug)]
pub struct Message {
    /// Lower values go first.
    pub priority: u64,
    /// Program number.
    pub program: u32,
    /// Launch count.
    pub instance: u32,
    /// Our own send instruction.
    pub op: u32,
    /// The addressee's receive instruction.
    pub peer_op: u32,
    /// The bytes, in the element type of the region.
    pub region: Region,
    /// Element type of the region.
    pub dtype: DType,
    /// Element type on the wire.
    pub wire: DType,
    /// The cards that may carry it.
    pub cards: Cards,
}

/// Cards between two hosts that have several, by number: card `n` of one meets card `n` of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cards(u64);

impl Cards {
    /// Whichever can send.
    pub const ALL: Self = Self(u64::MAX);

    /// These alone. `None` if there is none, or one that is above the limit of 64.
    pub fn only(numbers: &[u32]) -> Option<Self> {
        let bit = |number: &u32| 1_u64.checked_shl(*number);
        let bits = numbers.iter().map(bit).try_fold(0, |bits, bit| Some(bits | bit?))?;
        (bits != 0).then_some(Self(bits))
    }

    /// Whether that card is one of them.
    pub fn has(self, card: usize) -> bool {
        card < 64 && self.0 >> card & 1 == 1
    }

    /// The highest number, if not all are meant.
    pub fn highest(self) -> Option<u32> {
        (self != Self::ALL).then(|| self.0.ilog2())
    }
}

impl Message {
    /// Length on the wire.
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

/// How a payload is stored.
#[derive(Clone, Copy, Debug)]
pub enum Land {
    /// Stored unchanged.
    Store,
    /// Converted from `wire` to `dtype`.
    Cast {
        /// Element type of the region.
        dtype: DType,
        /// Element type on the wire.
        wire: DType,
    },
    /// Converted from `wire` to `dtype` and reduced into the destination.
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
    /// Size of one element on the wire and in the region, in bytes.
    pub fn element_bytes(self) -> (usize, usize) {
        match self {
            Self::Store => (1, 1),
            Self::Cast { dtype, wire } | Self::Reduce { dtype, wire, .. } => (wire.bytes(), dtype.bytes()),
        }
    }

    /// Stores `bytes`, as they crossed the wire, in `region`, whose length fits.
    pub fn apply(self, region: &Region, bytes: &[u8]) {
        match self {
            Self::Store => region.as_bytes_mut().copy_from_slice(bytes),
            Self::Cast { dtype, wire } => region.cast_from(dtype, wire, bytes),
            Self::Reduce { op, dtype, wire } => region.reduce_from(op, dtype, wire, bytes),
        }
    }
}

/// Destination of one payload.
#[derive(Clone, Debug)]
pub struct Landing {
    /// Its bytes, in the destination's own type.
    pub region: Region,
    /// How they are stored.
    pub land: Land,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The other end was closed without a goodbye: its process died.
    #[error("closed its connection")]
    Closed,
    /// The system's error.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// It sent a malformed frame.
    #[error("sent a malformed frame: {0}")]
    Frame(#[from] FrameError),
    /// A frame's checksum does not fit what arrived.
    #[error("sent {}, which arrived damaged: its CRC32C is {:08x} for {:08x}", named(.frame.as_ref()), .damage.found, .damage.wanted)]
    Damaged {
        /// The frame, if its header is sound.
        frame: Option<Frame>,
        /// Expected and computed checksum.
        damage: Damage,
    },
    /// A well-formed frame that makes no sense at this point.
    #[error("broke the protocol: {0}")]
    Violation(String),
    /// The fabric between the ranks failed, while the connection beside it may live.
    #[error("cannot be reached over the fabric {provider}: {what}")]
    Fabric {
        /// libfabric's name of the provider.
        provider: String,
        /// What failed.
        what: String,
    },
    /// No byte came for too long while this rank waited.
    #[error("has been silent for {:.1} s", .silence.as_secs_f64())]
    Silent {
        /// The length of the silence.
        silence: Duration,
    },
    /// The peer's host acknowledged nothing for too long while this rank waited.
    #[error("cannot be reached: its host has acknowledged nothing for {:.1} s", .silence.as_secs_f64())]
    Unreachable {
        /// The time without an acknowledgement.
        silence: Duration,
    },
}

fn named(frame: Option<&Frame>) -> String {
    frame.map_or_else(|| "a header".into(), |frame| format!("{frame:?}"))
}

impl LinkError {
    /// The other rank's fault, as data.
    pub fn why(&self) -> Why {
        match self {
            // Also the error for a TLS record that cannot be decrypted.
            Self::Io(cause) if cause.kind() == io::ErrorKind::InvalidData => Why::Damaged,
            Self::Closed | Self::Io(_) | Self::Fabric { .. } => Why::Lost,
            Self::Damaged { .. } => Why::Damaged,
            Self::Frame(_) | Self::Violation(_) => Why::Violation,
            Self::Silent { .. } | Self::Unreachable { .. } => Why::Silent,
        }
    }
}
