//! The sending half of a connection: control frames first, then messages by priority, a frame at a time.
//!
//! Budget: header and payload leave in one vectored write from where the payload lies; a payload that is converted
//! passes one block of the frame's size. A more urgent message waits for at most one frame.

use super::Stream;
use crate::clock::now_ns;
use crate::memory::Region;
use crate::shape::Shaper;
use hocket_kernels::{DType, cast};
use hocket_protocol::checksum::seal;
use hocket_protocol::frame::{Data, Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};

/// A message that may flow: its receive is posted, its bytes are final.
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
    fn wire_bytes(&self) -> usize {
        self.region.len() / self.dtype.bytes() * self.wire.bytes()
    }
}

#[derive(Debug)]
struct Queued {
    message: Message,
    sequence: u64,
    sent_bytes: usize,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap's greatest goes first: lowest priority number, then first come.
        (other.message.priority, other.sequence).cmp(&(self.message.priority, self.sequence))
    }
}

/// What waits to be sent to one peer; any thread adds to it. Bounded by the instructions of the loaded programs.
#[derive(Debug, Default)]
pub struct Outgoing {
    checksums: bool,
    control: Vec<u8>,
    /// An answer is in `control` already: however often a peer asks, one is enough.
    answering: bool,
    messages: BinaryHeap<Queued>,
    sequence: u64,
}

impl Outgoing {
    /// Nothing yet; `checksums`: every frame will carry one.
    pub fn new(checksums: bool) -> Self {
        Self { checksums, ..Self::default() }
    }

    /// Queues a control frame and its payload.
    pub fn control(&mut self, frame: Frame, payload: &[u8]) {
        debug_assert_eq!(frame.payload_bytes(), payload.len());
        let mut header = frame.encode();
        if self.checksums {
            seal(&mut header, payload);
        }
        self.control.extend_from_slice(&header);
        self.control.extend_from_slice(payload);
    }

    /// Queues an answer to a peer that wants to know whether we are there.
    pub fn answer(&mut self) {
        if !std::mem::replace(&mut self.answering, true) {
            self.control(Frame::Alive, &[]);
        }
    }

    /// Queues a message.
    pub fn message(&mut self, message: Message) {
        self.sequence += 1;
        self.messages.push(Queued { message, sequence: self.sequence, sent_bytes: 0 });
    }

    /// Drops messages that will never be wanted again: the job failed.
    pub fn drop_messages(&mut self) {
        self.messages.clear();
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.control.is_empty() && self.messages.is_empty()
    }
}

/// A frame that is being written.
struct Current {
    queued: Queued,
    header: [u8; HEADER_BYTES],
    payload_bytes: usize,
    /// Of header and payload together.
    written: usize,
    /// When it may leave, once reserved.
    leaves_ns: Option<u64>,
}

/// The emulated network's word on what goes to one rank.
#[derive(Debug)]
pub struct Pace {
    /// All links.
    pub shaper: Arc<Shaper>,
    /// The rank at the other end.
    pub destination: usize,
}

/// How a turn of sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to send.
    Idle,
    /// The budget is used up: call again.
    More,
    /// The socket is full.
    Full,
    /// The emulated network is busy until then.
    NotBefore(u64),
}

/// Sends frames to one peer.
#[derive(Default)]
pub struct Transmitter {
    pace: Option<Pace>,
    control: Vec<u8>,
    control_written: usize,
    current: Option<Current>,
    converted: Vec<u8>,
}

/// A message has left: its bytes may be written again.
#[derive(Clone, Copy, Debug)]
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

impl Transmitter {
    /// To one peer; `pace` when the network is emulated.
    pub fn new(pace: Option<Pace>) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Writes until nothing is left, the socket is full or about `budget_bytes` went.
    pub fn transmit(
        &mut self,
        stream: &mut Stream,
        outgoing: &Mutex<Outgoing>,
        budget_bytes: usize,
        mut on_sent: impl FnMut(Sent),
    ) -> io::Result<Outcome> {
        let mut written = 0;
        while written < budget_bytes {
            self.refill(outgoing);
            if self.control.is_empty() && self.current.is_none() {
                return Ok(if stream.send_rest()? { Outcome::Idle } else { Outcome::Full });
            }
            let leaves_ns = self.leaves_ns();
            let held = leaves_ns > 0 && leaves_ns > now_ns();
            if held && self.control.is_empty() {
                return Ok(if stream.send_rest()? { Outcome::NotBefore(leaves_ns) } else { Outcome::Full });
            }
            match self.write(stream, held) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Outcome::Full),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.finish_frame(outgoing, &mut on_sent);
        }
        Ok(Outcome::More)
    }

    /// Between frames, takes what is most urgent.
    fn refill(&mut self, outgoing: &Mutex<Outgoing>) {
        // A frame under way must end before control bytes may follow it.
        if self.current.as_ref().is_some_and(|current| current.written > 0) {
            return;
        }
        let mut outgoing = outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.control.is_empty() {
            std::mem::swap(&mut self.control, &mut outgoing.control);
            outgoing.answering = false;
        }
        if self.current.is_none()
            && let Some(queued) = outgoing.messages.pop()
        {
            let checksums = outgoing.checksums;
            drop(outgoing);
            self.start(queued, checksums);
        }
    }

    fn start(&mut self, queued: Queued, checksums: bool) {
        let message = &queued.message;
        // Whole elements of every type: the limit is a multiple of eight.
        let payload_bytes = (message.wire_bytes() - queued.sent_bytes).min(PAYLOAD_BYTES_MAX);
        if message.wire != message.dtype {
            self.converted.resize(payload_bytes, 0);
            let (at, len) = (queued.sent_bytes / message.wire.bytes(), payload_bytes / message.wire.bytes());
            let source = message.region.sub(at * message.dtype.bytes(), len * message.dtype.bytes());
            cast(message.wire, &mut self.converted, message.dtype, source.as_bytes());
        }
        let mut header = Frame::Data(Data {
            program: message.program,
            instance: message.instance,
            op: message.peer_op,
            offset_bytes: queued.sent_bytes as u64,
            payload_bytes: payload_bytes as u32,
        })
        .encode();
        let mut current =
            Current { queued, header: [0; HEADER_BYTES], payload_bytes, written: 0, leaves_ns: None };
        if checksums {
            seal(&mut header, payload(&current, &self.converted));
        }
        current.header = header;
        self.current = Some(current);
    }

    /// When the emulated network lets the frame that comes next leave; 0: at once.
    fn leaves_ns(&mut self) -> u64 {
        let (Some(pace), Some(current)) = (&self.pace, &mut self.current) else { return 0 };
        let bytes = HEADER_BYTES + current.payload_bytes;
        *current.leaves_ns.get_or_insert_with(|| pace.shaper.reserve(pace.destination, bytes, now_ns()))
    }

    /// One vectored write of all that is under way; of control frames alone while the frame is `held`.
    fn write(&mut self, stream: &mut Stream, held: bool) -> io::Result<usize> {
        let control = &self.control[self.control_written..];
        let bytes = match self.current.as_ref().filter(|_| !held) {
            None => stream.writev(&[IoSlice::new(control)])?,
            Some(current) => {
                let payload = payload(current, &self.converted);
                let header = &current.header[current.written.min(HEADER_BYTES)..];
                let payload = &payload[current.written.saturating_sub(HEADER_BYTES)..];
                stream.writev(&[IoSlice::new(control), IoSlice::new(header), IoSlice::new(payload)])?
            }
        };
        let of_control = bytes.min(self.control.len() - self.control_written);
        self.control_written += of_control;
        if self.control_written == self.control.len() {
            self.control.clear();
            self.control_written = 0;
        }
        if let Some(current) = &mut self.current {
            current.written += bytes - of_control;
        }
        Ok(bytes)
    }

    fn finish_frame(&mut self, outgoing: &Mutex<Outgoing>, on_sent: &mut impl FnMut(Sent)) {
        let whole = |current: &mut Current| current.written == HEADER_BYTES + current.payload_bytes;
        let Some(Current { mut queued, payload_bytes, .. }) = self.current.take_if(whole) else { return };
        queued.sent_bytes += payload_bytes;
        let message = &queued.message;
        if queued.sent_bytes == message.wire_bytes() {
            let Message { program, instance, op, .. } = *message;
            on_sent(Sent { program, instance, op, bytes: queued.sent_bytes });
        } else {
            outgoing.lock().unwrap_or_else(PoisonError::into_inner).messages.push(queued);
        }
    }
}

/// The payload of the frame that is being written: where it lies, or as it was converted.
fn payload<'a>(current: &'a Current, converted: &'a [u8]) -> &'a [u8] {
    let message = &current.queued.message;
    if message.wire == message.dtype {
        &message.region.as_bytes()[current.queued.sent_bytes..][..current.payload_bytes]
    } else {
        &converted[..current.payload_bytes]
    }
}
