//! `dst = src` for blocks that may be too large for the caches.

use crate::past_caches::PastCaches;

/// Copies `src` to `dst`, past the caches when it is part of `together_bytes` that do not fit them.
///
/// # Panics
/// When the lengths differ.
pub fn copy(dst: &mut [u8], src: &[u8], together_bytes: usize) {
    match PastCaches::worthwhile(src.len(), together_bytes) {
        Some(past_caches) => past_caches.copy(dst, src),
        None => dst.copy_from_slice(src),
    }
}
