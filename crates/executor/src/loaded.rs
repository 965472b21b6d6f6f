//! A program loaded into this rank's executor: its instructions and the state of its current instance.
//!
//! One instance of a program runs at a time; `flow` counts its dependencies, and `gate` joins the two sides of its
//! messages.

use crate::failure::Location;
use crate::instruction::{Action, Instruction, peers_of};
use crate::lock::lock;
use hocket_ids::Rank;
use hocket_protocol::extents::{ExtentError, Extents};
use hocket_sync::OutOfTurn;
use hocket_sync::flow::Flow;
use hocket_sync::gate::{ANNOUNCED, Gate, RELEASED};
use hocket_sync::meeting::Meeting;
use hocket_wire::memory::{Allocation, Region};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// State of one instruction.
#[derive(Debug, Default)]
pub struct State {
    gate: Gate,
    /// The meeting of a collective in place.
    meeting: Option<Meeting>,
    /// Offset of the announced bytes in a neighbour's arena, by parity of the instance.
    offered: [AtomicU64; 2],
    /// Launch count + 1 of the instance whose receive is posted.
    posted: AtomicU32,
    /// Bytes received of it.
    received: AtomicU64,
    /// Ranges received or being received.
    claimed: Mutex<Extents>,
    /// When its dependencies were met.
    ready_ns: AtomicU64,
    /// When it started.
    start_ns: AtomicU64,
    /// Launch count + 1 of the last completed instance.
    done: AtomicU32,
}

impl State {
    fn of(instruction: &Instruction) -> Self {
        let meeting = match &instruction.action {
            Action::InPlace(own) => Some(Meeting::new(own.members.len())),
            _ => None,
        };
        Self { meeting, ..Self::default() }
    }
}

/// A non-finite element that a `record` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonFinite {
    /// Program number.
    pub program: u32,
    /// Launch count.
    pub instance: u32,
    /// First such element of the buffer.
    pub element: usize,
}

/// A loaded program.
#[derive(Debug)]
pub struct Loaded {
    /// Equal on all ranks.
    pub number: u32,
    /// Its name, for messages and traces.
    pub label: String,
    /// Lower values go first.
    pub priority: u32,
    /// Instructions in an order that respects dependencies.
    pub instructions: Vec<Instruction>,
    /// Bytes of the program's bound buffers.
    pub bytes: u64,
    /// Ranks that it needs.
    peers: Vec<Rank>,
    /// Scratch and state memory, by buffer name.
    own: Vec<(String, Allocation)>,
    /// Per instruction: its depth, the length of the longest chain before it.
    depths: Vec<u32>,
    states: Vec<State>,
    flow: Flow,
    launched_ns: AtomicU64,
}

impl Loaded {
    /// Ready for its first launch.
    pub fn new(
        number: u32,
        label: String,
        priority: u32,
        instructions: Vec<Instruction>,
        bytes: u64,
        own: Vec<(String, Allocation)>,
    ) -> Self {
        let depths = depths(&instructions);
        let peers = peers_of(&instructions);
        let states = instructions.iter().map(State::of).collect();
        let flow = Flow::new(instructions.len());
        Self {
            number,
            label,
            priority,
            instructions,
            bytes,
            peers,
            own,
            depths,
            states,
            flow,
            launched_ns: AtomicU64::new(0),
        }
    }

    /// The executor's own buffer with that name.
    pub fn state(&self, name: &str) -> Option<Region> {
        self.own.iter().find(|(known, _)| known == name).map(|(_, allocation)| allocation.region().clone())
    }

    /// Depth of `op`: the length of the longest chain before it.
    pub fn depth(&self, op: u32) -> u32 {
        self.depths[op as usize]
    }

    /// Launches so far.
    pub fn launched(&self) -> u32 {
        self.flow.launched()
    }

    /// Whether every launched instance is complete.
    pub fn is_complete(&self) -> bool {
        self.flow.is_complete()
    }

    /// The running instance or, if there is none, the last one.
    pub fn instance(&self) -> u32 {
        self.launched().saturating_sub(1)
    }

    /// One instruction of the running launch, or the launch as a whole.
    pub fn location(&self, op: Option<u32>) -> Location {
        Location { program: self.number, launch: self.instance(), op }
    }

    /// Claims the next launch; `false` while the one before runs.
    pub fn launch(&self, now_ns: u64) -> bool {
        let claimed = self.flow.claim();
        if claimed {
            self.launched_ns.store(now_ns, Ordering::Relaxed);
        }
        claimed
    }

    /// Resets the dataflow for a claimed launch and returns the instructions that depend on nothing.
    pub fn start(&self) -> Vec<u32> {
        self.flow.start(self.instructions.iter().map(|instruction| instruction.after));
        let roots = self.instructions.iter().enumerate().filter(|(_, instruction)| instruction.after == 0);
        roots.map(|(at, _)| at as u32).collect()
    }

    /// When the current instance was launched.
    pub fn launched_ns(&self) -> u64 {
        self.launched_ns.load(Ordering::Relaxed)
    }

    /// One dependency of `op` is met; whether it was the last.
    pub fn meet(&self, op: u32) -> bool {
        self.flow.meet(op)
    }

    /// The dependencies of message `op` are met; whether the peer is there too.
    pub fn release(&self, op: u32, instance: u32) -> bool {
        let both = self.states[op as usize].gate.note(instance, RELEASED);
        both.expect("an instruction's dependencies are met once per instance")
    }

    /// The peer announced its side of message `op`; whether ours is ready too. `Err`: it had announced it before.
    pub fn announce(&self, op: u32, instance: u32) -> Result<bool, OutOfTurn> {
        self.states[op as usize].gate.note(instance, ANNOUNCED)
    }

    /// Where the members of collective `op` meet.
    ///
    /// # Panics
    /// When `op` is not an all-reduce in place.
    pub fn meeting(&self, op: u32) -> &Meeting {
        self.states[op as usize].meeting.as_ref().expect("a collective in place has a meeting")
    }

    /// Notes where a neighbour's bytes for `op` lie; call before [`Self::announce`].
    pub fn offer(&self, op: u32, instance: u32, offset_bytes: u64) {
        self.states[op as usize].offered[(instance & 1) as usize].store(offset_bytes, Ordering::Release);
    }

    /// Where they lie.
    pub fn offered(&self, op: u32, instance: u32) -> u64 {
        self.states[op as usize].offered[(instance & 1) as usize].load(Ordering::Acquire)
    }

    /// Whether a peer may announce something for `instance` now: it must be the running one or the next.
    pub fn may_announce(&self, instance: u32) -> bool {
        let launched = self.launched();
        instance == launched || self.is_running(instance)
    }

    /// Whether `instance` is the running or last one. The number comes from a peer and may be any.
    pub fn is_running(&self, instance: u32) -> bool {
        instance.checked_add(1) == Some(self.launched())
    }

    /// Receive `op` is posted: payloads may land from now on.
    pub fn post(&self, op: u32, instance: u32) {
        let state = &self.states[op as usize];
        state.received.store(0, Ordering::Relaxed);
        lock(&state.claimed).clear();
        state.posted.store(instance + 1, Ordering::Release);
    }

    /// Whether `op` is posted for `instance`.
    pub fn is_posted(&self, op: u32, instance: u32) -> bool {
        instance.checked_add(1) == Some(self.states[op as usize].posted.load(Ordering::Acquire))
    }

    /// Bytes `start..end` of the posted receive `op` are about to arrive: none of them may arrive again.
    pub fn claim(&self, op: u32, start: u64, end: u64) -> Result<(), ExtentError> {
        lock(&self.states[op as usize].claimed).claim(start, end)
    }

    /// All of receive `op` has arrived: nothing more may land.
    pub fn close(&self, op: u32) {
        self.states[op as usize].posted.store(0, Ordering::Release);
    }

    /// Whether `op` of `instance` is complete.
    pub fn is_done(&self, op: u32, instance: u32) -> bool {
        instance.checked_add(1) == Some(self.states[op as usize].done.load(Ordering::Acquire))
    }

    /// `bytes` more landed for `op`; returns the sum.
    pub fn land(&self, op: u32, bytes: u64) -> u64 {
        self.states[op as usize].received.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Notes when `op` became ready.
    pub fn note_ready(&self, op: u32, now_ns: u64) {
        let state = &self.states[op as usize];
        state.ready_ns.store(now_ns, Ordering::Relaxed);
        state.start_ns.store(0, Ordering::Relaxed);
    }

    /// Notes when `op` started, the first time.
    pub fn note_start(&self, op: u32, now_ns: u64) {
        let start = &self.states[op as usize].start_ns;
        if start.load(Ordering::Relaxed) == 0 {
            start.store(now_ns, Ordering::Relaxed);
        }
    }

    /// When `op` was ready and when it started.
    pub fn times(&self, op: u32) -> (u64, u64) {
        let state = &self.states[op as usize];
        let ready = state.ready_ns.load(Ordering::Relaxed);
        (ready, state.start_ns.load(Ordering::Relaxed).max(ready))
    }

    /// `op` is complete; whether it was the last of the instance.
    pub fn finish(&self, op: u32, instance: u32) -> bool {
        self.states[op as usize].done.store(instance + 1, Ordering::Release);
        self.flow.finish()
    }

    /// The instance is complete; the next may be launched.
    pub fn complete(&self, instance: u32) {
        self.flow.complete(instance);
    }

    /// Ranks that the running instance waits for, each with whether it waits for a send of that rank.
    pub fn unfinished(&self) -> Vec<(Rank, bool)> {
        let mut waits: Vec<(Rank, bool)> =
            self.waits().map(|(_, rank, receiving)| (rank, receiving)).collect();
        waits.sort_unstable();
        waits.dedup();
        waits
    }

    /// The first op of the running instance that waits for `rank`, and whether it waits for a send of that rank.
    pub fn awaited_of(&self, rank: Rank) -> Option<(u32, bool)> {
        let mut waits = if self.is_complete() { None } else { Some(self.waits()) }?;
        waits.find_map(|(op, awaited, receiving)| (awaited == rank).then_some((op, receiving)))
    }

    /// Incomplete ops, the rank that each waits for, and whether for a send of that rank.
    fn waits(&self) -> impl Iterator<Item = (u32, Rank, bool)> + '_ {
        let running = self.launched();
        let both = self.instructions.iter().zip(&self.states).zip(0..);
        let unfinished = both.filter(move |((_, state), _)| state.done.load(Ordering::Acquire) != running);
        unfinished.flat_map(|((instruction, state), op)| {
            let (message, meeting) = match (&instruction.action, &state.meeting) {
                (Action::Send(send), _) => (Some((op, send.peer, false)), None),
                (Action::Receive(receive), _) => (Some((op, receive.peer, true)), None),
                (Action::InPlace(own), Some(meeting)) => {
                    let missing = meeting.missing(self.instance()).filter(|at| *at != own.own);
                    (None, Some(missing.map(move |at| (op, own.members[at].0, true))))
                }
                _ => (None, None),
            };
            message.into_iter().chain(meeting.into_iter().flatten())
        })
    }

    /// Whether a collective of a library is incomplete.
    pub fn waits_for_library(&self) -> bool {
        let running = self.launched();
        let mut both = self.instructions.iter().zip(&self.states);
        both.any(|(instruction, state)| {
            matches!(instruction.action, Action::Library(..)) && state.done.load(Ordering::Acquire) != running
        })
    }

    /// Ranks that the program needs.
    pub fn peers(&self) -> impl Iterator<Item = Rank> {
        self.peers.iter().copied()
    }
}

/// Instructions come after their dependencies, so one pass is enough.
fn depths(instructions: &[Instruction]) -> Vec<u32> {
    let mut depths = vec![0; instructions.len()];
    for (at, instruction) in instructions.iter().enumerate() {
        for &next in &instruction.then {
            depths[next as usize] = depths[next as usize].max(depths[at] + 1);
        }
    }
    depths
}
