//! Where means go that a kernel waits for.

use hocket_adapter::{INTERNAL, Loan, code};
use hocket_executor::Error;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Places of results that are not there yet. Dropping it waits for all.
#[derive(Default)]
pub struct Results(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    missing: usize,
    failed: Option<(c_int, String)>,
}

/// Memory for one result. It has ended when it is dropped.
pub struct Slot {
    results: Arc<Shared>,
    memory: NonNull<u8>,
    bytes: usize,
    done: bool,
}

// SAFETY: whoever has the slot alone writes its memory, and that outlasts the slot, since `Results` waits for it.
unsafe impl Send for Slot {}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Results {
    /// A place for a result of this size.
    ///
    /// # Safety
    /// The memory is nobody else's until these results are dropped.
    pub unsafe fn slot(&self, memory: NonNull<u8>, bytes: usize) -> Slot {
        self.0.lock().missing += 1;
        Slot { results: Arc::clone(&self.0), memory, bytes, done: false }
    }

    /// Until all slots have ended. A group ends each within its time-out. Err: code and text of the first that failed.
    pub fn wait(&self) -> Result<(), (c_int, String)> {
        let mut state = self.0.lock();
        while state.missing > 0 {
            state = self.0.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failed.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        // Of a failure the kernel has told, if it came so far.
        drop(self.wait());
    }
}

impl Loan for Slot {
    fn operand(&self) -> &[u8] {
        &[]
    }

    fn end(mut self: Box<Self>, outcome: Result<&[u8], &Error>) {
        self.done = true;
        match outcome {
            Ok(result) => {
                assert_eq!(result.len(), self.bytes, "a result has the size that TensorFlow knows");
                // SAFETY: as large, ours alone by `Results::slot`, and no part of a bucket.
                unsafe { self.memory.as_ptr().copy_from_nonoverlapping(result.as_ptr(), self.bytes) };
            }
            Err(cause) => {
                self.results.lock().failed.get_or_insert_with(|| (code(cause), cause.to_string()));
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.results.lock();
        if !self.done {
            let what = || (INTERNAL, "a result was dropped before it was there".into());
            state.failed.get_or_insert_with(what);
        }
        state.missing -= 1;
        drop(state);
        self.results.ended.notify_all();
    }
}
