//! The end of a launch: a wait, or a callback (`completions.rs` has its rules).

use crate::completions::{Awaited, Notify, call, in_callback};
use crate::core::Core;
use crate::engine::{Engine, WAKE};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::waiting::Waiting;
use crate::waits::NotedWait;
use hocket_ids::Rank;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Engine {
    /// Waits until all launches so far are complete. `interrupted` is called several times a second and ends the wait with
    /// `Ok(false)`.
    pub fn wait(
        &self,
        program: u32,
        timeout: Duration,
        interrupted: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        self.wait_until(program, timeout, interrupted, Loaded::is_complete)
    }

    /// Waits until the first `launches` launches of the program are complete, otherwise as [`Self::wait`].
    pub fn wait_for(
        &self,
        program: u32,
        launches: u32,
        timeout: Duration,
        interrupted: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        self.wait_until(program, timeout, interrupted, |loaded| loaded.has_completed(launches))
    }

    fn wait_until(
        &self,
        program: u32,
        timeout: Duration,
        mut interrupted: impl FnMut() -> bool,
        is_complete: impl Fn(&Loaded) -> bool,
    ) -> Result<bool, Error> {
        let core = self.core();
        let loaded = core.loaded(program)?;
        if in_callback() {
            return Err(Error::Usage(format!("a completion callback waits for `{}`", loaded.label)));
        }
        let deadline = Instant::now() + timeout;
        let (mut culprits, mut noted): (Option<Vec<Rank>>, _) = (None, None);
        loop {
            if is_complete(&loaded) {
                return Ok(true);
            }
            if let Some(failure) = core.failure() {
                return Err(failure);
            }
            if let Some(culprits) = culprits {
                return Err(core.timed_out(&loaded, timeout, &culprits));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let launch = Some((loaded.number, loaded.instance()));
                culprits = Some(core.culprits(launch, loaded.awaited(), timeout, || !is_complete(&loaded)));
                continue;
            }
            core.wait_for_change(left.min(WAKE), || !is_complete(&loaded));
            noted.get_or_insert_with(|| NotedWait::new(&core, Waiting::Program(program)));
            if interrupted() {
                return Ok(false);
            }
        }
    }

    /// Whether nothing of the program runs: [`Self::wait`] would return at once.
    pub fn is_complete(&self, program: u32) -> Result<bool, Error> {
        Ok(self.loaded(program)?.is_complete())
    }

    /// Calls `notify` once: when all launches so far are complete, when the job fails, or after `timeout`; at once if
    /// nothing is running. The head of `completions.rs` has the rules for `notify`; above all, it must not block.
    pub fn on_complete(
        &self,
        program: u32,
        timeout: Duration,
        notify: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let core = self.core();
        core.on_complete(core.loaded(program)?, timeout, Box::new(notify));
        Ok(())
    }
}

impl Core {
    /// Calls `notify` when the running launch of `loaded` ends, or at once if nothing is running.
    pub fn on_complete(&self, loaded: Arc<Loaded>, timeout: Duration, notify: Notify) {
        let awaited = Awaited::new(loaded, timeout, notify);
        self.await_end(awaited);
    }

    fn await_end(&self, awaited: Awaited) {
        let launches = awaited.launches();
        let has_ended = |loaded: &Loaded| {
            loaded.is_complete()
                || loaded.has_completed(launches)
                || self.failure().is_some()
                || self.is_closing()
        };
        if let Some(awaited) = self.completions.add(awaited, has_ended) {
            self.end(awaited, &[]);
        }
    }

    /// An instance is complete.
    pub fn notify_completed(&self, program: u32, instance: u32) {
        let which = |awaited: &Awaited| awaited.loaded.number == program && awaited.instance <= instance;
        for awaited in self.completions.take(which) {
            self.call(awaited.notify, Ok(()));
        }
    }

    /// Called by the I/O thread on each turn: after a failure nothing completes any more, and deadlines pass.
    pub fn notify_ended(&self) {
        if self.completions.is_empty() {
            return;
        }
        let failed = self.failure().is_some();
        let now = Instant::now();
        for awaited in self.completions.take(|awaited| failed || awaited.deadline <= now) {
            if failed { self.end(awaited, &[]) } else { self.overdue(awaited) }
        }
    }

    /// A deadline has passed: asks who is at fault, or ends what was awaited when that is known.
    fn overdue(&self, mut awaited: Awaited) {
        let culprits = if let Some(inquiry) = awaited.inquiry {
            self.waits.concluded(inquiry, Instant::now())
        } else {
            let ranks = awaited.loaded.awaited();
            let launch = Some((awaited.loaded.number, awaited.instance));
            awaited.inquiry = self.inquire(launch, ranks.clone(), awaited.timeout);
            awaited.inquiry.is_none().then_some(ranks)
        };
        match culprits {
            Some(culprits) => self.end(awaited, &culprits),
            None => self.await_end(awaited),
        }
    }

    /// The threads have ended.
    pub fn notify_closed(&self) {
        for awaited in self.completions.take(|_| true) {
            self.end(awaited, &[]);
        }
    }

    /// `culprits`: of a wait that is over.
    fn end(&self, awaited: Awaited, culprits: &[Rank]) {
        let launches = awaited.launches();
        let Awaited { loaded, timeout, notify, .. } = awaited;
        let outcome = match self.failure() {
            _ if loaded.is_complete() || loaded.has_completed(launches) => Ok(()),
            Some(failure) => Err(failure),
            None if self.is_closing() => Err(Error::Usage(format!("closed while `{}` runs", loaded.label))),
            None => Err(self.timed_out(&loaded, timeout, culprits)),
        };
        self.call(notify, outcome);
    }

    fn call(&self, notify: Notify, outcome: Result<(), Error>) {
        if !call(notify, outcome) {
            self.fail_here(None, "a completion callback panicked");
        }
    }
}
