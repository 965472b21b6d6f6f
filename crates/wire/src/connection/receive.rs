//! The receiving half of a connection: frames in, payloads straight to their destination.
//!
//! Budget: an unconverted payload crosses from the kernel straight into its destination, without a copy between. A
//! payload that is converted or reduced passes through a 64 KiB block that stays in the first two cache levels. Headers
//! of small frames are read many at a time.

use super::Stream;
use crate::drained::Drained;
use crate::link::{Arrivals, Land, Landing, LinkError, Post};
use hocket_ids::Rank;
use hocket_protocol::checksum::{Check, HeaderError, check_header};
use hocket_protocol::frame::{Data, Frame, HEADER_BYTES};
use hocket_protocol::why::Why;
use std::io::{self, IoSliceMut};

const BUFFER_BYTES: usize = 16 * 1024;
const BLOCK_BYTES: usize = 64 * 1024;

const NO_CHECKSUM: &str = "a frame carries no checksum (HOCKET_CHECKSUM must be the same on all ranks)";

enum State {
    /// Bytes of the next header received so far.
    Header {
        bytes: [u8; HEADER_BYTES],
        have: usize,
    },
    Payload {
        data: Data,
        /// None: it is thrown away.
        landing: Option<Landing>,
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
    /// The peer sent a probe.
    asked: bool,
    /// The peer said goodbye.
    left: bool,
    drained: Drained,
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
    /// A receiver at the start of a stream that is opened for `epoch`; `checksums`: a frame without one is refused.
    pub fn new(checksums: bool, epoch: u64) -> Self {
        Self {
            checksums,
            received_bytes: 0,
            asked: false,
            left: false,
            drained: Drained::new(epoch),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            block: vec![0; BLOCK_BYTES].into_boxed_slice(),
            state: State::NEXT,
        }
    }

    /// Receives until the socket is empty (`Ok(false)`) or about `budget_bytes` arrived (`Ok(true)`: call again).
    pub fn receive(
        &mut self,
        stream: &mut Stream,
        sink: &mut dyn Arrivals,
        budget_bytes: usize,
    ) -> Result<bool, LinkError> {
        let mut received = 0;
        self.drained.deliver(sink).map_err(LinkError::Violation)?;
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

    /// Nothing of the epoch in force lands any more, not even the rest of a payload.
    pub fn stop(&mut self) {
        self.drained.stop();
        if let State::Payload { landing, check, done, staged, .. } = &mut self.state {
            // The checksum is not judged: the sender's memory may change under the rest.
            (*landing, *check) = (None, None);
            *done += std::mem::take(staged);
        }
    }

    /// An epoch is in force.
    pub fn enter(&mut self, epoch: u64) {
        self.stop();
        self.drained.enter(epoch);
    }

    /// Whether something waits to be delivered without another byte.
    pub fn has_kept(&self) -> bool {
        self.drained.has_kept()
    }

    /// Bytes received in all.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Whether the peer sent a probe since the last call.
    pub fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// Whether the peer said goodbye.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// One read: the rest of the current payload, if any, and then into the buffer.
    fn fill(&mut self, stream: &mut Stream) -> io::Result<usize> {
        debug_assert_eq!(self.start, self.end);
        let Self { buffer, block, state, .. } = self;
        let target: &mut [u8] = match state {
            State::Payload { data, landing, done, staged, .. } => match landing {
                Some(Landing { region, land: Land::Store }) => &mut region.as_bytes_mut()[*done..],
                Some(Landing { land: Land::Cast { .. } | Land::Reduce { .. }, .. }) | None => {
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

    /// Processes the whole buffer.
    fn consume(&mut self, sink: &mut dyn Arrivals) -> Result<(), LinkError> {
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
                        if self.checksums {
                            check_header(bytes).map_err(|error| match error {
                                HeaderError::Unsealed => LinkError::Violation(NO_CHECKSUM.into()),
                                HeaderError::Damaged(damage) => LinkError::Damaged { frame: None, damage },
                            })?;
                        }
                        let frame = Frame::decode(bytes)?;
                        let check = Check::begin(bytes);
                        self.state = begin(frame, check, sink, &mut self.drained)?;
                        self.asked |= frame == Frame::Ask;
                        self.left |= frame == Frame::Bye;
                    }
                }
                State::Payload { data, landing, done, staged, .. } => {
                    let left = data.payload_bytes as usize - *done;
                    let taken = match landing {
                        Some(Landing { region, land: Land::Store }) => {
                            let taken = left.min(ready.len());
                            region.as_bytes_mut()[*done..*done + taken].copy_from_slice(&ready[..taken]);
                            taken
                        }
                        Some(Landing { land: Land::Cast { .. } | Land::Reduce { .. }, .. }) | None => {
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

    /// Counts `bytes` more of the payload and applies a full block.
    fn advance(&mut self, bytes: usize) {
        let State::Payload { data, landing, check, done, staged } = &mut self.state else { return };
        let Some(landing) = landing else {
            *done += bytes;
            return;
        };
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
        landing.land.apply(&target, block);
        *done += *staged;
        *staged = 0;
    }

    fn finish_payload(&mut self, sink: &mut dyn Arrivals) -> Result<(), LinkError> {
        if let State::Payload { data, landing, check, done, .. } = &self.state
            && *done == data.payload_bytes as usize
        {
            if landing.is_some() {
                verify(*check, Frame::Data(*data))?;
                sink.landed(data);
            }
            self.state = State::NEXT;
        }
        Ok(())
    }
}

fn verify(check: Option<Check>, frame: Frame) -> Result<(), LinkError> {
    check.map_or(Ok(()), Check::finish).map_err(|damage| LinkError::Damaged { frame: Some(frame), damage })
}

fn begin(
    frame: Frame,
    check: Option<Check>,
    sink: &mut dyn Arrivals,
    drained: &mut Drained,
) -> Result<State, LinkError> {
    if frame.payload_bytes() == 0 {
        verify(check, frame)?;
    }
    match frame {
        Frame::Data(data) => {
            if !drained.lands().map_err(LinkError::Violation)? {
                return Ok(State::Payload { data, landing: None, check: None, done: 0, staged: 0 });
            }
            let landing = sink.landing(&data).map_err(LinkError::Violation)?;
            let (wire_bytes, own_bytes) = landing.land.element_bytes();
            if landing.region.len() / own_bytes * wire_bytes != data.payload_bytes as usize {
                return Err(LinkError::Violation("a payload ends in the middle of an element".into()));
            }
            Ok(State::Payload { data, landing: Some(landing), check, done: 0, staged: 0 })
        }
        Frame::ClearToSend { program, instance, op, tag } => {
            let post = Post::Posted { program, instance, op, tag };
            drained.handle_post(post, sink).map_err(LinkError::Violation)?;
            Ok(State::NEXT)
        }
        Frame::Offer { send, tag, bytes } => {
            let post = Post::Offer { send, tag, bytes, place: None };
            drained.handle_post(post, sink).map_err(LinkError::Violation)?;
            Ok(State::NEXT)
        }
        Frame::Accept { send, receive, tag } => {
            drained.handle_post(Post::Accept { send, receive, tag }, sink).map_err(LinkError::Violation)?;
            Ok(State::NEXT)
        }
        Frame::Abort { rank, why, payload_bytes } => {
            Ok(State::Abort { rank, why, text: Vec::new(), check, wanted: payload_bytes as usize })
        }
        Frame::Epoch { epoch } => {
            drained.handle_marker(epoch, sink).map_err(LinkError::Violation)?;
            Ok(State::NEXT)
        }
        Frame::Sum { tag, crc32c } => {
            if drained.lands().map_err(LinkError::Violation)? {
                sink.summed(tag, crc32c).map_err(LinkError::Violation)?;
            }
            Ok(State::NEXT)
        }
        Frame::Pushed { pieces } => {
            if drained.lands().map_err(LinkError::Violation)? {
                sink.pushed(pieces).map_err(LinkError::Violation)?;
            }
            Ok(State::NEXT)
        }
        Frame::Word(word) => {
            sink.heard(word).map_err(LinkError::Violation)?;
            Ok(State::NEXT)
        }
        // The receiver has noted the other two; only this event carries no data.
        Frame::Bye | Frame::Ask | Frame::Alive => Ok(State::NEXT),
    }
}
