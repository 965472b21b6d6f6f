//! Kernels over one buffer: scaling, and rounding to another type's values. Both read and write it once.

use crate::cast::cast;
use crate::dispatch::{self, Kernel, Step, Sweep};
use crate::dtype::{DType, count, fits};
use crate::element::Element;
use crate::lanes::{BF16, F16, F32, Format, Lanes};
use std::marker::PhantomData;

/// `dst = dst · factor`. Floats up to 32 bits multiply by the factor's nearest f32; integers round to nearest even and
/// saturate.
///
/// # Panics
/// When `dst` holds part of an element.
pub fn scale(dtype: DType, dst: &mut [u8], factor: f64) {
    let elements = count(dtype, dst.len());
    match dtype {
        DType::F32 => in_lanes(dst, elements, Times::<F32>(factor as f32, PhantomData)),
        DType::F16 => in_lanes(dst, elements, Times::<F16>(factor as f32, PhantomData)),
        DType::BF16 => in_lanes(dst, elements, Times::<BF16>(factor as f32, PhantomData)),
        DType::F64 => dispatch::run(Plain::<f64> { dst, factor, kind: PhantomData }),
        DType::I64 => dispatch::run(Plain::<i64> { dst, factor, kind: PhantomData }),
        DType::I32 => dispatch::run(Plain::<i32> { dst, factor, kind: PhantomData }),
        DType::I8 => dispatch::run(Plain::<i8> { dst, factor, kind: PhantomData }),
        DType::U8 => dispatch::run(Plain::<u8> { dst, factor, kind: PhantomData }),
    }
}

/// Each element of `dst` becomes what it would be after a [`cast`] to `to` and back.
///
/// # Panics
/// When `dst` holds part of an element, or one type is a float and the other an integer.
pub fn round(dtype: DType, dst: &mut [u8], to: DType) {
    let elements = count(dtype, dst.len());
    match (dtype, to) {
        (DType::F32, DType::F16) => in_lanes(dst, elements, Rounded::<F16>(PhantomData)),
        (DType::F32, DType::BF16) => in_lanes(dst, elements, Rounded::<BF16>(PhantomData)),
        _ if fits(dtype, to) => {}
        _ => through(dtype, dst, to),
    }
}

/// The operation on a vector's values between load and store.
trait Change {
    type Format: Format;

    /// # Safety
    /// The CPU has the features of `L`.
    unsafe fn change<L: Lanes>(&self, values: L) -> L;
}

struct Times<F>(f32, PhantomData<F>);

impl<F: Format> Change for Times<F> {
    type Format = F;

    #[inline(always)]
    unsafe fn change<L: Lanes>(&self, values: L) -> L {
        // SAFETY: the caller's.
        unsafe { values.mul(L::splat(self.0)) }
    }
}

struct Rounded<T>(PhantomData<T>);

impl<T: Format> Change for Rounded<T> {
    type Format = F32;

    #[inline(always)]
    unsafe fn change<L: Lanes>(&self, values: L) -> L {
        // SAFETY: the caller's.
        unsafe { T::round(values) }
    }
}

struct InPlace<C> {
    dst: *mut u8,
    change: C,
}

impl<C: Change> Step for InPlace<C> {
    #[inline(always)]
    unsafe fn at<L: Lanes>(&self, index: usize) {
        // SAFETY: the caller's: CPU features, and elements up to `index + L::COUNT`.
        unsafe {
            let dst = self.dst.add(index * C::Format::BYTES);
            C::Format::store(self.change.change(C::Format::load::<L>(dst)), dst);
        }
    }
}

fn in_lanes<C: Change>(dst: &mut [u8], elements: usize, change: C) {
    dispatch::run(Sweep { elements, step: InPlace { dst: dst.as_mut_ptr(), change } });
}

struct Plain<'a, E> {
    dst: &'a mut [u8],
    factor: f64,
    kind: PhantomData<E>,
}

impl<E: Element> Kernel for Plain<'_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        for to in self.dst.chunks_exact_mut(size_of::<E>()) {
            let to = to.as_mut_ptr().cast::<E>();
            // SAFETY: a chunk has the bytes of its type, all of whose bit patterns are numbers.
            unsafe { to.write_unaligned(to.read_unaligned().times(self.factor)) }
        }
    }
}

/// There and back, a block at a time.
fn through(dtype: DType, dst: &mut [u8], to: DType) {
    const BLOCK_ELEMENTS: usize = 512;
    let mut block = [0; BLOCK_ELEMENTS * 8];
    for part in dst.chunks_mut(BLOCK_ELEMENTS * dtype.bytes()) {
        let block = &mut block[..part.len() / dtype.bytes() * to.bytes()];
        cast(to, block, dtype, part);
        cast(dtype, part, to, block);
    }
}
