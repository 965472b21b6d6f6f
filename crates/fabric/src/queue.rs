//! The completion queue: reads what has ended, and errors with the provider's text.

use crate::error::FabricError;
use crate::library::{Library, text_of};
use crate::mirrors::{Cq, CqErrEntry, CqTaggedEntry, FI_EAGAIN, FI_EAVAIL, FI_ECANCELED, FI_ETRUNC};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Completions taken at a time.
const ENTRIES: usize = 64;

/// Limit of a provider's text.
const TEXT_BYTES: usize = 256;

/// One completion, by its operation's context.
pub(crate) struct Ended {
    pub context: *const c_void,
    pub outcome: Result<usize, FabricError>,
}

pub(crate) enum Found {
    Nothing,
    /// As many as fit: there may be more.
    Some(Vec<Ended>),
}

/// Reads completions; makes progress.
///
/// # Safety
/// `queue` is open.
pub(crate) unsafe fn read(library: &Library, queue: *mut Cq) -> Result<Found, FabricError> {
    // SAFETY: the queue is open, so its table of operations is there.
    let ops = unsafe { &*(*queue).ops };
    let call = ops.read.ok_or_else(|| FabricError::Broken("its queue cannot be read".into()))?;
    let mut entries = [MaybeUninit::<CqTaggedEntry>::uninit(); ENTRIES];
    // SAFETY: there is room for as many entries of the format that the queue was opened with.
    let count = unsafe { call(queue, entries.as_mut_ptr().cast(), ENTRIES) };
    if count == -(FI_EAGAIN as isize) {
        return Ok(Found::Nothing);
    }
    if count == -(FI_EAVAIL as isize) {
        // SAFETY: the queue is open.
        return Ok(Found::Some(vec![unsafe { read_error(queue, ops.readerr, ops.strerror) }?]));
    }
    if count < 0 {
        let code = -count as i32;
        return Err(FabricError::Call { call: "fi_cq_read", code, text: library.text(code) });
    }
    if count as usize > ENTRIES {
        return Err(FabricError::Broken(format!("it returned {count} completions for room of {ENTRIES}")));
    }
    let ended = |entry: &MaybeUninit<CqTaggedEntry>| {
        // SAFETY: the provider has written the first `count` entries.
        let entry = unsafe { entry.assume_init() };
        Ended { context: entry.op_context, outcome: Ok(entry.len) }
    };
    Ok(Found::Some(entries[..count as usize].iter().map(ended).collect()))
}

type ReadErr = Option<unsafe extern "C" fn(*mut Cq, *mut CqErrEntry, u64) -> isize>;
type StrErr = Option<
    unsafe extern "C" fn(
        *mut Cq,
        std::ffi::c_int,
        *const c_void,
        *mut std::ffi::c_char,
        usize,
    ) -> *const std::ffi::c_char,
>;

/// The error at the head of the queue.
///
/// # Safety
/// `queue` is open.
unsafe fn read_error(queue: *mut Cq, readerr: ReadErr, strerror: StrErr) -> Result<Ended, FabricError> {
    let call = readerr.ok_or_else(|| FabricError::Broken("its errors cannot be read".into()))?;
    // SAFETY: all bits zero is a value of every field: numbers and pointers.
    let mut entry: CqErrEntry = unsafe { std::mem::zeroed() };
    // SAFETY: the queue is open and the entry writable.
    let count = unsafe { call(queue, &raw mut entry, 0) };
    if count != 1 {
        return Err(FabricError::Broken(format!("reading an announced error returned {count}")));
    }
    let code = entry.err;
    let error = if code == FI_ECANCELED as i32 {
        FabricError::Cancelled
    } else if code == FI_ETRUNC as i32 {
        FabricError::Truncated { excess_bytes: entry.olen }
    } else {
        let mut buffer = [0; TEXT_BYTES];
        let text = strerror.map(|describe| {
            // SAFETY: the queue is open, the error's data is valid until the next read, and the buffer has that length.
            // The provider returns the buffer or a static string.
            unsafe {
                let said = describe(queue, entry.prov_errno, entry.err_data, buffer.as_mut_ptr(), TEXT_BYTES);
                text_of(said)
            }
        });
        FabricError::Completion { code, text: text.unwrap_or_default() }
    };
    Ok(Ended { context: entry.op_context, outcome: Err(error) })
}
