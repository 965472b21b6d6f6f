//! `dst = src` for blocks that are not read again soon.

#[cfg(target_arch = "x86_64")]
use crate::{dispatch, x86::stream};

/// From this size on, what is written would push more useful data out of the caches than it leaves there.
const STREAM_BYTES_MIN: usize = 4 << 20;

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
