//! The functions that XLA calls.

use crate::abi::{CallFrame, Error, MAJOR, MINOR, Metadata, Version};
use crate::call::{Call, Kind, Lent};
use crate::operand::Operand;
use crate::runtime::Runtime;
use hocket_adapter::{FAILED_PRECONDITION, Given, INTERNAL, Loan, NOT_DISTRIBUTED, find};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};

/// `XLA_FFI_Handler` of [`Kind::Give`]. Attributes of both: `group` and `leaf`.
///
/// # Safety
/// XLA calls it, with a frame of its own.
pub unsafe extern "C" fn give(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: by the caller's contract.
    unsafe { guarded(frame, Kind::Give) }
}

/// `XLA_FFI_Handler` of [`Kind::TakeBack`].
///
/// # Safety
/// As [`give`].
pub unsafe extern "C" fn take_back(frame: *mut CallFrame) -> *mut Error {
    // SAFETY: by the caller's contract.
    unsafe { guarded(frame, Kind::TakeBack) }
}

/// # Safety
/// As [`give`].
unsafe fn guarded(frame: *mut CallFrame, kind: Kind) -> *mut Error {
    // SAFETY: by the caller's contract.
    let runtime = unsafe { Runtime::of(frame) };
    // SAFETY: as above.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { answer(runtime, frame, kind) }));
    outcome.unwrap_or_else(|_| runtime.error("Hocket panicked; standard error says where", INTERNAL))
}

/// # Safety
/// As [`give`].
unsafe fn answer(runtime: Runtime, frame: *mut CallFrame, kind: Kind) -> *mut Error {
    if let Err(what) = runtime.check() {
        return runtime.error(&what, FAILED_PRECONDITION);
    }
    // SAFETY: by the caller's contract.
    match unsafe { Call::read(frame, kind) } {
        Err(what) => runtime.error(&format!("Hocket's handler: {what}"), INTERNAL),
        Ok(Call::Prepare) => null_mut(),
        Ok(Call::Describe(metadata)) => {
            // SAFETY: `read` has seen that it is large enough; it is there to be written.
            unsafe { describe(runtime, metadata) };
            null_mut()
        }
        // SAFETY: by the caller's contract, gradient and result are valid until the future of this frame has ended.
        Ok(Call::Execute(lent)) => unsafe { execute(runtime, frame, &lent, kind) },
    }
}

/// # Safety
/// `metadata` may be written.
unsafe fn describe(runtime: Runtime, metadata: *mut Metadata) {
    let (_, minor) = runtime.version();
    let version = Version {
        struct_size: size_of::<Version>(),
        extension: null_mut(),
        major: MAJOR,
        // The runtime supports what is older than itself.
        minor: minor.min(MINOR),
    };
    // SAFETY: by the caller's contract.
    unsafe {
        (*metadata).version = version;
        (*metadata).traits = 0;
    }
}

/// # Safety
/// As [`answer`].
unsafe fn execute(runtime: Runtime, frame: *mut CallFrame, lent: &Lent, kind: Kind) -> *mut Error {
    let Some(group) = find(lent.group) else {
        return runtime.error(NOT_DISTRIBUTED, FAILED_PRECONDITION);
    };
    let future = match runtime.future().map(NonNull::new) {
        Err(error) => return error,
        Ok(None) => return runtime.error("XLA made no future", INTERNAL),
        Ok(Some(future)) => future,
    };
    // Called once: a future ends once.
    let operand = || {
        // SAFETY: the runtime keeps gradient and result until the future has ended, since the frame has it.
        unsafe {
            (*frame).future = future.as_ptr();
            Box::new(Operand::new(runtime, future, *lent))
        }
    };
    if kind == Kind::TakeBack {
        group.take_back(lent.leaf, lent.turn, operand());
        return null_mut();
    }
    // SAFETY: as large as `read` has seen, and valid for this call at least.
    match group.give(lent.leaf, lent.turn, unsafe { lent.gradient() }, || operand()) {
        Ok(Given::Later) => {}
        Ok(Given::Now) => operand().end(Ok(&lent.turn.to_ne_bytes())),
        Err(cause) => operand().end(Err(&cause)),
    }
    null_mut()
}
