//! What one rank knows of its own waits, and what it has asked the others of theirs: data; `waits.rs` acts on it.

use crate::failure::Failure;
use crate::lock::lock;
use hocket_ids::Rank;
use hocket_protocol::inquiry::Inquiry;
use hocket_protocol::word::{Launched, Part};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Inquiries of each other rank that are answered in a second, on average; an honest one makes one when a wait is over.
const ANSWERED_PER_S: usize = 16;

/// What a script waits for.
#[derive(Clone, Copy, Debug)]
pub enum Waiting {
    /// Launches of that program.
    Program(u32),
    /// That message.
    Message(u32),
    /// Something that this rank does.
    Rank(Rank),
}

/// The last wait that was over, and which nothing has ended since: why this rank does not go on, unless it does.
#[derive(Clone, Debug)]
pub struct GivenUp {
    /// That the others did not come.
    pub failure: Failure,
    /// The launch that was waited for; `None`: something else.
    pub launch: Option<Launched>,
}

/// The waits of one rank in one epoch, and its questions.
#[derive(Default)]
pub struct Waits {
    open: Mutex<Numbered<Waiting>>,
    asked: Mutex<Numbered<Asked>>,
    answered: Mutex<Option<(Instant, usize)>>,
}

#[derive(Debug)]
struct Numbered<T> {
    next: u32,
    all: BTreeMap<u32, T>,
}

#[derive(Debug)]
struct Asked {
    inquiry: Inquiry,
    until: Instant,
}

impl Waits {
    /// A wait of the script begins; its number.
    pub fn begin(&self, waiting: Waiting) -> u32 {
        lock(&self.open).add(waiting)
    }

    /// That wait ends.
    pub fn end(&self, number: u32) {
        lock(&self.open).all.remove(&number);
    }

    /// All waits of the script.
    pub fn open(&self) -> Vec<Waiting> {
        lock(&self.open).all.values().copied().collect()
    }

    /// A question to the others, answered until then; its number.
    pub fn ask(&self, inquiry: Inquiry, until: Instant) -> u32 {
        lock(&self.asked).add(Asked { inquiry, until })
    }

    /// The answer of a rank, if it does not come too late. An error: no honest rank answers like this.
    pub fn answer(&self, number: u32, from: Rank, part: Part, rank: Option<Rank>) -> Result<(), String> {
        match lock(&self.asked).all.get_mut(&number) {
            Some(asked) => asked.inquiry.handle_waits(from, part, rank),
            None => Ok(()),
        }
    }

    /// Whether all have answered, or nothing is asked any more.
    pub fn is_answered(&self, number: u32) -> bool {
        lock(&self.asked).all.get(&number).is_none_or(|asked| asked.inquiry.is_answered())
    }

    /// The ranks at fault, once all have answered or the time for that is over.
    pub fn concluded(&self, number: u32, now: Instant) -> Option<Vec<Rank>> {
        let mut asked = lock(&self.asked);
        let is_over = |asked: &Asked| asked.inquiry.is_answered() || now >= asked.until;
        asked.all.get(&number).filter(|asked| is_over(asked))?;
        Some(asked.all.remove(&number)?.inquiry.culprits())
    }

    /// Nobody waits for these answers any more.
    pub fn forget(&self, number: u32) {
        lock(&self.asked).all.remove(&number);
    }

    /// Whether one more inquiry is answered now; a peer that asks without end would fill queues.
    pub fn may_answer(&self, others: usize, now: Instant) -> bool {
        let mut answered = lock(&self.answered);
        let (since, count) = answered.get_or_insert((now, 0));
        if now.saturating_duration_since(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= ANSWERED_PER_S * others
    }
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { next: 0, all: BTreeMap::new() }
    }
}

impl<T> Numbered<T> {
    fn add(&mut self, each: T) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.all.insert(number, each);
        number
    }
}
