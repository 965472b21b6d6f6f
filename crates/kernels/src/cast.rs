//! `dst = convert(src)`.
//!
//! Floats round to nearest even; integers keep their low bits. Bound by memory: reads the source and writes the
//! destination once, past the caches if both do not fit them. Within the caches, conversions to bf16 are bound by their
//! instructions.

use crate::dispatch::{self, Kernel};
use crate::dtype::{DType, common_count};
use crate::fill::{self, Make};
use crate::half_float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_odd_f32};
use crate::lanes::{BF16, F16, F32, Format, Lanes};
use std::marker::PhantomData;

/// Converts between floats, or between integers; equal types are copied.
///
/// # Panics
/// When the slices differ in elements or hold a partial one, or one type is a float and the other an integer: programs
/// are checked for it.
///
/// ```
/// use hocket_kernels::{DType, cast};
/// let mut half = [0; 2];
/// cast(DType::F16, &mut half, DType::F32, &1.0_f32.to_ne_bytes());
/// assert_eq!(u16::from_ne_bytes(half), 0x3c00);
/// ```
pub fn cast(dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) {
    common_count(dst_dtype, dst, src_dtype, src);
    match (dst_dtype, src_dtype) {
        _ if dst_dtype == src_dtype => dst.copy_from_slice(src),
        (DType::F16, DType::F32) => lanes::<F16, F32>(dst, src),
        (DType::BF16, DType::F32) => lanes::<BF16, F32>(dst, src),
        (DType::F32, DType::F16) => lanes::<F32, F16>(dst, src),
        (DType::F32, DType::BF16) => lanes::<F32, BF16>(dst, src),
        (DType::F16, DType::BF16) => lanes::<F16, BF16>(dst, src),
        (DType::BF16, DType::F16) => lanes::<BF16, F16>(dst, src),
        (DType::F64, DType::F32) => each(dst, src, |value: f32| f64::from(value)),
        (DType::F64, DType::F16) => each(dst, src, |bits: u16| f64::from(f16_to_f32(bits))),
        (DType::F64, DType::BF16) => each(dst, src, |bits: u16| f64::from(bf16_to_f32(bits))),
        (DType::F32, DType::F64) => each(dst, src, |value: f64| value as f32),
        (DType::F16, DType::F64) => each(dst, src, |value: f64| f32_to_f16(f64_to_odd_f32(value))),
        (DType::BF16, DType::F64) => each(dst, src, |value: f64| f32_to_bf16(f64_to_odd_f32(value))),
        (DType::I64, DType::I32) => each(dst, src, |value: i32| i64::from(value)),
        (DType::I64, DType::I8) => each(dst, src, |value: i8| i64::from(value)),
        (DType::I64, DType::U8) => each(dst, src, |value: u8| i64::from(value)),
        (DType::I32, DType::I64) => each(dst, src, |value: i64| value as i32),
        (DType::I32, DType::I8) => each(dst, src, |value: i8| i32::from(value)),
        (DType::I32, DType::U8) => each(dst, src, |value: u8| i32::from(value)),
        (DType::I8 | DType::U8, DType::I64) => each(dst, src, |value: i64| value as u8),
        (DType::I8 | DType::U8, DType::I32) => each(dst, src, |value: i32| value as u8),
        (DType::I8, DType::U8) | (DType::U8, DType::I8) => dst.copy_from_slice(src),
        _ => panic!("a cast of {src_dtype:?} to {dst_dtype:?}: only floats or only integers"),
    }
}

struct Converted<D, S> {
    src: *const u8,
    formats: PhantomData<(D, S)>,
}

impl<D: Format, S: Format> Make for Converted<D, S> {
    const BYTES: usize = D::BYTES;

    #[inline(always)]
    fn count<L: Lanes>() -> usize {
        L::COUNT
    }

    #[inline(always)]
    unsafe fn vectors<L: Lanes, const N: usize>(&self, index: usize, to: *mut u8) {
        for turn in 0..N {
            let at = turn * L::COUNT;
            // SAFETY: the caller's.
            unsafe { D::store(S::load::<L>(self.src.add((index + at) * S::BYTES)), to.add(at * D::BYTES)) }
        }
    }

    #[inline(always)]
    unsafe fn fetch_ahead<L: Lanes>(&self, index: usize, elements: usize) {
        // SAFETY: the caller's.
        unsafe { fill::fetch_ahead::<L>(self.src.wrapping_add(index * S::BYTES), elements * S::BYTES) }
    }

    #[inline(always)]
    unsafe fn one(&self, index: usize, to: *mut u8) {
        // SAFETY: the caller's; any CPU has one f32.
        unsafe { self.vectors::<f32, 1>(index, to) }
    }
}

fn lanes<D: Format, S: Format>(dst: &mut [u8], src: &[u8]) {
    let together_bytes = dst.len() + src.len();
    let make = Converted::<D, S> { src: src.as_ptr(), formats: PhantomData };
    // SAFETY: `cast` has compared the lengths.
    unsafe { fill::fill(dst, make, together_bytes) }
}

struct Each<'a, D, S, F> {
    dst: &'a mut [u8],
    src: &'a [u8],
    convert: F,
    types: PhantomData<(D, S)>,
}

impl<D: Copy, S: Copy, F: Fn(S) -> D> Kernel for Each<'_, D, S, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let sources = self.src.chunks_exact(size_of::<S>());
        for (to, from) in self.dst.chunks_exact_mut(size_of::<D>()).zip(sources) {
            // SAFETY: a chunk has the bytes of its type, all of whose bit patterns are numbers.
            unsafe {
                let value = from.as_ptr().cast::<S>().read_unaligned();
                to.as_mut_ptr().cast::<D>().write_unaligned((self.convert)(value));
            }
        }
    }
}

fn each<D: Copy, S: Copy>(dst: &mut [u8], src: &[u8], convert: impl Fn(S) -> D) {
    dispatch::run(Each { dst, src, convert, types: PhantomData });
}
