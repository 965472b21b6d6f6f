//! The link to a rank of the same host: posts go through a ring in the receiver's memory, and bytes are copied from
//! where they lie. A connection beside it carries what detects a rank that hangs or dies: probes, goodbyes, aborts, and
//! its own end.

use super::mailbox::{Inbox, Letter, Outbox, SLOT_WORDS, encode, encode_epoch};
use crate::bell::Bell;
use crate::connection::{Framed, Lane, Stream, Terms};
use crate::drained::Drained;
use crate::life::Watch;
use crate::link::{Link, LinkError, Message, Port, Post, Sink, Turn};
use crate::memory::{Arena, Mapping, Region};
use crate::poll::{Poller, Readiness};
use hocket_ids::Rank;
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Pause before a full ring is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// The half for all threads.
pub struct ShmLink {
    own: Arc<Mapping>,
    memory: Arc<Mapping>,
    posts: Mutex<Posts>,
    /// The neighbour's.
    bell: Bell,
    framed: Framed,
}

struct Posts {
    outbox: Outbox,
    /// Posts that did not fit the ring, in order. The instructions of the loaded programs bound their number.
    waiting: VecDeque<[u64; SLOT_WORDS]>,
}

impl ShmLink {
    /// A link to a neighbour, given its memory and bell; `position` is our place among the ranks of the host, `own_bell`
    /// that of our own I/O thread.
    pub fn new(
        own: &Arena,
        (memory, bell): (Arc<Mapping>, Bell),
        position: usize,
        own_bell: Arc<Bell>,
    ) -> Self {
        let posts = Posts { outbox: Outbox::new(&memory, position), waiting: VecDeque::new() };
        Self {
            own: Arc::clone(own.mapping()),
            posts: Mutex::new(posts),
            memory,
            bell,
            framed: Framed::new(1, 1, false, own_bell),
        }
    }

    /// Says in the ring that an epoch begins; posts of the one before that did not fit are dropped.
    fn mark(&self, epoch: u64) -> io::Result<()> {
        let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        posts.waiting.clear();
        let words = encode_epoch(epoch);
        if !posts.outbox.put(words) {
            posts.waiting.push_back(words);
        }
        drop(posts);
        self.bell.ring()
    }

    /// Moves posts that did not fit before into the ring; whether some are left.
    fn flush(&self) -> io::Result<bool> {
        let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        if posts.waiting.is_empty() {
            return Ok(false);
        }
        while let Some(&words) = posts.waiting.front() {
            if !posts.outbox.put(words) {
                break;
            }
            posts.waiting.pop_front();
        }
        let waits = !posts.waiting.is_empty();
        drop(posts);
        self.bell.ring()?;
        Ok(waits)
    }
}

impl Link for ShmLink {
    /// The neighbour can only reach memory within our arena.
    fn register(&self, region: &Region) -> io::Result<()> {
        if region.is_of(&self.own) {
            Ok(())
        } else {
            let what = "ranks of one host reach registered memory alone";
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        }
    }

    fn memory(&self) -> Option<&Arc<Mapping>> {
        Some(&self.memory)
    }

    fn post(&self, post: Post) -> io::Result<()> {
        let words = encode(post)
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "its bytes are taken, not pushed"))?;
        let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        if !posts.waiting.is_empty() || !posts.outbox.put(words) {
            posts.waiting.push_back(words);
        }
        drop(posts);
        self.bell.ring()
    }

    fn send(&self, _: Message) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "its bytes are taken, not pushed"))
    }

    fn abort(&self, rank: Rank, why: Why, text: &str) {
        self.framed.abort(rank, why, text);
    }

    fn say(&self, word: Word) -> io::Result<()> {
        self.framed.say(word)
    }

    fn has_left(&self) -> bool {
        self.framed.has_left()
    }
}

/// The half that the I/O thread polls.
pub struct ShmPort {
    link: Arc<ShmLink>,
    lane: Lane,
    incoming: Incoming,
    /// The neighbour's, if it is watched.
    life: Option<Arc<Watch>>,
    /// It has ended.
    dead: bool,
}

/// The mailbox from the neighbour.
struct Incoming {
    inbox: Inbox,
    drained: Drained,
}

/// Parts of the port for the poller.
const CONNECTION: u32 = 0;
const LIFE: u32 = 1;

impl ShmPort {
    /// With the connection to the neighbour, the `position`-th rank of the host, and its life if that is watched. Its
    /// frames carry no checksums, whatever the terms.
    pub fn new(
        link: Arc<ShmLink>,
        stream: Stream,
        position: usize,
        terms: Terms,
        life: Option<Arc<Watch>>,
    ) -> Self {
        let incoming =
            Incoming { inbox: Inbox::new(&link.own, position), drained: Drained::new(terms.epoch) };
        let lane = Lane::new(0, stream, Terms { checksums: false, ..terms }, None);
        Self { link, lane, incoming, life, dead: false }
    }

    fn take_posts(&mut self, sink: &mut dyn Sink) -> bool {
        match self.incoming.take(sink) {
            Ok(busy) => busy,
            Err(what) => {
                self.lane.end(sink, &LinkError::Violation(what));
                true
            }
        }
    }
}

impl Incoming {
    /// Delivers all posts to the sink; whether there were any. `Err`: a malformed post, or one that the sink refuses.
    fn take(&mut self, sink: &mut dyn Sink) -> Result<bool, String> {
        let mut busy = self.drained.has_kept();
        self.drained.deliver(sink)?;
        loop {
            match self.inbox.take() {
                Ok(None) => return Ok(busy),
                Ok(Some(Letter::Post(post))) => self.drained.handle_post(post, sink)?,
                Ok(Some(Letter::Epoch(epoch))) => self.drained.handle_marker(epoch, sink)?,
                Err(_) => return Err("wrote something into its mailbox that is no post".into()),
            }
            busy = true;
        }
    }
}

impl Port for ShmPort {
    fn watch(&self, poller: &Poller, number: u32) -> io::Result<()> {
        poller.add(self.lane.fd(), number, CONNECTION)?;
        self.life.as_ref().map_or(Ok(()), |life| poller.add(life.fd(), number, LIFE))
    }

    fn handle_ready(&mut self, ready: Readiness) {
        match ready.part {
            LIFE => self.dead |= ready.readable,
            _ => self.lane.handle_ready(ready),
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink, now: Duration) -> Turn {
        let posts = self.take_posts(sink);
        let incoming = &mut self.incoming;
        let mut last = |sink: &mut dyn Sink| incoming.take(sink).map(|_| ());
        let moved = self.lane.poll(&self.link.framed, sink, now, posts, &mut last);
        let again = match self.link.flush() {
            Ok(false) => None,
            Ok(true) => Some(FULL_PAUSE),
            Err(error) => {
                self.lane.end(sink, &error.into());
                None
            }
        };
        // Whatever it has said before its end has been received by now, unless there was too much for one turn.
        if self.dead && !moved && !self.lane.has_ended() {
            self.lane.end(sink, &LinkError::Closed);
        }
        Turn { busy: posts | moved, again }
    }

    fn is_idle(&self) -> bool {
        let nothing_to_take = self.lane.has_ended()
            || self.incoming.inbox.is_empty() && !self.incoming.drained.has_kept() && !self.dead;
        nothing_to_take && self.lane.is_idle(&self.link.framed)
    }

    fn pause_max(&self) -> Duration {
        self.lane.pause_max()
    }

    /// The lane below carries nothing of an epoch; posts in the ring that the neighbour has not taken it drops by itself.
    fn stop(&mut self) {
        self.incoming.drained.stop();
    }

    fn enter(&mut self, epoch: u64) -> io::Result<()> {
        self.incoming.drained.enter(epoch);
        self.link.mark(epoch)
    }

    fn close(&mut self, sink: &mut dyn Sink) -> bool {
        let incoming = &mut self.incoming;
        let mut last = |sink: &mut dyn Sink| incoming.take(sink).map(|_| ());
        self.lane.close(&self.link.framed, sink, &mut last)
    }
}
