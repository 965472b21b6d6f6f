//! What runs buckets' programs and calls back: the engine, or a simulation of one in tests.

use hocket_executor::readiness::Launcher;
use hocket_executor::{Engine, Error};
use hocket_trace::Kind;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Called once when a launch has ended.
pub type Notify = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// A [`Launcher`] that calls back.
pub trait Programs: Launcher + Send + Sync + 'static {
    /// Calls `notify` when the program's launch ends, as [`Engine::on_complete`].
    fn on_complete(&self, program: u32, timeout: Duration, notify: Notify) -> Result<(), Error>;

    /// Adds a span of a turn to the trace, as [`Engine::mark`].
    fn mark(&self, kind: Kind, turn: u32, start_ns: u64, end_ns: u64);
}

impl Programs for Engine {
    fn on_complete(&self, program: u32, timeout: Duration, notify: Notify) -> Result<(), Error> {
        Self::on_complete(self, program, timeout, notify)
    }

    fn mark(&self, kind: Kind, turn: u32, start_ns: u64, end_ns: u64) {
        Self::mark(self, kind, turn, start_ns, end_ns);
    }
}

/// What the group's thread is told.
pub enum Event {
    /// Bucket of that number: its launch has ended.
    Ended(usize, Result<(), Error>),
    Close,
}

/// Launches, and has the group's thread told of each end.
pub struct Told<P> {
    pub programs: Arc<P>,
    pub buckets: HashMap<u32, usize>,
    pub events: Sender<Event>,
    pub timeout: Duration,
}

impl<P: Programs> Launcher for Told<P> {
    fn slots(&self, program: u32) -> Result<u32, Error> {
        self.programs.slots(program)
    }

    fn launched(&self, program: u32) -> Result<u32, Error> {
        self.programs.launched(program)
    }

    fn launch(&self, program: u32, slot: u32, factor: f64, due: u32) -> Result<(), Error> {
        self.programs.launch(program, slot, factor, due)?;
        let (events, bucket) = (self.events.clone(), self.buckets[&program]);
        let notify = move |outcome| {
            // Nobody listens once the group is closed.
            drop(events.send(Event::Ended(bucket, outcome)));
        };
        self.programs.on_complete(program, self.timeout, Box::new(notify))
    }

    fn wait(
        &self,
        program: u32,
        launches: u32,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        self.programs.wait(program, launches, timeout, interrupted)
    }

    fn failure(&self) -> Option<Error> {
        self.programs.failure()
    }
}
