//! The thread that calls Python when launches end: the executor's own threads must not wait for the GIL.

use crate::exceptions::{Raised, error, raise};
use hocket_executor::{Engine as Executor, Error, panic_text};
use pyo3::prelude::*;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The end of a launch, for Python.
struct Notice {
    program: u32,
    callback: Py<PyAny>,
    outcome: Result<(), Error>,
}

/// Starts with the first callback.
#[derive(Default)]
enum State {
    #[default]
    Idle,
    Running(Sender<Notice>, JoinHandle<()>),
    Closed,
}

/// Calls callbacks one after the other, in the order in which launches end.
#[derive(Default)]
pub struct Notifier(Mutex<State>);

impl Notifier {
    /// Calls `callback(error or None)` when the running launch of `program` ends.
    pub fn on_complete(
        &self,
        py: Python<'_>,
        executor: &Arc<Executor>,
        program: u32,
        callback: Py<PyAny>,
        timeout: Duration,
    ) -> PyResult<()> {
        let started = py.detach(|| self.sender(executor));
        let sender =
            started.map_err(|cause| error(py, "Error", &format!("cannot start a thread: {cause}")))?;
        let sender = sender.ok_or_else(|| error(py, "UsageError", "the engine is closed"))?;
        let notify = move |outcome| {
            // The thread ends before its senders only when Python does.
            drop(sender.send(Notice { program, callback, outcome }));
        };
        executor.on_complete(program, timeout, notify).raised(py)
    }

    /// Call after the executor has closed: ends the thread when it has made all calls. Without the GIL, which the
    /// thread needs.
    pub fn close(&self) {
        let before = std::mem::replace(&mut *self.lock(), State::Closed);
        if let State::Running(sender, handle) = before {
            drop(sender);
            if handle.thread().id() != thread::current().id() {
                // It panics only with PyO3.
                drop(handle.join());
            }
        }
    }

    /// `None` after closing.
    fn sender(&self, executor: &Arc<Executor>) -> io::Result<Option<Sender<Notice>>> {
        let mut state = self.lock();
        match &*state {
            State::Closed => Ok(None),
            State::Running(sender, _) => Ok(Some(sender.clone())),
            State::Idle => {
                let (sender, notices) = channel();
                let executor = Arc::downgrade(executor);
                let builder = thread::Builder::new().name("hocket-notify".into());
                let handle = builder.spawn(move || guarded(&notices, &executor))?;
                *state = State::Running(sender.clone(), handle);
                Ok(Some(sender))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread: if it panics, nobody would be called any more, and the job ends.
fn guarded(notices: &Receiver<Notice>, executor: &Weak<Executor>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| call_all(notices, executor)))
        && let Some(executor) = executor.upgrade()
    {
        executor.abort(&format!("the thread `hocket-notify` panicked: {}", panic_text(&*panic)));
    }
}

/// The main loop of the thread.
fn call_all(notices: &Receiver<Notice>, executor: &Weak<Executor>) {
    for notice in notices {
        // No calls while Python shuts down.
        let Some(raised) = Python::try_attach(|py| notice.call(py)) else { return };
        if let (Some(what), Some(executor)) = (raised, executor.upgrade()) {
            executor.abort(&what);
        }
    }
}

impl Notice {
    /// The callback's exception as text; its traceback is printed.
    fn call(self, py: Python<'_>) -> Option<String> {
        let argument = match &self.outcome {
            Ok(()) => py.None(),
            Err(cause) => raise(py, cause).into_value(py).into_any(),
        };
        let raised = self.callback.call1(py, (argument,)).err()?;
        let what = format!("the completion callback of program {} raised {raised}", self.program);
        raised.write_unraisable(py, Some(self.callback.bind(py)));
        Some(what)
    }
}
