//! A model's leaves, in buckets that are reduced as they fill.
//!
//! What a leaf costs beside two copies: four locks, and a message to the group's thread per bucket. That thread copies
//! results back that are waited for, and tells the framework, whose runtime may go on computing in that call; the
//! executor's own threads are never held up.

use crate::loan::Lent;
use crate::programs::{Event, Programs, Told};
use crate::turns::{Lack, Taken, Turns};
use hocket_executor::readiness::Readiness;
use hocket_executor::{Error, Region, now_ns, panic_text};
use hocket_schedule::Schedule;
use hocket_trace::Kind;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest interval between looks at deadlines and interruptions.
const WAKE: Duration = Duration::from_millis(100);

/// Where a leaf lies: its bytes, and (bucket, index there) of each of its parts.
pub struct Placed {
    pub region: Region,
    /// As [`Readiness::arrive`] counts them; the buckets' order is that of their programs.
    pub parts: Vec<(usize, usize)>,
}

/// Whether a leaf was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Its memory may be used for something else.
    Now,
    /// It was lent until then.
    Later,
}

/// See the crate's head. Closes when it is dropped.
pub struct Group<P: Programs> {
    shared: Arc<Shared<P>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<P> {
    programs: Arc<P>,
    /// By leaf: its name, for people, and its size.
    leaves: Vec<(String, usize)>,
    timeout: Duration,
    events: Sender<Event>,
    state: Mutex<State<P>>,
    /// A turn is over, or the group has failed.
    changed: Condvar,
}

struct State<P> {
    turns: Turns<Lent>,
    loaded: Option<Arc<Buckets<P>>>,
    failed: Option<Error>,
    /// When executions of turns that are not over began.
    began_ns: Vec<(u32, u64)>,
    last_began_ns: Option<(u32, u64)>,
    /// When the open turn's last leaf was in its bucket.
    given_ns: u64,
}

/// What an epoch's programs reduce.
struct Buckets<P> {
    readiness: Readiness<Told<P>>,
    count: usize,
    leaves: Vec<Placed>,
}

impl<P: Programs> Group<P> {
    /// `leaves`: names and sizes in bytes; `timeout`: for each launch, and for the leaves that a turn lacks.
    pub fn new(programs: Arc<P>, leaves: Vec<(String, usize)>, timeout: Duration) -> io::Result<Self> {
        let (events, arrivals) = channel();
        let state = State {
            turns: Turns::new(Vec::new(), 0, 0),
            loaded: None,
            failed: None,
            began_ns: Vec::new(),
            last_began_ns: None,
            given_ns: 0,
        };
        let shared = Arc::new(Shared {
            programs,
            leaves,
            timeout,
            events,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("hocket-results".into());
        let thread = thread.spawn(move || own.guarded(|| own.serve(&arrivals)))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// From now on these programs reduce the leaves, which lie there. `buckets`: each one's program, and of how many parts it
    /// is. Memory and programs outlive the group, or its next load.
    ///
    /// [`Error::Usage`]: leaves do not fit, or a turn is not over.
    pub fn load(&self, buckets: &[(u32, usize)], leaves: Vec<Placed>) -> Result<(), Error> {
        self.shared.load(buckets, leaves)
    }

    /// An execution of `turn` begins, for the trace.
    pub fn begin(&self, turn: u32) {
        let shared = &*self.shared;
        let mut state = shared.lock();
        let now = now_ns();
        if let Some((before, began)) = state.last_began_ns.replace((turn, now)) {
            shared.programs.mark(Kind::Step, before, began, now);
        }
        state.began_ns.push((turn, now));
    }

    /// `leaf` of `turn` is made: it is copied, now, or when the turn opens. What `lend` gives then, with the same operand, ends
    /// with the turn's four bytes.
    pub fn give(
        &self,
        leaf: usize,
        turn: u32,
        operand: &[u8],
        lend: impl FnOnce() -> Lent,
    ) -> Result<Given, Error> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        match state.take(&shared.leaves, leaf, turn, operand.len())? {
            (Taken::Now, buckets) => {
                drop(state);
                shared.place(&buckets, leaf, operand)?;
                Ok(Given::Now)
            }
            (Taken::Later, _) => {
                state.turns.queue(turn, leaf, lend());
                Ok(Given::Later)
            }
        }
    }

    /// `lent` ends with the mean of a leaf that was given: at the latest after the time-out, or when the group closes. A runtime
    /// may call one such function after the other, and await each: all leaves of the turn must have been given before.
    pub fn take_back(&self, leaf: usize, turn: u32, lent: Lent) {
        self.shared.take_back(leaf, turn, lent);
    }

    /// Waits until means of `turn` may be taken back, for a runtime whose leaves of later turns seem given while they wait for
    /// theirs. What holds a turn up fails the group within its time-out.
    pub fn wait_for_turn(&self, turn: u32) -> Result<(), Error> {
        self.wait(turn, 2 * self.shared.timeout, || false).map(drop)
    }

    /// Waits until all turns before `turn` are over. `interrupted` is called several times a second and ends the wait with
    /// `Ok(false)`. The group's failure, if it has failed.
    pub fn wait(
        &self,
        turn: u32,
        timeout: Duration,
        mut interrupted: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        loop {
            if let Some(cause) = state.failed.clone().or_else(|| self.shared.programs.failure()) {
                return Err(cause);
            }
            let open = state.turns.open();
            if open.wrapping_sub(turn) <= u32::MAX / 2 {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                let what = format!("turn {open} is not over after {} s", timeout.as_secs_f64());
                return Err(Error::Timeout { what, location: None, missing: Vec::new() });
            }
            let waited = self.shared.changed.wait_timeout(state, WAKE);
            drop(waited.unwrap_or_else(PoisonError::into_inner).0);
            if interrupted() {
                return Ok(false);
            }
            state = self.shared.lock();
        }
    }

    /// The leaves of the last turn that is over, in the order in which they came.
    pub fn order(&self) -> Vec<usize> {
        self.shared.lock().turns.order().to_vec()
    }

    /// Ends whatever is lent with an error, and the thread. Idempotent.
    pub fn close(&self) {
        self.shared.fail(Error::Usage("the session is closed while a turn is under way".into()));
        drop(self.shared.events.send(Event::Close));
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // The runtime has printed a panic of that thread.
            drop(thread.join());
        }
    }
}

impl<P: Programs> Drop for Group<P> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<P> State<P> {
    /// Takes a leaf, with its place; Err: why it cannot be.
    fn take(
        &mut self,
        leaves: &[(String, usize)],
        leaf: usize,
        turn: u32,
        bytes: usize,
    ) -> Result<(Taken, Arc<Buckets<P>>), Error> {
        if let Some(cause) = &self.failed {
            return Err(cause.clone());
        }
        let Some((name, expected)) = leaves.get(leaf) else {
            return Err(Error::Usage(format!("leaf {leaf} of {}", leaves.len())));
        };
        let Some(loaded) = self.loaded.as_ref().map(Arc::clone) else {
            return Err(Error::Usage("no programs are loaded".into()));
        };
        if bytes != *expected {
            let what = format!("the gradient of `{name}` has {bytes} bytes, and {expected} at the start");
            return Err(Error::Usage(what));
        }
        let taken = self.turns.take(turn, leaf, Instant::now());
        let taken = taken.map_err(|what| Error::Usage(format!("the gradient of `{name}`: {what}")))?;
        Ok((taken, loaded))
    }
}

impl<P: Programs> Shared<P> {
    fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, buckets: &[(u32, usize)], leaves: Vec<Placed>) -> Result<(), Error> {
        let fits = |(placed, (_, bytes)): (&Placed, &(String, usize))| placed.region.len() == *bytes;
        if leaves.len() != self.leaves.len() || !leaves.iter().zip(&self.leaves).all(fits) {
            return Err(Error::Usage("the leaves are not those of the group".into()));
        }
        let parts = leaves.iter().flat_map(|placed| &placed.parts);
        let mut unknown = parts.clone().filter(|part| part.0 >= buckets.len() || part.1 >= buckets[part.0].1);
        if let Some((bucket, index)) = unknown.next() {
            return Err(Error::Usage(format!("there is no part {index} of bucket {bucket}")));
        }
        if leaves.iter().any(|placed| placed.parts.is_empty()) {
            return Err(Error::Usage("a leaf is in one bucket at least".into()));
        }
        let told = Told {
            programs: Arc::clone(&self.programs),
            buckets: buckets.iter().enumerate().map(|(at, &(program, _))| (program, at)).collect(),
            events: self.events.clone(),
            timeout: self.timeout,
        };
        let readiness = Readiness::new(Arc::new(told), buckets, Schedule::default())?;
        let of_leaf = leaves.iter().map(|placed| {
            let mut own: Vec<_> = placed.parts.iter().map(|&(bucket, _)| bucket).collect();
            own.sort_unstable();
            own.dedup();
            own
        });
        let of_leaf = of_leaf.collect();
        let mut state = self.lock();
        if !state.turns.is_idle() {
            return Err(Error::Usage(format!("turn {} is not over", state.turns.open())));
        }
        state.turns = Turns::new(of_leaf, buckets.len(), state.turns.open());
        state.loaded = Some(Arc::new(Buckets { readiness, count: buckets.len(), leaves }));
        Ok(())
    }

    /// Copies a leaf that was taken into its bucket, and counts it.
    fn place(&self, buckets: &Buckets<P>, leaf: usize, operand: &[u8]) -> Result<(), Error> {
        let placed = &buckets.leaves[leaf];
        // Nothing of the bucket runs before all its leaves have arrived, and no other leaf lies here.
        hocket_kernels::copy(placed.region.as_bytes_mut(), operand, placed.region.len());
        let mut state = self.lock();
        if let Some(cause) = &state.failed {
            return Err(cause.clone());
        }
        let last = state.turns.given();
        if last {
            state.given_ns = now_ns();
        }
        let arrived = arrive(buckets, leaf, last);
        if let Err(cause) = &arrived {
            self.fail_in(state, cause.clone());
        }
        arrived
    }

    fn take_back(&self, leaf: usize, turn: u32, lent: Lent) {
        let mut state = self.lock();
        let (lent, outcome) = match (&state.failed, &state.loaded, self.leaves.get(leaf)) {
            (Some(cause), _, _) => (Some(lent), Err(cause.clone())),
            (_, Some(loaded), Some((name, _))) => {
                let loaded = Arc::clone(loaded);
                match state.turns.want(turn, leaf, lent, Instant::now()) {
                    Ok(lent) => (lent, Ok(loaded)),
                    Err((what, lent)) => {
                        (Some(lent), Err(Error::Usage(format!("the gradient of `{name}`: {what}"))))
                    }
                }
            }
            _ => (Some(lent), Err(Error::Usage(format!("leaf {leaf} of {}", self.leaves.len())))),
        };
        drop(state);
        match (lent, outcome) {
            (Some(lent), Err(cause)) => lent.end(Err(&cause)),
            // This thread is the framework's own: better it copies than the group's.
            (Some(lent), Ok(buckets)) => self.end(&buckets, vec![(leaf, lent)]),
            (None, _) => {}
        }
    }

    /// Copies results back. With the last of them, the next turn opens.
    fn end(&self, buckets: &Arc<Buckets<P>>, whole: Vec<(usize, Lent)>) {
        let count = whole.len();
        for (leaf, lent) in whole {
            lent.end(Ok(buckets.leaves[leaf].region.as_bytes()));
        }
        let mut state = self.lock();
        if state.failed.is_some() || !state.turns.ended(count) {
            return;
        }
        let applied = (0..buckets.count).try_for_each(|bucket| buckets.readiness.applied(bucket));
        if let Err(cause) = applied {
            return self.fail_in(state, cause);
        }
        let turn = state.turns.open();
        self.mark(&mut state, turn);
        let waiting = state.turns.advance(Instant::now());
        let token = state.turns.open().to_ne_bytes();
        drop(state);
        self.changed.notify_all();
        for (leaf, lent) in waiting {
            let placed = self.place(buckets, leaf, lent.operand());
            lent.end(placed.as_ref().map(|()| token.as_slice()));
        }
    }

    /// What is lent ends if the group's thread panics.
    fn guarded(&self, act: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(act)) {
            self.fail(Error::System(format!(
                "the thread `hocket-results` panicked: {}",
                panic_text(&*panic)
            )));
        }
    }

    /// The group's thread.
    fn serve(&self, events: &Receiver<Event>) {
        loop {
            match events.recv_timeout(WAKE) {
                Ok(Event::Ended(bucket, Ok(()))) => self.reduced(bucket),
                Ok(Event::Ended(_, Err(cause))) => self.fail(cause),
                Ok(Event::Close) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look_at_deadline(Instant::now());
        }
    }

    fn reduced(&self, bucket: usize) {
        let mut state = self.lock();
        let Some(buckets) = state.loaded.as_ref().filter(|_| state.failed.is_none()).map(Arc::clone) else {
            return;
        };
        let whole = state.turns.reduced(bucket);
        drop(state);
        self.end(&buckets, whole);
    }

    /// Spans of a turn that is over: computing until its last leaf was there, then waiting.
    fn mark(&self, state: &mut State<P>, turn: u32) {
        for (_, began) in state.began_ns.extract_if(.., |each| each.0 == turn) {
            self.programs.mark(Kind::Backward, turn, began, state.given_ns);
            self.programs.mark(Kind::Wait, turn, state.given_ns, now_ns());
        }
    }

    /// Gradients that the function does not make would leave the others of their buckets waiting for ever.
    fn look_at_deadline(&self, now: Instant) {
        let state = self.lock();
        let Some((since, lack)) = state.turns.lacks().filter(|_| state.failed.is_none()) else { return };
        if now.saturating_duration_since(since) < self.timeout {
            return;
        }
        let (lacking, done) = match &lack {
            Lack::Given(leaves) => (leaves, "made the gradients"),
            Lack::Wanted(leaves) => (leaves, "used the means"),
        };
        let names: Vec<_> =
            lacking.iter().take(3).map(|&leaf| format!("`{}`", self.leaves[leaf].0)).collect();
        let more = lacking.len().saturating_sub(names.len());
        let more = if more == 0 { String::new() } else { format!(" and {more} others") };
        let what = format!(
            "turn {}: after {} s, this rank has not {done} of {}{more}\nhint: a compiled function makes only what it \
             returns, or what its results need: return all means, or use them",
            state.turns.open(),
            self.timeout.as_secs_f64(),
            names.join(", ")
        );
        self.fail_in(state, Error::Timeout { what, location: None, missing: Vec::new() });
    }

    fn fail(&self, cause: Error) {
        self.fail_in(self.lock(), cause);
    }

    /// Ends all that is lent; the first cause counts.
    fn fail_in(&self, mut state: MutexGuard<'_, State<P>>, cause: Error) {
        let cause = state.failed.get_or_insert(cause).clone();
        let lent = state.turns.drain();
        drop(state);
        self.changed.notify_all();
        for each in lent {
            each.end(Err(&cause));
        }
    }
}

/// Counts a leaf that is in its buckets; after the `last` one, the iteration.
fn arrive<P: Programs>(buckets: &Buckets<P>, leaf: usize, last: bool) -> Result<(), Error> {
    let readiness = &buckets.readiness;
    if readiness.open() {
        readiness.check()?;
    }
    for &(bucket, index) in &buckets.leaves[leaf].parts {
        readiness.arrive(bucket, index)?;
    }
    if last { readiness.finish().1 } else { Ok(()) }
}
