//! A program loaded into this rank's executor: its instructions and the state of its current instance.
//!
//! One instance of a program runs at a time; `flow` counts its dependencies. A program may have several *sets* of bound memory, of which each instance uses one: while one set is under
//! way, another fills, and its launch waits until the instance before is complete. Scratch and state are the program's.

use crate::early::{Early, Go};
use crate::failure::Location;
use crate::instruction::{Action, Instruction, Stage, Way, peers_of};
use crate::launch::{Begun, Launch};
use crate::lock::lock;
use crate::op_state::OpState;
use hocket_ids::{DType, Rank};
use hocket_kernels as kernels;
use hocket_program::Space;
use hocket_sync::flow::Flow;
use hocket_wire::link::Cards;
use hocket_wire::memory::{Allocation, Region};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

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

/// The program over one set of bound memory.
#[derive(Debug)]
pub struct Set {
    /// Instructions in an order that respects dependencies; of all sets the same, but for regions.
    pub instructions: Vec<Instruction>,
    /// The bound buffers, with their element types.
    pub bound: Vec<(Region, DType)>,
    /// Those that a launch multiplies with its factor before its first op.
    pub scaled: Vec<(Region, DType)>,
}

/// How a program's messages travel to other hosts.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// Lower values go first, among launches that are due at once.
    pub priority: u32,
    /// Cards that they may use.
    pub cards: Cards,
}

impl Sending {
    /// On whichever card can send.
    pub fn urgent(priority: u32) -> Self {
        Self { priority, cards: Cards::ALL }
    }
}

/// A loaded program.
#[derive(Debug)]
pub struct Loaded {
    /// Equal on all ranks.
    pub number: u32,
    /// Its name, for messages and traces.
    pub label: String,
    /// How its messages travel.
    pub sending: Sending,
    sets: Vec<Set>,
    /// Bytes of the program's bound buffers, of one set.
    pub bytes: u64,
    /// Ranks that it needs.
    peers: Vec<Rank>,
    /// Scratch and state memory, by buffer name.
    own: Vec<(String, Allocation)>,
    /// Per instruction: its depth, the length of the longest chain before it.
    depths: Vec<u32>,
    /// What may run before all gradients of the bound buffer are there.
    early: OnceLock<Early>,
    states: Vec<OpState>,
    flow: Flow,
    /// The set of the running instance.
    set: AtomicU32,
    /// Whether its elements are multiplied first.
    scales: AtomicBool,
    /// The bits of its factor.
    factor: AtomicU64,
    /// Bytes of the set that were multiplied with it.
    scaled: AtomicU64,
    due: AtomicU32,
    traced: AtomicBool,
    asked_ns: AtomicU64,
    launched_ns: AtomicU64,
    /// Launches that wait for the running instance.
    waiting: Mutex<VecDeque<Launch>>,
}

impl Loaded {
    /// Ready for its first launch.
    pub fn new(
        number: u32,
        label: String,
        sending: Sending,
        sets: Vec<Set>,
        bytes: u64,
        own: Vec<(String, Allocation)>,
    ) -> Self {
        let instructions = sets.first().map_or(&[][..], |set| &set.instructions);
        let depths = depths(instructions);
        let peers = peers_of(instructions);
        let states = instructions.iter().map(OpState::of).collect();
        let flow = Flow::new(instructions.len());
        Self {
            number,
            label,
            sending,
            sets,
            bytes,
            peers,
            own,
            depths,
            early: OnceLock::new(),
            states,
            flow,
            set: AtomicU32::new(0),
            scales: AtomicBool::new(false),
            factor: AtomicU64::new(1_f64.to_bits()),
            scaled: AtomicU64::new(0),
            due: AtomicU32::new(0),
            traced: AtomicBool::new(false),
            asked_ns: AtomicU64::new(0),
            launched_ns: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    /// Of the running instance: what has a lower one goes first. Those due earlier come before the program's own priority.
    pub fn urgency(&self) -> u64 {
        u64::from(self.due.load(Ordering::Relaxed)) << 32 | u64::from(self.sending.priority)
    }

    /// How many sets of bound memory there are.
    pub fn sets(&self) -> u32 {
        self.sets.len() as u32
    }

    /// Whether a bound buffer has elements that no factor can be applied to.
    pub fn has_integers(&self) -> bool {
        self.sets.iter().flat_map(|set| &set.bound).any(|(_, dtype)| !dtype.is_float())
    }

    /// Whether a library works on the device's memory, to which no factor is applied.
    pub fn has_libraries_on_device(&self) -> bool {
        let mut all = self.sets.iter().flat_map(|set| &set.instructions);
        all.any(|each| matches!(each.action, Action::Library(_, _, Space::Device)))
    }

    /// Instructions over the set of the running instance.
    pub fn instructions(&self) -> &[Instruction] {
        self.running().map_or(&[], |set| &set.instructions)
    }

    fn running(&self) -> Option<&Set> {
        self.sets.get(self.set.load(Ordering::Acquire) as usize)
    }

    /// The executor's own buffer with that name.
    pub fn state(&self, name: &str) -> Option<Region> {
        self.own.iter().find(|(known, _)| known == name).map(|(_, allocation)| allocation.region().clone())
    }

    /// Depth of `op`: the length of the longest chain before it; of what comes before all ops, zero.
    pub fn depth(&self, op: u32) -> u32 {
        self.depths.get(op as usize).copied().unwrap_or_default()
    }

    /// Launches so far, without those that wait for others.
    pub fn launched(&self) -> u32 {
        self.flow.launched()
    }

    /// Launches so far, and those that wait for others.
    pub fn asked(&self) -> u32 {
        let waiting = lock(&self.waiting);
        self.launched() + waiting.len() as u32
    }

    /// Whether every launched instance is complete, and none waits for others.
    pub fn is_complete(&self) -> bool {
        // Under the lock, since one that waits is launched only after the one before is complete.
        let waiting = lock(&self.waiting);
        waiting.is_empty() && self.flow.is_complete()
    }

    /// The running instance or, if there is none, the last one.
    pub fn instance(&self) -> u32 {
        self.launched().saturating_sub(1)
    }

    /// One instruction of the running launch, or the launch as a whole.
    pub fn location(&self, op: Option<u32>) -> Location {
        Location { program: self.number, launch: self.instance(), op }
    }

    /// Lets what works on one gradient run before the others are there. Before its first launch; a second call changes nothing.
    pub fn split(&self, gradients: &[usize]) {
        let set = self.sets.first();
        if let Some(early) = set.and_then(|set| Early::of(&set.instructions, &set.bound, gradients)) {
            self.early.get_or_init(|| early);
        }
    }

    /// Claims the next launch, if none runs or waits, to begin before its gradients are there.
    pub fn launch_early(&self, launch: Launch) -> bool {
        let waiting = lock(&self.waiting);
        let claimed = self.early.get().is_some() && waiting.is_empty() && self.flow.claim();
        if claimed {
            self.begin(launch, launch.asked_ns);
        }
        claimed
    }

    /// All gradients of a launch that began early are there: from now on it counts as asked for.
    pub fn note_asked(&self, now_ns: u64) {
        self.asked_ns.store(now_ns, Ordering::Relaxed);
        self.launched_ns.store(now_ns, Ordering::Relaxed);
    }

    /// How many gradients the bound buffer is made of, where some of the program may run before all are there.
    pub fn early_gradients(&self) -> Option<usize> {
        self.early.get().map(Early::gradients)
    }

    /// Instructions that wait for this, beside those before them.
    pub fn waiting_for(&self, go: Go) -> &[u32] {
        self.early.get().map_or(&[], |early| early.after(go))
    }

    /// Claims the next launch, or notes it for when the ones before are complete.
    pub fn launch(&self, launch: Launch) -> Begun {
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() && self.flow.claim() {
            self.begin(launch, launch.asked_ns);
            return Begun::Now;
        }
        let used = self.set.load(Ordering::Acquire);
        if launch.set == used || waiting.iter().any(|other| other.set == launch.set) {
            return Begun::Refused;
        }
        waiting.push_back(launch);
        Begun::Later
    }

    /// For a claimed launch; nothing of it has started.
    fn begin(&self, launch: Launch, now_ns: u64) {
        self.set.store(launch.set, Ordering::Release);
        self.scales.store(launch.scales(), Ordering::Relaxed);
        self.factor.store(launch.factor.to_bits(), Ordering::Relaxed);
        self.scaled.store(0, Ordering::Relaxed);
        self.due.store(launch.due, Ordering::Relaxed);
        self.traced.store(launch.traced, Ordering::Relaxed);
        self.asked_ns.store(launch.asked_ns, Ordering::Relaxed);
        self.launched_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Resets the dataflow for a claimed launch and returns the instructions that wait for nothing.
    pub fn start(&self, go: Go) -> Vec<u32> {
        let early = self.early.get().filter(|_| go == Go::Early);
        let after = |(at, instruction): (usize, &Instruction)| {
            instruction.after + early.map_or(0, |early| early.waits(at))
        };
        let instructions = self.instructions();
        self.flow.start(instructions.iter().enumerate().map(after));
        let roots = instructions.iter().enumerate().filter(|each| after(*each) == 0);
        roots.map(|(at, _)| at as u32).collect()
    }

    /// Whether the running instance is recorded.
    pub fn is_traced(&self) -> bool {
        self.traced.load(Ordering::Relaxed)
    }

    /// Whether the running instance multiplies its set with a factor first.
    pub fn is_scaled(&self) -> bool {
        self.scales.load(Ordering::Relaxed)
    }

    /// What the elements of the running instance's set are multiplied with, if that changes them.
    pub fn factor(&self) -> Option<f64> {
        self.is_scaled().then(|| f64::from_bits(self.factor.load(Ordering::Relaxed)))
    }

    /// Multiplies the next `bytes_max` of the set with the factor; whether that was the rest. One thread at a time.
    pub fn scale_part(&self, bytes_max: usize) -> bool {
        let mut skip = self.scaled.load(Ordering::Acquire) as usize;
        let Some(factor) = self.factor() else { return true };
        for (region, dtype) in self.running().into_iter().flat_map(|set| &set.scaled) {
            if skip >= region.len() {
                skip -= region.len();
                continue;
            }
            let part = region.sub(skip, (region.len() - skip).min(bytes_max));
            kernels::scale(*dtype, part.as_bytes_mut(), factor);
            self.scaled.fetch_add(part.len() as u64, Ordering::Release);
            return false;
        }
        true
    }

    /// When the current instance was asked for, and when the one before was complete, too.
    pub fn launched_ns(&self) -> (u64, u64) {
        (self.asked_ns.load(Ordering::Relaxed), self.launched_ns.load(Ordering::Relaxed))
    }

    /// One dependency of `op` is met; whether it was the last.
    pub fn meet(&self, op: u32) -> bool {
        self.flow.meet(op)
    }

    /// The state of `op`.
    pub fn op(&self, op: u32) -> &OpState {
        &self.states[op as usize]
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

    /// `op` is complete; whether it was the last of the instance.
    pub fn finish(&self, op: u32, instance: u32) -> bool {
        self.op(op).note_done(instance);
        self.flow.finish()
    }

    /// The instance is complete; whether another has waited for that and may start.
    pub fn complete(&self, instance: u32, now_ns: impl FnOnce() -> u64) -> bool {
        let mut waiting = lock(&self.waiting);
        self.flow.complete(instance);
        let Some(next) = waiting.pop_front() else { return false };
        let claimed = self.flow.claim();
        debug_assert!(claimed, "launches are claimed under the lock, in order");
        self.begin(next, now_ns());
        true
    }

    /// Whether the first `launches` launches are complete.
    pub fn has_completed(&self, launches: u32) -> bool {
        self.flow.has_completed(launches)
    }

    /// Ranks that the running instance waits for, each with whether it waits for a send of that rank.
    pub fn unfinished(&self) -> Vec<(Rank, bool)> {
        let mut waits: Vec<(Rank, bool)> =
            self.waits().map(|(_, rank, receiving)| (rank, receiving)).collect();
        waits.sort_unstable();
        waits.dedup();
        waits
    }

    /// The same ranks alone, ascending.
    pub fn awaited(&self) -> Vec<Rank> {
        let mut ranks: Vec<Rank> = self.unfinished().into_iter().map(|(rank, _)| rank).collect();
        ranks.dedup();
        ranks
    }

    /// The first op of the running instance that waits for `rank`, and whether it waits for a send of that rank.
    pub fn awaited_of(&self, rank: Rank) -> Option<(u32, bool)> {
        let mut waits = if self.is_complete() { None } else { Some(self.waits()) }?;
        waits.find_map(|(op, awaited, receiving)| (awaited == rank).then_some((op, receiving)))
    }

    /// Incomplete ops whose dependencies are met, the rank that each waits for, and whether for a send of that rank.
    fn waits(&self) -> impl Iterator<Item = (u32, Rank, bool)> + '_ {
        let running = self.launched();
        let both = self.instructions().iter().zip(&self.states).zip(0..);
        let unfinished =
            both.filter(move |((_, state), op)| self.flow.is_free(*op) && state.done() != running);
        unfinished.flat_map(|((instruction, state), op)| {
            let (message, meeting) = match &instruction.action {
                Action::Send(send) => (Some((op, send.peer, false)), None),
                Action::Receive(receive) => (Some((op, receive.peer, true)), None),
                Action::InPlace(own) => {
                    let missing = state.meeting().missing(self.instance()).filter(|at| *at != own.own);
                    (None, Some(missing.map(move |at| (op, own.members[at].0, true))))
                }
                _ => (None, None),
            };
            message.into_iter().chain(meeting.into_iter().flatten())
        })
    }

    /// An incomplete op that others execute, by its name.
    pub fn waits_for_other(&self) -> Option<&'static str> {
        let running = self.launched();
        let both = self.instructions().iter().zip(&self.states);
        let mut left = both.filter(|(_, state)| state.done() != running);
        left.find_map(|(instruction, _)| match instruction.action {
            Action::Library(..) => Some("a collective by a library"),
            Action::Stage(Stage { way: Way::Down, .. }) => {
                Some("a copy from the device, which is busy or stuck")
            }
            Action::Stage(_) => Some("a copy to the device, which is busy or stuck"),
            _ => None,
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
