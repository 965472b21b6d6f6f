//! Copies past the caches: stores that do not first read the line that they overwrite.

use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

const VECTOR_BYTES: usize = 32;

/// `dst = src` with non-temporal stores; whole vectors of the destination's alignment, edges as usual.
///
/// # Panics
/// When the lengths differ.
#[target_feature(enable = "avx2")]
pub fn copy(dst: &mut [u8], src: &[u8]) {
    assert_eq!(dst.len(), src.len(), "a copy between slices of different length");
    let head = dst.as_ptr().align_offset(VECTOR_BYTES).min(dst.len());
    let (dst_head, dst_rest) = dst.split_at_mut(head);
    let (src_head, src_rest) = src.split_at(head);
    dst_head.copy_from_slice(src_head);
    let mut to = dst_rest.chunks_exact_mut(4 * VECTOR_BYTES);
    let mut from = src_rest.chunks_exact(4 * VECTOR_BYTES);
    for (to, from) in to.by_ref().zip(from.by_ref()) {
        for at in (0..4 * VECTOR_BYTES).step_by(VECTOR_BYTES) {
            // SAFETY: four vectors lie in each chunk, and those of the destination are aligned by `head`.
            unsafe {
                let value = _mm256_loadu_si256(from.as_ptr().add(at).cast());
                _mm256_stream_si256(to.as_mut_ptr().add(at).cast(), value);
            }
        }
    }
    to.into_remainder().copy_from_slice(from.remainder());
    // Non-temporal stores are ordered with nothing: other threads learn of the copy only after this.
    _mm_sfence();
}
