//! The receiving half of a connection: frames in, payloads straight to where they belong.
//!
//! Budget: a payload that lands as it is crosses from the kernel into its destination, no copy between; one that is
//! converted or reduced passes a 64 KiB block that stays in the first two cache levels. Headers of small frames are
//! read many at a time.

use super::Stream;
use crate::memory::Region;
use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_protocol::checksum::{Check, Damage};
use hocket_protocol::frame::{Data, Frame, FrameError, HEADER_BYTES};
use hocket_protocol::why::Why;
use std::io::{self, IoSliceMut};

const BUFFER_BYTES: usize = 16 * 1024;
const BLOCK_BYTES: usize = 64 * 1024;

const NO_CHECKSUM: &str = "a frame carries no checksum (HOCKET_CHECKSUM must be the same on all ranks)";

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
    fn element_bytes(self) -> (usize, usize) {
        match self {
            Self::Store => (1, 1),
            Self::Cast { dtype, wire } | Self::Reduce { dtype, wire, .. } => (wire.bytes(), dtype.bytes()),
        }
    }
}

/// Where one frame's payload goes.
#[derive(Clone, Debug)]
pub struct Landing {
    /// Just its bytes, in the destination's own type.
    pub region: Region,
    /// How it gets there.
    pub land: Land,
}

/// What a connection tells its owner. Called from the thread that receives, in the order of arrival.
pub trait Sink {
    /// A payload is coming; says where it lands, or why it must not (which ends the connection).
    fn landing(&mut self, data: &Data) -> Result<Landing, String>;
    /// That payload is in place.
    fn landed(&mut self, data: &Data);
    /// The peer posted the receive that matches our send `op`.
    fn clear_to_send(&mut self, program: u32, instance: u32, op: u32) -> Result<(), String>;
    /// The peer has a message of no program.
    fn offered(&mut self, send: u32, tag: u64, bytes: u64) -> Result<(), String>;
    /// The peer's receive takes our send.
    fn accepted(&mut self, send: u32, receive: u32) -> Result<(), String>;
    /// The job fails for the peer: because of which rank, what that did, and in words.
    fn aborted(&mut self, rank: Rank, why: Why, text: &str) -> Result<(), String>;
    /// The peer leaves in order.
    fn left(&mut self);
    /// The peer wants to know whether we are there.
    fn asked(&mut self);
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer's end was closed without a goodbye: its process died.
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
    /// It sent a well-formed frame that makes no sense now.
    #[error("broke the protocol: {0}")]
    Violation(String),
}

enum State {
    /// So many bytes of the next header are there.
    Header {
        bytes: [u8; HEADER_BYTES],
        have: usize,
    },
    Payload {
        data: Data,
        landing: Landing,
        check: Option<Check>,
        done: usize,
        staged: usize,
    },
    Abort {
        rank: Rank,
        why: Why,
        text: Vec<u8>,
        check: Option<Check>,
        wanted: usize,
    },
}

/// Receives frames from one peer.
pub struct Receiver {
    checksums: bool,
    received_bytes: u64,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    block: Box<[u8]>,
    state: State,
}

impl State {
    const NEXT: Self = Self::Header { bytes: [0; HEADER_BYTES], have: 0 };
}

impl Receiver {
    /// Nothing yet; `checksums`: a frame without one is refused.
    pub fn new(checksums: bool) -> Self {
        Self {
            checksums,
            received_bytes: 0,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            block: vec![0; BLOCK_BYTES].into_boxed_slice(),
            state: State::NEXT,
        }
    }

    /// Receives until the socket is empty (`Ok(false)`) or about `budget_bytes` came (`Ok(true)`: call again).
    pub fn receive(
        &mut self,
        stream: &mut Stream,
        sink: &mut impl Sink,
        budget_bytes: usize,
    ) -> Result<bool, LinkError> {
        let mut received = 0;
        loop {
            self.consume(sink)?;
            if received >= budget_bytes {
                return Ok(true);
            }
            match self.fill(stream) {
                Ok(0) => return Err(LinkError::Closed),
                Ok(bytes) => {
                    received += bytes;
                    self.received_bytes += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Bytes that ever came.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// One read: into the rest of the payload, if one is under way, and what follows into the buffer.
    fn fill(&mut self, stream: &mut Stream) -> io::Result<usize> {
        debug_assert_eq!(self.start, self.end);
        let Self { buffer, block, state, .. } = self;
        let target: &mut [u8] = match state {
            State::Payload { data, landing, done, staged, .. } => match landing.land {
                Land::Store => &mut landing.region.as_bytes_mut()[*done..],
                Land::Cast { .. } | Land::Reduce { .. } => {
                    let wanted = (data.payload_bytes as usize - *done).min(BLOCK_BYTES);
                    &mut block[*staged..wanted]
                }
            },
            State::Header { .. } | State::Abort { .. } => &mut [],
        };
        let payload = target.len();
        let bytes = if payload == 0 {
            stream.readv(&mut [IoSliceMut::new(buffer)])?
        } else {
            stream.readv(&mut [IoSliceMut::new(target), IoSliceMut::new(buffer)])?
        };
        let into_payload = bytes.min(payload);
        (self.start, self.end) = (0, bytes - into_payload);
        if into_payload > 0 {
            self.advance(into_payload);
        }
        Ok(bytes)
    }

    /// Works through all of the buffer.
    fn consume(&mut self, sink: &mut impl Sink) -> Result<(), LinkError> {
        loop {
            self.finish_payload(sink)?;
            let ready = &self.buffer[self.start..self.end];
            if ready.is_empty() {
                return Ok(());
            }
            match &mut self.state {
                State::Header { bytes, have } => {
                    let taken = (HEADER_BYTES - *have).min(ready.len());
                    bytes[*have..*have + taken].copy_from_slice(&ready[..taken]);
                    *have += taken;
                    self.start += taken;
                    if *have == HEADER_BYTES {
                        let frame = Frame::decode(bytes)?;
                        let check = Check::begin(bytes);
                        if self.checksums && check.is_none() {
                            return Err(LinkError::Violation(NO_CHECKSUM.into()));
                        }
                        self.state = begin(frame, check, sink)?;
                    }
                }
                State::Payload { data, landing, done, staged, .. } => {
                    let left = data.payload_bytes as usize - *done;
                    let taken = match landing.land {
                        Land::Store => {
                            let taken = left.min(ready.len());
                            landing.region.as_bytes_mut()[*done..*done + taken]
                                .copy_from_slice(&ready[..taken]);
                            taken
                        }
                        Land::Cast { .. } | Land::Reduce { .. } => {
                            let taken = (left.min(BLOCK_BYTES) - *staged).min(ready.len());
                            self.block[*staged..*staged + taken].copy_from_slice(&ready[..taken]);
                            taken
                        }
                    };
                    self.start += taken;
                    self.advance(taken);
                }
                State::Abort { rank, why, text, wanted, check } => {
                    let taken = (*wanted - text.len()).min(ready.len());
                    text.extend_from_slice(&ready[..taken]);
                    self.start += taken;
                    if text.len() == *wanted {
                        if let Some(check) = check {
                            check.add(text);
                        }
                        let (rank, why) = (*rank, *why);
                        verify(*check, Frame::Abort { rank, why, payload_bytes: *wanted as u32 })?;
                        let told = sink.aborted(rank, why, &String::from_utf8_lossy(text));
                        told.map_err(LinkError::Violation)?;
                        self.state = State::NEXT;
                    }
                }
            }
        }
    }

    /// Notes `bytes` more of the payload and applies a block that is full.
    fn advance(&mut self, bytes: usize) {
        let State::Payload { data, landing, check, done, staged } = &mut self.state else { return };
        if matches!(landing.land, Land::Store) {
            if let Some(check) = check {
                check.add(&landing.region.as_bytes()[*done..*done + bytes]);
            }
            *done += bytes;
            return;
        }
        *staged += bytes;
        if *staged < (data.payload_bytes as usize - *done).min(BLOCK_BYTES) {
            return;
        }
        let (wire_bytes, own_bytes) = landing.land.element_bytes();
        let (at, len) = (*done / wire_bytes * own_bytes, *staged / wire_bytes * own_bytes);
        let target = landing.region.sub(at, len);
        let block = &self.block[..*staged];
        if let Some(check) = check {
            check.add(block);
        }
        match landing.land {
            Land::Store => unreachable!("stored payloads are not staged"),
            Land::Cast { dtype, wire } => target.cast_from(dtype, wire, block),
            Land::Reduce { op, dtype, wire } => target.reduce_from(op, dtype, wire, block),
        }
        *done += *staged;
        *staged = 0;
    }

    fn finish_payload(&mut self, sink: &mut impl Sink) -> Result<(), LinkError> {
        if let State::Payload { data, check, done, .. } = &self.state
            && *done == data.payload_bytes as usize
        {
            verify(*check, Frame::Data(*data))?;
            sink.landed(data);
            self.state = State::NEXT;
        }
        Ok(())
    }
}

fn verify(check: Option<Check>, frame: Frame) -> Result<(), LinkError> {
    check.map_or(Ok(()), Check::finish).map_err(|damage| LinkError::Damaged { frame, damage })
}

fn begin(frame: Frame, check: Option<Check>, sink: &mut impl Sink) -> Result<State, LinkError> {
    if frame.payload_bytes() == 0 {
        verify(check, frame)?;
    }
    match frame {
        Frame::Data(data) => {
            let landing = sink.landing(&data).map_err(LinkError::Violation)?;
            let (wire_bytes, own_bytes) = landing.land.element_bytes();
            if landing.region.len() / own_bytes * wire_bytes != data.payload_bytes as usize {
                return Err(LinkError::Violation("a payload ends in the middle of an element".into()));
            }
            Ok(State::Payload { data, landing, check, done: 0, staged: 0 })
        }
        Frame::ClearToSend { program, instance, op } => {
            sink.clear_to_send(program, instance, op).map_err(LinkError::Violation)?;
            Ok(State::NEXT)
        }
        Frame::Offer { send, tag, bytes } => {
            sink.offered(send, tag, bytes).map_err(LinkError::Violation)?;
            Ok(State::NEXT)
        }
        Frame::Accept { send, receive } => {
            sink.accepted(send, receive).map_err(LinkError::Violation)?;
            Ok(State::NEXT)
        }
        Frame::Abort { rank, why, payload_bytes } => {
            Ok(State::Abort { rank, why, text: Vec::new(), check, wanted: payload_bytes as usize })
        }
        Frame::Bye => {
            sink.left();
            Ok(State::NEXT)
        }
        Frame::Ask => {
            sink.asked();
            Ok(State::NEXT)
        }
        // That it came is all that it says.
        Frame::Alive => Ok(State::NEXT),
    }
}
