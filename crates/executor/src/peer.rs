//! What any thread may hand to a peer: frames and messages for its connection, posts for its mailbox.

use crate::failure::{Failure, Location, Who};
use hocket_protocol::why::Why;
use hocket_wire::memory::Mapping;
use hocket_wire::mesh::Neighbour;
use hocket_wire::poll::Waker;
use hocket_wire::shm::mailbox::{Outbox, Post, Sleeping};
use hocket_wire::tcp::{Info, Outgoing};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Another rank, as all threads see it.
pub struct Peer {
    /// Its rank and host.
    pub who: Who,
    /// For its connections; the I/O thread sends it.
    pub outgoing: Mutex<Outgoing>,
    /// Connections to it over which it has not said goodbye.
    lanes_open: AtomicUsize,
    /// Present on the same host.
    pub shared: Option<Shared>,
    /// Payload bytes sent over its connections.
    pub sent_bytes: AtomicU64,
    /// How often somebody wanted to know how its connections do: the I/O thread looks.
    pub looks: AtomicUsize,
    /// What it saw when it last looked, by lane.
    pub seen: Mutex<Vec<Option<Info>>>,
}

/// A neighbour's memory and mailbox.
pub struct Shared {
    /// Its arena.
    pub arena: Arc<Mapping>,
    posts: Mutex<Posts>,
    sleeping: Sleeping,
    waker: Waker,
}

struct Posts {
    outbox: Outbox,
    /// Did not fit the ring; in order.
    waiting: VecDeque<Post>,
}

impl Peer {
    /// `local` is our own position among the ranks of the host; `checksums`: frames to it carry them; `lanes`: connections.
    pub fn new(who: Who, neighbour: Option<Neighbour>, local: usize, checksums: bool, lanes: usize) -> Self {
        let shared = neighbour.map(|neighbour| Shared {
            posts: Mutex::new(Posts {
                outbox: Outbox::new(&neighbour.arena, local),
                waiting: VecDeque::new(),
            }),
            sleeping: Sleeping::new(&neighbour.arena),
            arena: neighbour.arena,
            waker: neighbour.waker,
        });
        Self {
            who,
            outgoing: Mutex::new(Outgoing::new(checksums, lanes)),
            lanes_open: AtomicUsize::new(lanes),
            shared,
            sent_bytes: AtomicU64::new(0),
            looks: AtomicUsize::new(0),
            seen: Mutex::new(vec![None; lanes]),
        }
    }

    /// It is at fault: "rank 2 on b0" `what`.
    pub fn failed(&self, why: Why, location: Option<Location>, what: impl fmt::Display) -> Failure {
        Failure { who: self.who.clone(), why, location, what: format!("{} {what}", self.who) }
    }

    /// What the last look saw of its connections, as one.
    pub fn seen(&self) -> Option<Info> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().flatten().copied().reduce(Info::beside)
    }

    /// It said goodbye over one of its connections, once each; whether that was the last.
    pub fn leave_lane(&self) -> bool {
        self.lanes_open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether it said goodbye.
    pub fn has_left(&self) -> bool {
        self.lanes_open.load(Ordering::Acquire) == 0
    }
}

impl Shared {
    /// Posts to the neighbour, in order, and wakes it when it sleeps.
    pub fn post(&self, post: Post) -> io::Result<()> {
        let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        if !posts.waiting.is_empty() || !posts.outbox.put(post) {
            posts.waiting.push_back(post);
        }
        drop(posts);
        if self.sleeping.must_wake() { self.waker.wake() } else { Ok(()) }
    }

    /// Moves what did not fit before; whether some still waits.
    pub fn flush(&self) -> io::Result<bool> {
        let mut posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        if posts.waiting.is_empty() {
            return Ok(false);
        }
        while let Some(&post) = posts.waiting.front() {
            if !posts.outbox.put(post) {
                break;
            }
            posts.waiting.pop_front();
        }
        let waits = !posts.waiting.is_empty();
        drop(posts);
        if self.sleeping.must_wake() {
            self.waker.wake()?;
        }
        Ok(waits)
    }
}
