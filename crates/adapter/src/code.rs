//! What runtimes call our errors: XLA and TensorFlow have Abseil's codes.

use hocket_executor::Error;
use std::ffi::c_int;

pub const DEADLINE_EXCEEDED: c_int = 4;
/// A call makes no sense now.
pub const FAILED_PRECONDITION: c_int = 9;
pub const ABORTED: c_int = 10;
pub const INTERNAL: c_int = 13;

pub fn code(cause: &Error) -> c_int {
    match cause {
        Error::Peer(_) | Error::Interrupted { .. } | Error::Mesh { .. } => ABORTED,
        Error::Timeout { .. } => DEADLINE_EXCEEDED,
        Error::Usage(_) => FAILED_PRECONDITION,
        Error::Program { .. } | Error::System(_) => INTERNAL,
    }
}
