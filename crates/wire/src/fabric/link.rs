//! The link to a rank of another host whose payloads cross a fabric, for all threads: a connection for words, and the endpoint that
//! all links of this rank share.

use super::shared::Shared;
use crate::bell::Bell;
use crate::connection::Framed;
use crate::link::{Link, Message, Post, Receive};
use crate::memory::Region;
use hocket_ids::Rank;
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Program, launch and our op of a send; of no program, the peer's number of the receive and ours of the send.
type SendKey = (u32, u32, u32);

/// The half for all threads.
pub struct FabricLink {
    pub framed: Framed,
    pub shared: Arc<Shared>,
    queues: Mutex<Queues>,
}

/// What other threads hand to the I/O thread, and what it has heard for them.
#[derive(Default)]
pub struct Queues {
    pub receives: Vec<Receive>,
    pub messages: Vec<(Message, u64)>,
    /// Tags of sends whose receive is ready.
    pub tags: HashMap<SendKey, u64>,
    /// The job failed: what is queued will never be needed.
    pub aborted: bool,
}

impl FabricLink {
    /// A link over the endpoint `shared`; `checksums`: words carry one, and so does each piece; `bell`: that of
    /// our own I/O thread.
    pub fn new(shared: Arc<Shared>, checksums: bool, bell: Arc<Bell>) -> Self {
        Self { framed: Framed::new(1, 1, checksums, bell), shared, queues: Mutex::default() }
    }

    pub fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link for FabricLink {
    fn register(&self, region: &Region) -> io::Result<()> {
        self.shared.register(region).map_err(io::Error::other)
    }

    fn post(&self, post: Post) -> io::Result<()> {
        self.framed.post(post)
    }

    /// The I/O thread posts its pieces first.
    fn invite(&self, receive: Receive) -> io::Result<()> {
        if receive.bytes == 0 {
            return self.post(receive.announcement(0));
        }
        self.queues().receives.push(receive);
        self.framed.ring()
    }

    fn send(&self, message: Message) -> io::Result<()> {
        let mut queues = self.queues();
        let tag = queues.tags.remove(&(message.program, message.instance, message.op));
        if message.wire_bytes() == 0 {
            drop(queues);
            return self.framed.send(message);
        }
        let tag = tag.ok_or_else(|| io::Error::other("its receive has no place on the fabric"))?;
        queues.messages.push((message, tag));
        drop(queues);
        self.framed.ring()
    }

    fn abort(&self, rank: Rank, why: Why, text: &str) {
        let mut queues = self.queues();
        queues.messages.clear();
        queues.aborted = true;
        drop(queues);
        self.framed.abort(rank, why, text);
    }

    fn say(&self, word: Word) -> io::Result<()> {
        self.framed.say(word)
    }

    fn has_left(&self) -> bool {
        self.framed.has_left()
    }

    fn sent_bytes(&self) -> u64 {
        self.framed.sent_bytes()
    }

    fn cards(&self) -> Option<usize> {
        Some(1)
    }
}
