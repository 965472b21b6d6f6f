//! `dst = src` for blocks that may be too large for the caches.

#[cfg(target_arch = "x86_64")]
use crate::{dispatch, x86::stream};

/// From this size on what is moved does not fit a last-level cache, and stores that do not read the line that they
/// overwrite win. With a cache of 32 MiB they were 0.6 × `memcpy` at 8 MiB, 1.6 × at 16 MiB.
#[cfg(target_arch = "x86_64")]
const TOGETHER_BYTES_MIN: usize = 16 << 20;

/// Below, the fence at the end of such stores costs more than they save.
#[cfg(target_arch = "x86_64")]
const STREAM_BYTES_MIN: usize = 64 << 10;

/// Copies `src` to `dst`, past the caches when it is part of `together_bytes` that do not fit them.
///
/// # Panics
/// When the lengths differ.
pub fn copy(dst: &mut [u8], src: &[u8], together_bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if together_bytes >= TOGETHER_BYTES_MIN
        && src.len() >= STREAM_BYTES_MIN
        && dispatch::level() != dispatch::Level::Scalar
    {
        // SAFETY: both other levels of x86-64 include AVX2.
        return unsafe { stream::copy(dst, src) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = together_bytes;
    dst.copy_from_slice(src);
}
