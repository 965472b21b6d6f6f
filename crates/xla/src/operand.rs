//! XLA's memory for a leaf, with the future that tells the runtime when it is done with.

use crate::abi::Future;
use crate::call::Lent;
use crate::runtime::Runtime;
use hocket_adapter::{INTERNAL, Loan, code};
use hocket_executor::Error;
use std::ffi::c_int;
use std::ptr::NonNull;

/// Ends once: with its result, an error, or when it is dropped.
pub struct Operand {
    runtime: Runtime,
    /// `None` once it has ended.
    future: Option<NonNull<Future>>,
    lent: Lent,
}

// SAFETY: the runtime keeps the gradient's and the result's memory for us until the future has ended, and lets no other
// thread write the one or read the other.
unsafe impl Send for Operand {}

impl Operand {
    /// # Safety
    /// `future` is a new one of the runtime, and the call's memory is valid until it ends.
    pub unsafe fn new(runtime: Runtime, future: NonNull<Future>, lent: Lent) -> Self {
        Self { runtime, future: Some(future), lent }
    }

    fn fail(&mut self, message: &str, code: c_int) {
        if let Some(future) = self.future.take() {
            // SAFETY: taken once, so it has not ended.
            unsafe { self.runtime.set_error(future.as_ptr(), message, code) };
        }
    }
}

impl Loan for Operand {
    fn operand(&self) -> &[u8] {
        // SAFETY: valid and not written until the future ends, by `new`; `end` consumes the loan.
        unsafe { self.lent.gradient() }
    }

    fn end(mut self: Box<Self>, outcome: Result<&[u8], &Error>) {
        match outcome {
            Ok(result) if result.len() != self.lent.result_bytes => {
                let what =
                    format!("a result of {} bytes, and XLA knows {}", result.len(), self.lent.result_bytes);
                self.fail(&what, INTERNAL);
            }
            Ok(result) => {
                let Some(future) = self.future.take() else { return };
                // SAFETY: as large, ours to write until the future ends, and no part of a bucket; taken once.
                unsafe {
                    self.lent.result.copy_from_nonoverlapping(result.as_ptr(), self.lent.result_bytes);
                    self.runtime.set_available(future.as_ptr());
                }
            }
            Err(cause) => self.fail(&cause.to_string(), code(cause)),
        }
    }
}

impl Drop for Operand {
    fn drop(&mut self) {
        self.fail("a gradient was dropped before its mean was there", INTERNAL);
    }
}
