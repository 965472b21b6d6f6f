//! Reduces buckets of several ranks in place: each rank processes some blocks of all of them.
//!
//! Memory bounds it: a block is reduced straight out of all buckets and written to all of them while it is in the
//! caches, so n buckets are read once and written once, which is the minimum.

use crate::claims::Claims;
use crate::memory::Region;
use hocket_kernels::{DType, ReduceOp, Source, reduce_many, scale};
use std::ops::Range;

/// Bytes reduced and written to all buckets before the next: with its copies, a block stays in the second-level cache.
const BLOCK_BYTES: usize = 16 * 1024;
/// Parts start at cache lines.
const LINE_BYTES: usize = 64;

/// The part of `bytes` that member `at` of `members` reduces.
pub fn part(bytes: usize, members: usize, at: usize) -> Range<usize> {
    let each = bytes.div_ceil(members).next_multiple_of(LINE_BYTES);
    (at * each).min(bytes)..((at + 1) * each).min(bytes)
}

/// The bytes `claimed` of all `buckets`, which have equal lengths, become `factor` times their reduction, in the order
/// of the buckets, while `go_on` says so before each block. Returns whether all of them did.
///
/// # Panics
/// When there is no bucket, or one is shorter than the claimed range.
pub fn reduce_in_place(
    buckets: &[Region],
    claimed: Claims,
    op: ReduceOp,
    dtype: DType,
    factor: f64,
    go_on: impl Fn() -> bool,
) -> bool {
    for (start, len) in claimed.pieces(BLOCK_BYTES) {
        if !go_on() {
            return false;
        }
        let blocks: Vec<Region> = buckets.iter().map(|bucket| bucket.sub(start, len)).collect();
        let mut sources = vec![Source::Dst];
        sources.extend(blocks[1..].iter().map(|block| Source::Bytes(block.as_bytes())));
        let first = blocks[0].as_bytes_mut();
        reduce_many(op, dtype, first, &sources, len);
        #[expect(clippy::float_cmp, reason = "exactly one changes nothing")]
        if factor != 1.0 {
            scale(dtype, first, factor);
        }
        for block in &blocks[1..] {
            block.as_bytes_mut().copy_from_slice(first);
        }
    }
    true
}
