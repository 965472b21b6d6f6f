//! The state that all threads of a rank share, and how an instruction's completion releases the next.
//!
//! Any thread may complete an instruction. Work that it releases goes to the compute queue, messages to their peer.

use crate::arrival::announce;
use crate::compile::{Action, Instruction};
use crate::compute::Compute;
use crate::external::{External, Externals};
use crate::failure::{Failure, Who};
use crate::loaded::{Loaded, NonFinite};
use crate::messages::Table;
use crate::peer::Peer;
use crate::programs::Programs;
use hocket_ids::Rank;
use hocket_protocol::frame::Frame;
use hocket_protocol::why::Why;
use hocket_trace::{Kind, Record, Recorder};
use hocket_wire::clock::now_ns;
use hocket_wire::memory::Region;
use hocket_wire::poll::Waker;
use hocket_wire::shm::mailbox::{Post, Sleeping};
use hocket_wire::shm::take::take;
use hocket_wire::tcp::{Land, Landing, Message};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Locks; a panic elsewhere was reported and must not hide behind a second one.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An instruction that is ready to be computed: priority, then the end of the longest chain first, then first come.
///
/// Deep first finishes a chunk while it is in the caches: of an all-reduce of 25 MB on 4 ranks, first come first served would
/// walk over all chunks once per peer.
type Task = Reverse<(u32, Reverse<u32>, u64, u32, u32)>;

/// Shared state of one rank.
pub struct Core {
    /// Our rank and host.
    pub own: Who,
    /// By rank; `None` at our own place. Empty until the mesh is up.
    pub peers: OnceLock<Vec<Option<Peer>>>,
    /// What is loaded.
    pub programs: Programs,
    /// Messages of no program.
    pub messages: Mutex<Table>,
    /// Programs to start.
    pub launches: Mutex<VecDeque<u32>>,
    /// Ready work, most urgent first.
    compute: Mutex<BinaryHeap<Task>>,
    sequence: AtomicU64,
    /// Collectives that wait for a library.
    pub externals: Externals,
    /// Tells worker threads of work; unused when the I/O thread does it all.
    work: Condvar,
    /// Worker threads besides the I/O thread.
    pub workers: usize,
    /// Our own flag and waker.
    pub sleeping: Sleeping,
    /// Wakes the I/O thread.
    pub waker: Waker,
    /// Why the job failed.
    pub(crate) failure: OnceLock<Failure>,
    /// Signals completed instances and failure.
    changed: (Mutex<()>, Condvar),
    /// Collectives in place whose members meet.
    pub meetings: AtomicUsize,
    /// Set once, to stop the threads.
    pub closing: AtomicBool,
    /// Writes the trace.
    pub recorder: Option<Recorder>,
    /// Found since the caller last asked.
    pub non_finite: Mutex<Vec<NonFinite>>,
}

/// What a peer did whose bytes are not in its arena.
pub const OUTSIDE: &str = "offered memory outside its arena";

/// Non-finite findings kept for the caller; more are the same news.
const NON_FINITE_MAX: usize = 1024;

impl Core {
    /// Without peers or programs.
    pub fn new(
        own: Who,
        workers: usize,
        sleeping: Sleeping,
        waker: Waker,
        recorder: Option<Recorder>,
    ) -> Self {
        Self {
            own,
            peers: OnceLock::new(),
            programs: Programs::default(),
            messages: Mutex::default(),
            launches: Mutex::default(),
            compute: Mutex::default(),
            sequence: AtomicU64::new(0),
            externals: Externals::default(),
            work: Condvar::new(),
            workers,
            sleeping,
            waker,
            failure: OnceLock::new(),
            changed: Default::default(),
            meetings: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            recorder,
            non_finite: Mutex::default(),
        }
    }

    /// Adds a program under `chosen` or the next number, and takes in what peers announced of it already.
    pub fn add(&self, chosen: Option<u32>, make: impl FnOnce(u32) -> Loaded) -> Result<u32, String> {
        let (number, early) = self.programs.add(chosen, make)?;
        for announced in early {
            if let Err(what) = announce(self, announced) {
                let what = format!("broke the protocol: {what}");
                self.fail(self.peer(announced.from).failed(Why::Violation, None, what));
            }
        }
        Ok(number)
    }

    /// The peer of that rank; programs name only ranks of the world other than our own.
    pub fn peer(&self, rank: Rank) -> &Peer {
        let peers = self.peers.get().expect("programs are loaded after the mesh is up");
        peers[rank.index()].as_ref().expect("a program sends nothing to its own rank")
    }

    /// Lets the I/O thread look at its queues.
    pub fn wake(&self) {
        if self.sleeping.must_wake()
            && let Err(error) = self.waker.wake()
        {
            self.fail_here(None, format_args!("cannot wake the I/O thread: {error}"));
        }
    }

    /// Starts a claimed launch.
    pub fn start(&self, loaded: &Arc<Loaded>) {
        let roots = loaded.start();
        if loaded.instructions.is_empty() {
            self.finish_instance(loaded, loaded.instance());
        }
        let now_ns = self.traced_now_ns();
        for op in roots {
            self.release(loaded, op, now_ns);
        }
    }

    /// The time, for records; no clock is read when there are none.
    fn traced_now_ns(&self) -> u64 {
        if self.recorder.is_some() { now_ns() } else { 0 }
    }

    /// The dependencies of `op` are met: it may go.
    fn release(&self, loaded: &Arc<Loaded>, op: u32, now_ns: u64) {
        let instance = loaded.instance();
        if self.recorder.is_some() {
            loaded.note_ready(op, now_ns);
        }
        let instruction = &loaded.instructions[op as usize];
        if let Err(what) = instruction.refusal() {
            return self.fail_op(loaded, op, what);
        }
        match &instruction.action {
            Action::Compute(_) => self.enqueue(loaded, op),
            Action::InPlace(own) => self.bring(loaded, op, own),
            Action::Library(slice, dst) => self.externals.push(External {
                program: loaded.number,
                op,
                slice: slice.clone(),
                dst: dst.clone(),
            }),
            Action::Send(send) => {
                let peer = self.peer(send.peer);
                if let Some(shared) = &peer.shared {
                    let posted = shared.post(Post::Ready {
                        program: loaded.number,
                        instance,
                        op: send.peer_op,
                        offset_bytes: send.src.arena_offset(),
                        len_bytes: send.src.len() as u64,
                    });
                    if let Err(error) = posted {
                        self.fail_here(None, format_args!("cannot wake {}: {error}", peer.who));
                    }
                } else if loaded.release(op, instance) {
                    self.send(loaded, op, instance);
                }
            }
            Action::Receive(receive) => {
                let peer = self.peer(receive.peer);
                if peer.shared.is_some() {
                    if loaded.release(op, instance) {
                        self.enqueue(loaded, op);
                    }
                } else {
                    loaded.post(op, instance);
                    let frame = Frame::ClearToSend { program: loaded.number, instance, op: receive.peer_op };
                    lock(&peer.outgoing).control(frame, &[]);
                    self.wake();
                }
            }
        }
    }

    /// Both sides of send `op` are ready.
    pub fn send(&self, loaded: &Arc<Loaded>, op: u32, instance: u32) {
        let Action::Send(send) = &loaded.instructions[op as usize].action else {
            unreachable!("only sends pass this gate");
        };
        if self.recorder.is_some() {
            loaded.note_start(op, now_ns());
        }
        lock(&self.peer(send.peer).outgoing).message(Message {
            priority: loaded.priority,
            program: loaded.number,
            instance,
            op,
            peer_op: send.peer_op,
            region: send.region(),
            dtype: send.dtype,
            wire: send.wire,
        });
        self.wake();
    }

    /// Puts `op` into the compute queue.
    pub fn enqueue(&self, loaded: &Arc<Loaded>, op: u32) {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        lock(&self.compute).push(Reverse((
            loaded.priority,
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

    /// Whether work waits.
    pub fn has_work(&self) -> bool {
        !lock(&self.compute).is_empty()
    }

    /// Runs the most urgent instruction, if one waits.
    pub fn work_once(&self) -> bool {
        let task = lock(&self.compute).pop();
        let Some(Reverse((.., program, op))) = task else { return false };
        if let Some(loaded) = self.programs.get(program) {
            self.run(&loaded, op);
        }
        true
    }

    /// Runs work until the rank closes: the life of a worker thread.
    pub fn work_until_closed(&self) {
        while !self.closing.load(Ordering::Acquire) {
            if !self.work_once() {
                let queue = lock(&self.compute);
                if queue.is_empty() {
                    // The time-out only bounds how late the end of the job is noticed.
                    let waited = self.work.wait_timeout(queue, Duration::from_millis(100));
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }

    fn run(&self, loaded: &Arc<Loaded>, op: u32) {
        if self.recorder.is_some() {
            loaded.note_start(op, now_ns());
        }
        match &loaded.instructions[op as usize].action {
            Action::Compute(compute) => {
                if let Err(what) = self.compute(loaded, compute) {
                    return self.fail_op(loaded, op, what);
                }
            }
            Action::Receive(receive) => {
                let instance = loaded.instance();
                let peer = self.peer(receive.peer);
                let shared = peer.shared.as_ref().expect("receives from other hosts are not queued as work");
                let bytes = receive.elements() * receive.peer_dtype.bytes();
                let Some(source) = Region::new(&shared.arena, loaded.offered(op, instance), bytes as u64)
                else {
                    return self.fail(peer.failed(Why::Violation, Some(loaded.location(Some(op))), OUTSIDE));
                };
                take(&receive.landing(), receive.peer_dtype, &source, loaded.bytes as usize);
                let post = Post::Taken { program: loaded.number, instance, op: receive.peer_op };
                if let Err(error) = shared.post(post) {
                    return self.fail_here(None, format_args!("cannot wake {}: {error}", peer.who));
                }
            }
            // Ends when all parts are done.
            Action::InPlace(own) => return self.reduce_part(loaded, op, own),
            Action::Send(_) | Action::Library(..) => unreachable!("only work is queued as work"),
        }
        self.complete(loaded, op);
    }

    fn compute(&self, loaded: &Loaded, compute: &Compute) -> Result<(), String> {
        if let Some(element) = compute.run(loaded.bytes as usize)? {
            let mut found = lock(&self.non_finite);
            if found.len() < NON_FINITE_MAX {
                found.push(NonFinite { program: loaded.number, instance: loaded.instance(), element });
            }
        }
        Ok(())
    }

    /// `op` of the running instance is done: releases what waits for it.
    pub fn complete(&self, loaded: &Arc<Loaded>, op: u32) {
        let instance = loaded.instance();
        let instruction = &loaded.instructions[op as usize];
        let end_ns = self.traced_now_ns();
        for &next in &instruction.then {
            if loaded.meet(next) {
                self.release(loaded, next, end_ns);
            }
        }
        // After what waits is under way: nobody waits for a record.
        if let Some(recorder) = &self.recorder {
            recorder.push(&record(loaded, instance, op, instruction, end_ns));
        }
        if loaded.finish(op, instance) {
            self.finish_instance(loaded, instance);
        }
    }

    fn finish_instance(&self, loaded: &Loaded, instance: u32) {
        if let Some(recorder) = &self.recorder {
            let launched_ns = loaded.launched_ns();
            recorder.push(&Record {
                ready_ns: launched_ns,
                start_ns: launched_ns,
                end_ns: now_ns(),
                bytes: loaded.bytes,
                program: loaded.number,
                instance,
                kind: Kind::Instance,
                ..Record::default()
            });
        }
        loaded.complete(instance);
        self.note_change();
    }

    /// Wakes who waits for a change.
    pub fn note_change(&self) {
        drop(lock(&self.changed.0));
        self.changed.1.notify_all();
    }

    /// Where a payload of receive `op` lands, after checking that it may.
    pub fn landing(
        &self,
        from: Rank,
        program: u32,
        instance: u32,
        op: u32,
        offset_bytes: u64,
        payload_bytes: u32,
    ) -> Result<(Arc<Loaded>, Landing), String> {
        let (loaded, instruction) = self.addressed(program, op)?;
        let Action::Receive(receive) = &loaded.instructions[instruction].action else {
            return Err(format!("data for op {op} of program {program}, which is not a receive"));
        };
        if receive.peer != from {
            return Err(format!(
                "data for op {op} of program {program}, which receives from rank {}",
                receive.peer
            ));
        }
        if !loaded.is_posted(op, instance) {
            return Err(format!(
                "data for op {op} of program {program} launch {instance}, which is not posted"
            ));
        }
        let end = offset_bytes.saturating_add(u64::from(payload_bytes));
        let (wire, own) = (receive.wire.bytes(), receive.dtype.bytes());
        let refused = |why: &dyn std::fmt::Display| {
            format!("bytes {offset_bytes}..{end} of a message of {}, {why}", receive.wire_bytes())
        };
        if end > receive.wire_bytes() as u64 || !offset_bytes.is_multiple_of(wire as u64) {
            return Err(refused(&"which do not fit it"));
        }
        loaded.claim(op, offset_bytes, end).map_err(|why| refused(&why))?;
        let (at, len) = (offset_bytes as usize / wire * own, payload_bytes as usize / wire * own);
        let landing = match receive.landing.land {
            // Converting receives of equal types cost nothing extra as plain stores.
            Land::Cast { dtype, wire } if dtype == wire => Land::Store,
            land => land,
        };
        let landing = Landing { region: receive.landing.region.sub(at, len), land: landing };
        if self.recorder.is_some() {
            loaded.note_start(op, now_ns());
        }
        Ok((loaded, landing))
    }

    /// The program and instruction that a peer addresses.
    pub fn addressed(&self, program: u32, op: u32) -> Result<(Arc<Loaded>, usize), String> {
        let loaded = self.programs.get(program).ok_or_else(|| format!("there is no program {program}"))?;
        let op = op as usize;
        if op < loaded.instructions.len() {
            Ok((loaded, op))
        } else {
            Err(format!("program {program} has no op {op}"))
        }
    }

    /// Waits for a change of any program, at most `timeout`.
    pub fn wait_for_change(&self, timeout: Duration, still: impl FnOnce() -> bool) {
        let guard = lock(&self.changed.0);
        if still() && self.failure.get().is_none() {
            let waited = self.changed.1.wait_timeout(guard, timeout);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

fn record(loaded: &Loaded, instance: u32, op: u32, instruction: &Instruction, end_ns: u64) -> Record {
    let (ready_ns, start_ns) = loaded.times(op);
    Record {
        ready_ns,
        start_ns,
        end_ns,
        bytes: instruction.bytes() as u64,
        program: loaded.number,
        instance,
        op,
        peer: instruction.peer().map_or(u32::MAX, |peer| peer.0),
        kind: instruction.kind(),
    }
}
