//! The sending half of a connection: control frames first, then messages by priority, a frame at a time.
//!
//! Budget: header and payload leave in one vectored write from where the payload lies; a converted payload passes
//! through one block of a frame's size. A more urgent message waits for at most one frame. Where two ranks have several
//! connections (lanes), each takes frames when it can send, from the queues of the messages that its card may carry.

use super::Stream;
use crate::clock::now_ns;
use crate::link::{Cards, Message, Sent};
use crate::shaper::Pace;
use hocket_kernels::cast;
use hocket_protocol::checksum::seal;
use hocket_protocol::frame::{Data, Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use hocket_protocol::stripe::{Rate, piece_bytes};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering as Memory};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A message with frames in flight.
#[derive(Debug)]
struct Flight {
    message: Message,
    /// Bytes that have not left; the lane that sends the last of them reports the message sent.
    unsent_bytes: AtomicUsize,
}

#[derive(Debug)]
struct Queued {
    flight: Arc<Flight>,
    sequence: u64,
    /// Bytes in frames that a lane has taken.
    taken_bytes: usize,
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
        // A heap returns its greatest first: the lowest priority number, then the first queued.
        let priority = |queued: &Self| (queued.flight.message.priority, queued.sequence);
        priority(other).cmp(&priority(self))
    }
}

/// The queue of one peer, filled by any thread. The instructions of the loaded programs bound its length.
#[derive(Debug)]
pub struct Outgoing {
    checksums: bool,
    lanes: Vec<Control>,
    /// Each lane's rate in byte/s; 0 while it is unknown.
    rates: Vec<f64>,
    /// Lane `n` is on card `n` modulo this number.
    cards: usize,
    /// A queue for each choice of cards that came up; its lanes share it.
    queues: Vec<Queue>,
    sequence: u64,
}

/// Messages that the same lanes may carry.
#[derive(Debug)]
struct Queue {
    cards: Cards,
    lanes: Vec<usize>,
    messages: BinaryHeap<Queued>,
    /// Bytes of messages that no lane has taken.
    waiting_bytes: usize,
}

/// Frames for one lane, sent before all messages.
#[derive(Debug, Default)]
struct Control {
    bytes: Vec<u8>,
    /// Whether a reply is queued already: one is enough, however often a peer sends probes.
    answering: bool,
}

impl Outgoing {
    /// An empty queue; `checksums`: every frame carries one.
    pub fn new(checksums: bool, lanes: usize, cards: usize) -> Self {
        let control = (0..lanes).map(|_| Control::default()).collect();
        let queues = Vec::new();
        Self { checksums, lanes: control, rates: vec![0.0; lanes], cards, queues, sequence: 0 }
    }

    /// Queues a control frame and its payload; they keep their order.
    pub fn control(&mut self, frame: Frame, payload: &[u8]) {
        self.control_on(0, frame, payload);
    }

    /// Queues a control frame for one lane.
    pub fn control_on(&mut self, lane: usize, frame: Frame, payload: &[u8]) {
        debug_assert_eq!(frame.payload_bytes(), payload.len());
        let mut header = frame.encode();
        if self.checksums {
            seal(&mut header, payload);
        }
        let bytes = &mut self.lanes[lane].bytes;
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(payload);
    }

    /// Queues a reply to a peer's probe.
    pub fn answer(&mut self, lane: usize) {
        if !std::mem::replace(&mut self.lanes[lane].answering, true) {
            self.control_on(lane, Frame::Alive, &[]);
        }
    }

    /// Queues a message. Its cards must be some of the link's.
    pub fn message(&mut self, message: Message) {
        self.sequence += 1;
        let bytes = message.wire_bytes();
        let sequence = self.sequence;
        let queue = self.queue(message.cards);
        queue.waiting_bytes += bytes;
        let flight = Arc::new(Flight { message, unsent_bytes: AtomicUsize::new(bytes) });
        queue.messages.push(Queued { flight, sequence, taken_bytes: 0 });
    }

    fn queue(&mut self, cards: Cards) -> &mut Queue {
        let known = self.queues.iter().position(|queue| queue.cards == cards);
        let at = known.unwrap_or_else(|| {
            let lanes: Vec<usize> =
                (0..self.lanes.len()).filter(|lane| cards.has(lane % self.cards)).collect();
            assert!(!lanes.is_empty(), "{cards:?} of {}: programs are refused that use others", self.cards);
            self.queues.push(Queue { cards, lanes, messages: BinaryHeap::new(), waiting_bytes: 0 });
            self.queues.len() - 1
        });
        &mut self.queues[at]
    }

    /// Drops messages that will never be needed: the job failed.
    pub fn drop_messages(&mut self) {
        self.queues.clear();
    }

    /// Whether nothing is queued that `lane` could send.
    pub fn is_empty(&self, lane: usize) -> bool {
        let idle = |queue: &Queue| queue.messages.is_empty() || !queue.lanes.contains(&lane);
        self.lanes[lane].bytes.is_empty() && self.queues.iter().all(idle)
    }

    /// The part of the most urgent message that `lane` sends next.
    fn take(&mut self, lane: usize) -> Option<Piece> {
        let own = self.queues.iter_mut().filter(|queue| queue.lanes.contains(&lane));
        own.max_by(|one, other| one.messages.peek().cmp(&other.messages.peek()))?.take(lane, &self.rates)
    }
}

impl Queue {
    fn take(&mut self, lane: usize, rates: &[f64]) -> Option<Piece> {
        let mut queued = self.messages.pop()?;
        let message = &queued.flight.message;
        let left = message.wire_bytes() - queued.taken_bytes;
        // A whole number of elements of every type: both limits are multiples of eight.
        let bytes = piece_bytes(rates, &self.lanes, lane, self.waiting_bytes, PAYLOAD_BYTES_MAX).min(left);
        let piece = Piece { flight: Arc::clone(&queued.flight), start: queued.taken_bytes, bytes };
        self.waiting_bytes -= bytes;
        queued.taken_bytes += bytes;
        if bytes < left {
            self.messages.push(queued);
        }
        Some(piece)
    }
}

/// Bytes `start..start + bytes` of a message, as they cross the wire.
struct Piece {
    flight: Arc<Flight>,
    start: usize,
    bytes: usize,
}

/// A frame being written.
struct Current {
    piece: Piece,
    header: [u8; HEADER_BYTES],
    /// Written bytes of header and payload together.
    written: usize,
    /// When the emulated network lets it leave, once reserved.
    leaves_ns: Option<u64>,
    /// Its epoch has ended: nobody is told that the message has left.
    aborted: bool,
}

/// Result of a turn of sending.
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

/// Sends frames to one peer over one lane.
#[derive(Default)]
pub struct Transmitter {
    lane: usize,
    rate: Rate,
    written_bytes: u64,
    pace: Option<Pace>,
    control: Vec<u8>,
    control_written: usize,
    current: Option<Current>,
    converted: Vec<u8>,
}

impl Transmitter {
    /// Sends on lane `lane`; `pace` if the network is emulated.
    pub fn new(lane: usize, pace: Option<Pace>) -> Self {
        Self { lane, pace, ..Self::default() }
    }

    /// The epoch ends: a frame that has not begun is dropped, and the message of one that has is never complete.
    pub fn stop(&mut self) {
        self.current = self.current.take().filter(|current| current.written > 0);
        if let Some(current) = &mut self.current {
            current.aborted = true;
        }
    }

    /// Writes until the queue is empty, the socket is full or about `budget_bytes` were written.
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
                self.rate.handle_idle();
                return Ok(if stream.send_rest()? { Outcome::Idle } else { Outcome::Full });
            }
            let leaves_ns = self.leaves_ns();
            let held = leaves_ns > 0 && leaves_ns > now_ns();
            if held && self.control.is_empty() {
                return Ok(if stream.send_rest()? { Outcome::NotBefore(leaves_ns) } else { Outcome::Full });
            }
            match self.write(stream, held) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    written += bytes;
                    self.written_bytes += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.rate.handle_full(Duration::from_nanos(now_ns()), self.written_bytes);
                    return Ok(Outcome::Full);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.finish_frame(&mut on_sent);
        }
        Ok(Outcome::More)
    }

    /// Between frames, takes the most urgent message.
    fn refill(&mut self, outgoing: &Mutex<Outgoing>) {
        // A frame must be complete before control bytes may follow it.
        if self.current.as_ref().is_some_and(|current| current.written > 0) {
            return;
        }
        let mut outgoing = outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.control.is_empty() {
            let waiting = &mut outgoing.lanes[self.lane];
            std::mem::swap(&mut self.control, &mut waiting.bytes);
            waiting.answering = false;
        }
        if self.current.is_some() {
            return;
        }
        outgoing.rates[self.lane] = self.rate.byte_per_s();
        if let Some(piece) = outgoing.take(self.lane) {
            let checksums = outgoing.checksums;
            drop(outgoing);
            self.start(piece, checksums);
        }
    }

    fn start(&mut self, piece: Piece, checksums: bool) {
        let message = &piece.flight.message;
        if message.wire != message.dtype {
            self.converted.resize(piece.bytes, 0);
            let (at, len) = (piece.start / message.wire.bytes(), piece.bytes / message.wire.bytes());
            let source = message.region.sub(at * message.dtype.bytes(), len * message.dtype.bytes());
            cast(message.wire, &mut self.converted, message.dtype, source.as_bytes());
        }
        let mut header = Frame::Data(Data {
            program: message.program,
            instance: message.instance,
            op: message.peer_op,
            offset_bytes: piece.start as u64,
            payload_bytes: piece.bytes as u32,
        })
        .encode();
        let mut current =
            Current { piece, header: [0; HEADER_BYTES], written: 0, leaves_ns: None, aborted: false };
        if checksums {
            seal(&mut header, payload(&current, &self.converted));
        }
        current.header = header;
        self.current = Some(current);
    }

    /// When the emulated network lets the next frame leave; 0: at once.
    fn leaves_ns(&mut self) -> u64 {
        let (Some(pace), Some(current)) = (&self.pace, &mut self.current) else { return 0 };
        let bytes = HEADER_BYTES + current.piece.bytes;
        *current.leaves_ns.get_or_insert_with(|| pace.reserve(bytes))
    }

    /// One vectored write of frame and control bytes; of control bytes alone while the frame is `held`.
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

    fn finish_frame(&mut self, on_sent: &mut impl FnMut(Sent)) {
        let whole = |current: &mut Current| current.written == HEADER_BYTES + current.piece.bytes;
        let Some(Current { piece, aborted: false, .. }) = self.current.take_if(whole) else { return };
        let before = piece.flight.unsent_bytes.fetch_sub(piece.bytes, Memory::AcqRel);
        if before == piece.bytes {
            let message = &piece.flight.message;
            let Message { program, instance, op, .. } = *message;
            on_sent(Sent { program, instance, op, bytes: message.wire_bytes() });
        }
    }
}

/// The payload of the frame being written: in place, or converted.
fn payload<'a>(current: &'a Current, converted: &'a [u8]) -> &'a [u8] {
    let Piece { flight, start, bytes } = &current.piece;
    if flight.message.wire == flight.message.dtype {
        &flight.message.region.as_bytes()[*start..][..*bytes]
    } else {
        &converted[..*bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Arena;
    use hocket_kernels::DType;

    fn message(arena: &Arc<Arena>, op: u32, priority: u64, bytes: usize, cards: Cards) -> Message {
        let region = arena.allocate(bytes).unwrap().region().clone();
        let (dtype, wire) = (DType::U8, DType::U8);
        Message { priority, program: 0, instance: 0, op, peer_op: op, region, dtype, wire, cards }
    }

    fn taken(outgoing: &mut Outgoing, lane: usize) -> Option<(u32, usize)> {
        outgoing.take(lane).map(|piece| (piece.flight.message.op, piece.bytes))
    }

    /// A program's messages would leave on another card than the planner counts on, or never.
    #[test]
    fn lanes_take_what_their_card_may_carry() {
        let arena = Arena::new(0).unwrap();
        let only = |card| Cards::only(&[card]).unwrap();
        // Four lanes on two cards: 0 and 2 on the first.
        let mut outgoing = Outgoing::new(false, 4, 2);
        outgoing.message(message(&arena, 1, 5, 1000, only(1)));
        assert!(
            outgoing.is_empty(0) && outgoing.is_empty(2) && !outgoing.is_empty(1) && !outgoing.is_empty(3)
        );
        assert_eq!(taken(&mut outgoing, 0), None);
        // More urgent, on any; and less urgent, on the first.
        outgoing.message(message(&arena, 2, 1, 1000, Cards::ALL));
        outgoing.message(message(&arena, 3, 9, 1000, only(0)));
        assert_eq!(taken(&mut outgoing, 3), Some((2, 1000)));
        assert_eq!(taken(&mut outgoing, 2), Some((3, 1000)));
        assert_eq!((taken(&mut outgoing, 2), taken(&mut outgoing, 1)), (None, Some((1, 1000))));
        assert!((0..4).all(|lane| outgoing.is_empty(lane)));
    }

    /// The last bytes of a message would wait for lanes that do not carry it.
    #[test]
    fn lanes_of_a_card_share_what_is_its_own() {
        let arena = Arena::new(0).unwrap();
        let mut outgoing = Outgoing::new(false, 3, 3);
        outgoing.message(message(&arena, 1, 0, 1 << 17, Cards::only(&[0, 2]).unwrap()));
        outgoing.rates = vec![3e8, 9e8, 1e8];
        assert_eq!(taken(&mut outgoing, 1), None);
        assert_eq!(taken(&mut outgoing, 2), Some((1, 1 << 15)));
        assert_eq!(taken(&mut outgoing, 0).map(|(op, _)| op), Some(1));
    }

    #[test]
    fn cards_have_numbers() {
        assert!(Cards::only(&[]).is_none() && Cards::only(&[1, 64]).is_none());
        let some = Cards::only(&[0, 5]).unwrap();
        assert_eq!((0..64).filter(|&card| some.has(card)).collect::<Vec<_>>(), [0, 5]);
        assert_eq!((some.highest(), Cards::ALL.highest()), (Some(5), None));
        assert!(!some.has(64) && !Cards::ALL.has(64));
    }
}
