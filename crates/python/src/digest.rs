//! Digests of memory that Python names by its addresses: what ranks hold is compared without a copy, and without an array object that
//! would change what its owner can do with it.

use pyo3::prelude::*;
use std::slice;

/// The CRC32C of each piece of memory, given as its address and its bytes. Another order of the bytes, or one flipped bit, gives
/// another digest. The memory must be there, and nobody may write to it during the call, which releases the interpreter's lock.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
pub fn digests(py: Python<'_>, pieces: Vec<(usize, usize)>) -> Vec<u32> {
    let of = |&(address, bytes): &(usize, usize)| {
        if bytes == 0 {
            return hocket_protocol::checksum::sum(&[]);
        }
        // SAFETY: by the caller's contract: the memory is there, and nobody writes to it during this call.
        hocket_protocol::checksum::sum(unsafe { slice::from_raw_parts(address as *const u8, bytes) })
    };
    py.detach(|| pieces.iter().map(of).collect())
}
