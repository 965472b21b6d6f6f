//! Callbacks when a launch ends, as an alternative to waits, for callers without a thread to spare.
//!
//! Rules for a callback:
//! - It is called exactly once: with `Ok` when the launch is complete, otherwise with the job's failure, a time-out
//!   (up to half a second late) or the engine's closing.
//! - It runs on the thread that ends the launch (the I/O thread or a worker), on the thread that closes the engine, or
//!   in [`Engine::on_complete`] itself if the launch has ended already. It must therefore be short and must not block;
//!   [`Engine::wait`] in it is refused. It may launch, and register further callbacks.
//! - Its result is visible: memory that the program reduced may be read.
//! - A panic in it ends the job, not the thread.

use crate::error::Error;
use crate::loaded::Loaded;
use crate::lock::lock;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Called once.
pub type Notify = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// A callback, and the launch that it waits for.
pub struct Awaited {
    pub loaded: Arc<Loaded>,
    pub instance: u32,
    pub timeout: Duration,
    pub deadline: Instant,
    /// The question who is at fault, once the deadline has passed.
    pub inquiry: Option<u32>,
    pub notify: Notify,
}

impl Awaited {
    /// The last launch so far, whether it is in progress or waits for others.
    pub fn new(loaded: Arc<Loaded>, timeout: Duration, notify: Notify) -> Self {
        let instance = loaded.asked().saturating_sub(1);
        Self { loaded, instance, timeout, deadline: Instant::now() + timeout, inquiry: None, notify }
    }

    /// Launches that it waits for: all up to that one.
    pub fn launches(&self) -> u32 {
        self.instance.saturating_add(1)
    }
}

/// Callbacks of launches in progress.
#[derive(Default)]
pub struct Completions(Mutex<Vec<Awaited>>);

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is running a callback.
pub fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Calls `notify`; whether it did not panic.
pub fn call(notify: Notify, outcome: Result<(), Error>) -> bool {
    let nested = IN_CALLBACK.replace(true);
    let ended = catch_unwind(AssertUnwindSafe(|| notify(outcome)));
    IN_CALLBACK.set(nested);
    ended.is_ok()
}

impl Completions {
    /// Adds a callback, unless `has_ended` says that nothing would take it any more: then it is returned. Code that
    /// ends a launch, the job or the engine records that first, and takes callbacks from here afterwards.
    pub fn add(&self, awaited: Awaited, has_ended: impl FnOnce(&Loaded) -> bool) -> Option<Awaited> {
        let mut known = lock(&self.0);
        if has_ended(&awaited.loaded) {
            return Some(awaited);
        }
        known.push(awaited);
        None
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Removes the callbacks that `ended` selects.
    pub fn take(&self, mut which: impl FnMut(&Awaited) -> bool) -> Vec<Awaited> {
        lock(&self.0).extract_if(.., |awaited| which(awaited)).collect()
    }
}
