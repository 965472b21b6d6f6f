//! The end of a rank's part in its job: in order, with its process's exit code where that is known in time.
//!
//! A script that calls `sys.exit(3)` leaves in order, as far as its engine is concerned. So that the others learn the code,
//! the engine's owner may close it as the interpreter ends ([`Engine::close_until_exit`]), when nobody knows the code yet,
//! and say goodbye in a function that the C library calls with it ([`Engine::exit`]). In between, the I/O thread answers.

use crate::core::Core;
use crate::engine::{Engine, WAKE};
use crate::error::Error;
use crate::lock::lock;
use hocket_protocol::word::Word;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long ops may take that run as the process ends.
const QUIET_PATIENCE: Duration = Duration::from_secs(2);

impl Engine {
    /// Shuts down in order; idempotent.
    pub fn close(&self) {
        let core = self.core();
        if !core.closing.load(Ordering::Acquire) {
            core.tell_given_up(true);
        }
        self.leave(&core);
        self.end(&core);
    }

    /// Shuts down, but for the goodbye: nothing more is computed here, and a thread answers the others until [`Self::exit`].
    pub fn close_until_exit(&self) {
        let core = self.core();
        if core.closing.load(Ordering::Acquire) {
            return;
        }
        core.holds.store(true, Ordering::Release);
        core.wake_workers();
        // As below.
        drop(core.bell.waker().wake());
        let deadline = Instant::now() + QUIET_PATIENCE;
        while core.peers.get().is_some() && core.is_busy() && Instant::now() < deadline {
            core.wait_for_quiet(WAKE);
        }
        self.end(&core);
    }

    /// The process of such an engine ends with this exit code: says so, and leaves. Other threads may have been stopped
    /// wherever they were.
    pub fn exit(&self, exit_code: u8) {
        let core = self.core();
        if core.closing.load(Ordering::Acquire) {
            return;
        }
        if exit_code != 0 {
            core.tell_given_up(false);
        }
        core.say_to_all(Word::Exit { rank: core.own.rank, code: exit_code });
        self.leave(&core);
    }

    /// Says goodbye, and ends the threads.
    fn leave(&self, core: &Core) {
        let mut threads = lock(&self.threads);
        core.closing.store(true, Ordering::Release);
        core.wake_workers();
        // A lost wake-up would only cost the bound of a sleep; the threads check the flag by themselves.
        drop(core.bell.waker().wake());
        drop(threads.join());
    }

    /// Nothing is computed any more.
    fn end(&self, core: &Core) {
        core.notify_closed();
        drop(lock(&self.listener).take());
        drop(lock(&self.life).take());
        if let Some(recorder) = &core.recorder {
            recorder.finish();
        }
    }

    /// Whether this rank leaves the job, or has left it.
    pub fn is_closing(&self) -> bool {
        self.core().is_closing()
    }

    /// The failure of the job, if it failed.
    pub fn failure(&self) -> Option<Error> {
        self.core().failure()
    }
}

impl Core {
    /// Whether this rank leaves the job, or has left it.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire) || self.holds.load(Ordering::Acquire)
    }

    /// This rank leaves because a wait was over: the others wait for whoever did not come, too, and not for this one.
    fn tell_given_up(&self, certain: bool) {
        if !self.elastic
            && self.failure().is_none()
            && let Some(failure) = self.given_up(certain)
        {
            self.tell_all(&failure);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
