//! The state that all threads of a rank share: peers, programs, and the queues of ready work.
//!
//! It is of one epoch of members. The next epoch has a new one, so that nothing of an aborted step is left in it.

use crate::completions::Completions;
use crate::early::Go;
use crate::error::Error;
use crate::external::{External, Externals, Staged};
use crate::failure::{Failure, Location, Who};
use crate::halt::Halt;
use crate::loaded::{Loaded, NonFinite};
use crate::lock::lock;
use crate::message_table::MessageTable;
use crate::peer::{Peer, Peers};
use crate::programs::{Programs, first_program};
use crate::waiting::{GivenUp, Waits};
use hocket_ids::Rank;
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use hocket_trace::Recorder;
use hocket_wire::bell::Bell;
use hocket_wire::link::{Link, Message, Post, Receive};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// An instruction ready to be computed, ordered by urgency, then by the longest remaining chain, then by arrival.
///
/// Depth first finishes a chunk while it is in the caches: in an all-reduce of 25 MB on 4 ranks, the order of arrival
/// would walk over all chunks once per peer.
type Task = Reverse<(u64, Reverse<u32>, u64, u32, u32)>;

/// Shared state of one rank in one epoch.
pub struct Core {
    /// The epoch.
    pub epoch: u64,
    /// Whether the job goes on without peers that are lost.
    pub elastic: bool,
    /// Our rank and host.
    pub own: Who,
    /// The other ranks; empty until the mesh is up.
    pub peers: OnceLock<Peers>,
    /// The loaded programs.
    pub programs: Programs,
    /// Messages that belong to no program.
    pub messages: Mutex<MessageTable>,
    /// Programs to start, or to go on with.
    pub launches: Mutex<VecDeque<(u32, Go)>>,
    /// Ready work, most urgent first.
    compute: Mutex<BinaryHeap<Task>>,
    sequence: AtomicU64,
    /// Collectives for a library to execute.
    pub externals: Externals<External>,
    /// Copies from the device.
    pub down: Externals<Staged>,
    /// Copies to the device.
    pub up: Externals<Staged>,
    /// Signals ready work to worker threads; unused when the I/O thread computes everything.
    work: Condvar,
    /// Worker threads besides the I/O thread.
    pub workers: usize,
    /// Wakes the I/O thread.
    pub bell: Arc<Bell>,
    /// Why the job failed.
    failure: OnceLock<Failure>,
    /// The epoch's end before the job's.
    pub halt: Halt,
    /// Where a test has this rank die.
    #[cfg(test)]
    pub death: crate::death::Death,
    /// Signals completed instances and failure.
    changed: (Mutex<()>, Condvar),
    /// Callbacks on the end of launches.
    pub completions: Completions,
    /// Collectives in place whose members meet.
    pub meetings: AtomicUsize,
    /// Who waits for whom.
    pub waits: Waits,
    /// The last wait that was over.
    pub given_up: Mutex<Option<GivenUp>>,
    /// Set once, to stop the threads.
    pub closing: AtomicBool,
    /// Set before that where the process ends: nothing is computed any more, and the I/O thread answers the others.
    pub holds: AtomicBool,
    /// Writes the trace.
    pub recorder: Option<Arc<Recorder>>,
    /// Findings since the caller last fetched them.
    pub non_finite: Mutex<Vec<NonFinite>>,
}

/// What a rank keeps from epoch to epoch.
#[derive(Clone)]
pub struct Lasting {
    /// Worker threads besides the I/O thread.
    pub workers: usize,
    /// Wakes the I/O thread.
    pub bell: Arc<Bell>,
    /// Writes the trace.
    pub recorder: Option<Arc<Recorder>>,
    /// Whether the job goes on without peers that are lost.
    pub elastic: bool,
}

/// The fault of a peer whose announced bytes are not in its arena.
pub const OUTSIDE: &str = "offered memory outside its arena";

impl Core {
    /// With neither peers nor programs.
    pub fn new(own: Who, epoch: u64, lasting: Lasting) -> Self {
        let Lasting { workers, bell, recorder, elastic } = lasting;
        Self {
            epoch,
            elastic,
            own,
            peers: OnceLock::new(),
            programs: Programs::numbered_from(first_program(epoch)),
            messages: Mutex::default(),
            launches: Mutex::default(),
            compute: Mutex::default(),
            sequence: AtomicU64::new(0),
            externals: Externals::default(),
            down: Externals::default(),
            up: Externals::default(),
            work: Condvar::new(),
            workers,
            bell,
            failure: OnceLock::new(),
            halt: Halt::new(workers + 1),
            #[cfg(test)]
            death: crate::death::Death::default(),
            changed: Default::default(),
            completions: Completions::default(),
            meetings: AtomicUsize::new(0),
            waits: Waits::default(),
            given_up: Mutex::default(),
            closing: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            recorder,
            non_finite: Mutex::default(),
        }
    }

    /// What the next epoch's keeps of it.
    pub fn lasting(&self) -> Lasting {
        let (workers, elastic) = (self.workers, self.elastic);
        Lasting { workers, bell: Arc::clone(&self.bell), recorder: self.recorder.clone(), elastic }
    }

    /// The peer of that rank; programs name only ranks of the world other than ours.
    pub fn peer(&self, rank: Rank) -> &Peer {
        let peers = self.peers.get().expect("programs are loaded after the mesh is up");
        peers.get(rank).expect("a program sends nothing to its own rank")
    }

    /// Makes the I/O thread look at its queues.
    pub fn wake(&self) {
        if let Err(error) = self.bell.ring() {
            self.fail_here(None, format_args!("cannot wake the I/O thread: {error}"));
        }
    }

    /// A claimed launch of a program starts soon, or goes on.
    pub fn begin(&self, program: u32, go: Go) {
        lock(&self.launches).push_back((program, go));
        self.wake();
    }

    /// The failure to be told if a peer that the program needs has left.
    pub fn gone(&self, loaded: &Loaded) -> Option<Failure> {
        let mut peers = loaded.peers().map(|rank| self.peer(rank));
        let gone = peers.find(|peer| peer.link.has_left())?;
        let what = format_args!("; `{}` needs it", loaded.label);
        let location = Location { program: loaded.number, launch: loaded.launched(), op: None };
        Some(gone.left(Some(location), what))
    }

    /// Sends a post to a peer.
    pub fn post(&self, peer: &Peer, post: Post) {
        self.tell(peer, |link| link.post(post));
    }

    /// Tells a peer that our receive is ready.
    pub fn invite(&self, peer: &Peer, receive: Receive) {
        self.tell(peer, |link| link.invite(receive));
    }

    /// Says a word to a peer.
    pub fn say(&self, peer: &Peer, word: Word) {
        self.tell(peer, |link| link.say(word));
    }

    /// Says a word to all peers.
    pub fn say_to_all(&self, word: Word) {
        for peer in self.peers.get().into_iter().flat_map(Peers::all).flatten() {
            self.say(peer, word);
        }
    }

    fn tell(&self, peer: &Peer, what: impl FnOnce(&dyn Link) -> io::Result<()>) {
        #[cfg(test)]
        if self.death.has_come() {
            return;
        }
        if let Err(error) = what(&*peer.link) {
            self.fail_here(None, format_args!("cannot tell {}: {error}", peer.who));
        }
    }

    /// Pushes a message to a peer.
    pub fn push(&self, peer: &Peer, message: Message) {
        if let Err(error) = peer.link.send(message) {
            self.fail_here(None, format_args!("cannot send to {}: {error}", peer.who));
        }
    }

    /// Adds `op` to the compute queue.
    pub fn enqueue(&self, loaded: &Arc<Loaded>, op: u32) {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        lock(&self.compute).push(Reverse((
            loaded.urgency(),
            Reverse(loaded.depth(op)),
            sequence,
            loaded.number,
            op,
        )));
        if self.workers > 0 {
            self.work.notify_one();
        } else {
            self.wake();
        }
    }

    /// Whether there is ready work.
    pub fn has_work(&self) -> bool {
        !lock(&self.compute).is_empty()
    }

    /// The most urgent program and instruction, if there is ready work.
    pub fn next_work(&self) -> Option<(u32, u32)> {
        lock(&self.compute).pop().map(|Reverse((.., program, op))| (program, op))
    }

    /// Waits briefly for work: the time-out only bounds how late the end of the job is noticed.
    pub fn wait_for_work(&self) {
        let queue = lock(&self.compute);
        if queue.is_empty() && !self.is_interrupted() {
            let waited = self.work.wait_timeout(queue, Duration::from_millis(100));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Wakes all worker threads.
    pub fn wake_workers(&self) {
        drop(lock(&self.compute));
        self.work.notify_all();
    }

    /// Wakes all waiters.
    pub fn note_change(&self) {
        drop(lock(&self.changed.0));
        self.changed.1.notify_all();
    }

    /// The loaded program of that number.
    pub fn loaded(&self, program: u32) -> Result<Arc<Loaded>, Error> {
        self.programs.get(program).ok_or_else(|| Error::Usage(format!("there is no program {program}")))
    }

    /// The program and instruction that a peer addresses.
    pub fn addressed(&self, program: u32, op: u32) -> Result<(Arc<Loaded>, usize), String> {
        let loaded = self.programs.get(program).ok_or_else(|| format!("there is no program {program}"))?;
        let op = op as usize;
        if op < loaded.instructions().len() {
            Ok((loaded, op))
        } else {
            Err(format!("program {program} has no op {op}"))
        }
    }

    /// Waits for a change of any program, at most `timeout`.
    pub fn wait_for_change(&self, timeout: Duration, still: impl FnOnce() -> bool) {
        self.wait_while(timeout, || still() && !self.has_stopped());
    }

    /// Waits for any change while `still`, at most `timeout`.
    pub fn wait_while(&self, timeout: Duration, still: impl FnOnce() -> bool) {
        let guard = lock(&self.changed.0);
        if still() {
            let waited = self.changed.1.wait_timeout(guard, timeout);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Fails the job for the first reason that comes, and tells all peers. Where the job goes on without a peer at
    /// fault, ends the epoch.
    pub fn fail(&self, failure: Failure) {
        if self.elastic && failure.who.rank != self.own.rank {
            return self.note_loss(failure);
        }
        if self.failure.set(failure.clone()).is_err() {
            return;
        }
        self.tell_all(&failure);
        self.note_change();
        // Not `wake`, which would come back here if it fails; the I/O thread looks by itself before long.
        drop(self.bell.waker().wake());
    }

    /// Tells all peers why the job fails.
    pub fn tell_all(&self, failure: &Failure) {
        let rank = failure.who.rank;
        for peer in self.peers.get().into_iter().flat_map(Peers::all).flatten() {
            if let Some(code) = failure.exit_code {
                // As below.
                drop(peer.link.say(Word::Exit { rank, code }));
            }
            peer.link.abort(rank, failure.why, &failure.what);
        }
    }

    /// An operation of this rank failed: "rank 0 on a0: " `what`.
    pub fn fail_here(&self, location: Option<Location>, what: impl fmt::Display) {
        let what = format!("{}: {what}", self.own);
        self.fail(Failure { who: self.own.clone(), why: Why::Failed, exit_code: None, location, what });
    }

    /// Whether nothing more starts: the job failed, or the epoch was interrupted.
    pub fn has_stopped(&self) -> bool {
        self.failure.get().is_some() || self.is_interrupted() || self.holds.load(Ordering::Acquire)
    }

    /// The failure, if the job failed; otherwise the interruption, if the epoch was interrupted.
    pub fn failure(&self) -> Option<Error> {
        self.failure.get().cloned().map(Error::Peer).or_else(|| self.interruption())
    }

    /// The error for a launch or a message that needs a peer that has left.
    pub fn refused(&self, gone: Failure) -> Error {
        if !self.elastic {
            return gone.into();
        }
        self.fail(gone.clone());
        self.failure().unwrap_or_else(|| gone.into())
    }
}
