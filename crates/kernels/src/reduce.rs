//! `dst = dst ⊕ src`, with a conversion on the way where the types differ.
//!
//! Budget: two reads and a write per element; 16-bit floats pass a block of f32 in the first-level cache.

use crate::convert::{BLOCK, from_f64, narrow, to_f64, widen};
use crate::dispatch::dispatched;
use crate::dtype::{DType, ReduceOp};

/// `dst = dst ⊕ convert(src)`. `src_dtype` equals `dst_dtype`, or both are floats; 16-bit sums are taken in f32 and
/// rounded once per element.
///
/// # Panics
/// When the element counts differ, or the types cannot be combined.
pub fn reduce(op: ReduceOp, dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) {
    check(dst_dtype, dst, src_dtype, src);
    match (dst_dtype, src_dtype) {
        (DType::F32, DType::F32) => reduce_f32(op, dst, src),
        (DType::F64, DType::F64) => reduce_f64(op, dst, src),
        (DType::I64, DType::I64) => reduce_i64(op, dst, src),
        (DType::I32, DType::I32) => reduce_i32(op, dst, src),
        (DType::I8, DType::I8) => reduce_i8(op, dst, src),
        (DType::U8, DType::U8) => reduce_u8(op, dst, src),
        (DType::F32 | DType::F16 | DType::BF16, DType::F32 | DType::F16 | DType::BF16) => {
            reduce_converted(op, dst_dtype, dst, src_dtype, src);
        }
        _ => {
            for (d, s) in dst.chunks_exact_mut(dst_dtype.bytes()).zip(src.chunks_exact(src_dtype.bytes())) {
                from_f64(dst_dtype, combine(op, to_f64(dst_dtype, d), to_f64(src_dtype, s)), d);
            }
        }
    }
}

/// `dst = dst ⊕ srcs[0] ⊕ srcs[1] …` in that order, a cache-sized block at a time.
///
/// # Panics
/// As [`reduce`].
pub fn reduce_many(op: ReduceOp, dtype: DType, dst: &mut [u8], srcs: &[&[u8]]) {
    const BLOCK_BYTES: usize = 64 * 1024;
    for (at, block) in dst.chunks_mut(BLOCK_BYTES).enumerate() {
        for src in srcs {
            reduce(op, dtype, block, dtype, &src[at * BLOCK_BYTES..][..block.len()]);
        }
    }
}

pub(crate) fn check(dst_dtype: DType, dst: &[u8], src_dtype: DType, src: &[u8]) {
    let (d, s) = (dst_dtype.bytes(), src_dtype.bytes());
    assert!(
        dst.len().is_multiple_of(d) && src.len().is_multiple_of(s) && dst.len() / d == src.len() / s,
        "{} bytes of {dst_dtype:?} and {} bytes of {src_dtype:?} are not the same elements",
        dst.len(),
        src.len()
    );
}

fn combine(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Sum => a + b,
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
    }
}

fn reduce_converted(op: ReduceOp, dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) {
    let (mut left, mut right) = ([0.0; BLOCK], [0.0; BLOCK]);
    let blocks = dst.chunks_mut(BLOCK * dst_dtype.bytes()).zip(src.chunks(BLOCK * src_dtype.bytes()));
    for (dst, src) in blocks {
        let elements = widen(src_dtype, src, &mut right);
        widen(dst_dtype, dst, &mut left);
        combine_f32(op, &mut left[..elements], &right[..elements]);
        narrow(dst_dtype, &left[..elements], dst);
    }
}

dispatched! {
    fn combine_f32(op: ReduceOp, left: &mut [f32], right: &[f32]) {
        match op {
            ReduceOp::Sum => left.iter_mut().zip(right).for_each(|(l, r)| *l += r),
            ReduceOp::Min => left.iter_mut().zip(right).for_each(|(l, r)| *l = l.min(*r)),
            ReduceOp::Max => left.iter_mut().zip(right).for_each(|(l, r)| *l = l.max(*r)),
        }
    }
}

macro_rules! same_type {
    ($name:ident, $type:ty, $bytes:literal, $sum:expr) => {
        dispatched! {
            fn $name(op: ReduceOp, dst: &mut [u8], src: &[u8]) {
                #[inline(always)]
                fn each(dst: &mut [u8], src: &[u8], f: impl Fn($type, $type) -> $type) {
                    let (dst, _) = dst.as_chunks_mut::<$bytes>();
                    let (src, _) = src.as_chunks::<$bytes>();
                    for (d, s) in dst.iter_mut().zip(src) {
                        *d = f(<$type>::from_le_bytes(*d), <$type>::from_le_bytes(*s)).to_le_bytes();
                    }
                }
                match op {
                    ReduceOp::Sum => each(dst, src, $sum),
                    ReduceOp::Min => each(dst, src, |a, b| a.min(b)),
                    ReduceOp::Max => each(dst, src, |a, b| a.max(b)),
                }
            }
        }
    };
}

same_type!(reduce_f64, f64, 8, |a, b| a + b);
same_type!(reduce_f32, f32, 4, |a, b| a + b);
same_type!(reduce_i64, i64, 8, i64::wrapping_add);
same_type!(reduce_i32, i32, 4, i32::wrapping_add);
same_type!(reduce_i8, i8, 1, i8::wrapping_add);
same_type!(reduce_u8, u8, 1, u8::wrapping_add);
