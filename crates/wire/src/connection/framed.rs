//! The queues of a rank's connections, filled by any thread: control frames, and messages that all lanes share.

use super::{Info, Outgoing};
use crate::bell::Bell;
use crate::link::{Link, Message, Post, Sent};
use hocket_ids::Rank;
use hocket_protocol::frame::{ABORT_BYTES_MAX, Frame};
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections to one rank, shared by all threads: a link by themselves, and the words of other links.
pub struct Framed {
    /// Of the I/O thread, which sends what is queued here.
    bell: Arc<Bell>,
    cards: usize,
    outgoing: Mutex<Outgoing>,
    /// Lanes on which the rank has not said goodbye yet.
    lanes_open: AtomicUsize,
    /// Payload bytes sent.
    sent_bytes: AtomicU64,
    /// Number of requests for statistics; lanes refresh theirs when it grows.
    pub(super) looks: AtomicUsize,
    /// Each lane's latest statistics.
    seen: Mutex<Vec<Option<Info>>>,
}

impl Framed {
    /// Empty queues for this many lanes over this many cards; `checksums`: every frame carries one; `bell`: that of our own I/O
    /// thread.
    pub fn new(lanes: usize, cards: usize, checksums: bool, bell: Arc<Bell>) -> Self {
        Self {
            bell,
            cards,
            outgoing: Mutex::new(Outgoing::new(checksums, lanes, cards)),
            lanes_open: AtomicUsize::new(lanes),
            sent_bytes: AtomicU64::new(0),
            looks: AtomicUsize::new(0),
            seen: Mutex::new(vec![None; lanes]),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a lane's transmitter.
    pub(super) fn outgoing(&self) -> &Mutex<Outgoing> {
        &self.outgoing
    }

    /// Queues a frame without payload; such frames keep their order.
    pub fn control(&self, frame: Frame) -> io::Result<()> {
        self.queue().control(frame, &[]);
        self.bell.ring()
    }

    /// Queues a frame for one lane, from the I/O thread.
    pub fn control_on(&self, lane: usize, frame: Frame) {
        self.queue().control_on(lane, frame, &[]);
    }

    /// Queues a reply to a peer's probe.
    pub fn answer(&self, lane: usize) {
        self.queue().answer(lane);
    }

    /// Rings for the I/O thread.
    pub fn ring(&self) -> io::Result<()> {
        self.bell.ring()
    }

    /// Messages that have not begun will never be needed.
    pub fn drop_messages(&self) {
        self.queue().drop_messages();
    }

    /// Whether nothing is queued that `lane` could send.
    pub fn is_empty(&self, lane: usize) -> bool {
        self.queue().is_empty(lane)
    }

    /// The rank said goodbye on one of its lanes, once each; returns whether that was the last.
    pub fn leave_lane(&self) -> bool {
        self.lanes_open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Counts a message that has left.
    pub fn note_sent(&self, sent: Sent) {
        self.sent_bytes.fetch_add(sent.bytes as u64, Ordering::Relaxed);
    }

    /// Stores a lane's statistics of its connection.
    pub fn note_seen(&self, lane: usize, info: Option<Info>) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)[lane] = info;
    }
}

impl Link for Framed {
    fn post(&self, post: Post) -> io::Result<()> {
        self.control(match post {
            Post::Posted { program, instance, op, tag } => Frame::ClearToSend { program, instance, op, tag },
            Post::Offer { send, tag, bytes, place: None } => Frame::Offer { send, tag, bytes },
            Post::Accept { send, receive, tag } => Frame::Accept { send, receive, tag },
            Post::Ready { .. }
            | Post::Taken { .. }
            | Post::Brought { .. }
            | Post::Given { .. }
            | Post::Offer { place: Some(_), .. } => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "its memory is out of reach"));
            }
        })
    }

    fn send(&self, message: Message) -> io::Result<()> {
        self.queue().message(message);
        self.bell.ring()
    }

    /// The I/O thread sends it on its next turn.
    fn abort(&self, rank: Rank, why: Why, text: &str) {
        let text: String = text.chars().take(ABORT_BYTES_MAX / 4).collect();
        let mut outgoing = self.queue();
        outgoing.drop_messages();
        let frame = Frame::Abort { rank, why, payload_bytes: text.len() as u32 };
        outgoing.control(frame, text.as_bytes());
    }

    fn say(&self, word: Word) -> io::Result<()> {
        self.control(Frame::Word(word))
    }

    fn has_left(&self) -> bool {
        self.lanes_open.load(Ordering::Acquire) == 0
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    fn cards(&self) -> Option<usize> {
        Some(self.cards)
    }

    /// Of all lanes, combined.
    fn info(&self) -> Option<Info> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().flatten().copied().reduce(Info::beside)
    }
}
