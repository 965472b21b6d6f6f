//! `dst = src` for blocks that may be too large for the caches.

#[cfg(target_arch = "x86_64")]
use crate::{dispatch, x86::stream};

/// From this size on `dst` and `src` do not fit a last-level cache together, and stores that do not read the line that
/// they overwrite win. With a cache of 32 MiB they were 0.6 × `memcpy` at 8 MiB, 1.6 × at 16 MiB. Tests take the path
/// with less.
#[cfg(target_arch = "x86_64")]
const STREAM_BYTES_MIN: usize = if cfg!(test) { 1 << 16 } else { 16 << 20 };

/// Copies `src` to `dst`; large blocks past the caches.
///
/// # Panics
/// When the lengths differ.
pub fn copy_streaming(dst: &mut [u8], src: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if src.len() >= STREAM_BYTES_MIN && dispatch::level() != dispatch::Level::Scalar {
        // SAFETY: both other levels of x86-64 include AVX2.
        return unsafe { stream::copy(dst, src) };
    }
    dst.copy_from_slice(src);
}
