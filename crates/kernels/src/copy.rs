//! `dst = src` for blocks that may be too large for the caches.

#[cfg(target_arch = "x86_64")]
use crate::{dispatch, fill::past_caches, x86::stream};

/// Copies `src` to `dst`, past the caches when it is part of `together_bytes` that do not fit them.
///
/// # Panics
/// When the lengths differ.
pub fn copy(dst: &mut [u8], src: &[u8], together_bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if past_caches(src.len(), together_bytes) && dispatch::level() != dispatch::Level::Scalar {
        // SAFETY: both other levels of x86-64 include AVX2.
        return unsafe { stream::copy(dst, src) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = together_bytes;
    dst.copy_from_slice(src);
}
