//! `dst = dst ⊕ convert(src)`.
//!
//! Bound by memory: a sum of f32 reads both and writes one; a source of 16 bits is widened in registers, so it costs
//! half the reads. Several sources are taken block by block, so that the destination crosses memory once.
//! Read with the `bandwidth` example on AVX-512, November 2026, bytes moved as a share of `memcpy`: 1.36 beyond the
//! caches and 1.2 within the second level; within it f16 + f16 is bound by its conversions (0.6), bf16 + bf16 by
//! rounding (0.35).

use crate::cast::cast;
use crate::dispatch::{self, Kernel, Step, Sweep};
use crate::dtype::{DType, ReduceOp, common_count, count};
use crate::element::Element;
use crate::lanes::{BF16, F16, F32, Format, Lanes};
use std::marker::PhantomData;

/// Destination bytes that several sources are reduced into before the next: a third of a first-level cache.
const BLOCK_BYTES: usize = 16 * 1024;

/// Reduces `src` into `dst`. A source of another float type is first converted to that of `dst`.
///
/// # Panics
/// When the slices differ in elements or hold part of one, or the types differ and are not both floats: programs are
/// checked for it.
///
/// ```
/// use hocket_kernels::{DType, ReduceOp, reduce};
/// let mut sum = 1.5_f32.to_ne_bytes();
/// reduce(ReduceOp::Sum, DType::F32, &mut sum, DType::F16, &0x3c00_u16.to_ne_bytes());
/// assert_eq!(f32::from_ne_bytes(sum), 2.5);
/// ```
pub fn reduce(op: ReduceOp, dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) {
    let elements = common_count(dst_dtype, dst, src_dtype, src);
    match (dst_dtype, src_dtype) {
        (DType::F32, DType::F32) => lanes::<F32, F32>(op, dst, src, elements),
        (DType::F32, DType::F16) => lanes::<F32, F16>(op, dst, src, elements),
        (DType::F32, DType::BF16) => lanes::<F32, BF16>(op, dst, src, elements),
        (DType::F16, DType::F16) => lanes::<F16, F16>(op, dst, src, elements),
        (DType::BF16, DType::BF16) => lanes::<BF16, BF16>(op, dst, src, elements),
        (DType::F64, DType::F64) => plain::<f64>(op, dst, src),
        (DType::I64, DType::I64) => plain::<i64>(op, dst, src),
        (DType::I32, DType::I32) => plain::<i32>(op, dst, src),
        (DType::I8, DType::I8) => plain::<i8>(op, dst, src),
        (DType::U8, DType::U8) => plain::<u8>(op, dst, src),
        _ if dst_dtype.is_float() && src_dtype.is_float() => converted(op, dst_dtype, dst, src_dtype, src),
        _ => panic!("a reduction of {src_dtype:?} into {dst_dtype:?}: only equal types or floats"),
    }
}

/// Reduces all of `srcs` into `dst`, in their order: the same bits as one [`reduce`] after the other.
///
/// # Panics
/// When a source's length is not that of `dst`, or they hold part of an element.
pub fn reduce_many(op: ReduceOp, dtype: DType, dst: &mut [u8], srcs: &[&[u8]]) {
    count(dtype, dst.len());
    for src in srcs {
        assert_eq!(src.len(), dst.len(), "a source of another length than the destination");
    }
    for (at, block) in dst.chunks_mut(BLOCK_BYTES).enumerate() {
        let start = at * BLOCK_BYTES;
        for src in srcs {
            reduce(op, dtype, block, dtype, &src[start..start + block.len()]);
        }
    }
}

/// How two vectors become one.
trait Combine {
    /// # Safety
    /// The CPU has the features of `L`.
    unsafe fn lanes<L: Lanes>(one: L, two: L) -> L;
    fn elements<E: Element>(one: E, two: E) -> E;
}

macro_rules! combine {
    ($name:ident, $method:ident) => {
        struct $name;

        impl Combine for $name {
            #[inline(always)]
            unsafe fn lanes<L: Lanes>(one: L, two: L) -> L {
                // SAFETY: the caller's.
                unsafe { one.$method(two) }
            }

            #[inline(always)]
            fn elements<E: Element>(one: E, two: E) -> E {
                one.$method(two)
            }
        }
    };
}

combine!(Sum, add);
combine!(Min, min);
combine!(Max, max);

struct Lanewise<O, D, S> {
    dst: *mut u8,
    src: *const u8,
    kinds: PhantomData<(O, D, S)>,
}

impl<O: Combine, D: Format, S: Format> Step for Lanewise<O, D, S> {
    #[inline(always)]
    unsafe fn at<L: Lanes>(&self, index: usize) {
        // SAFETY: the caller's: CPU features, and elements up to `index + L::COUNT` in both slices.
        unsafe {
            let dst = self.dst.add(index * D::BYTES);
            let src = S::load::<L>(self.src.add(index * S::BYTES));
            D::store(O::lanes(D::load::<L>(dst), src), dst);
        }
    }
}

fn lanes<D: Format, S: Format>(op: ReduceOp, dst: &mut [u8], src: &[u8], elements: usize) {
    fn with<O: Combine, D: Format, S: Format>(dst: &mut [u8], src: &[u8], elements: usize) {
        let step = Lanewise::<O, D, S> { dst: dst.as_mut_ptr(), src: src.as_ptr(), kinds: PhantomData };
        dispatch::run(Sweep { elements, step });
    }
    match op {
        ReduceOp::Sum => with::<Sum, D, S>(dst, src, elements),
        ReduceOp::Min => with::<Min, D, S>(dst, src, elements),
        ReduceOp::Max => with::<Max, D, S>(dst, src, elements),
    }
}

struct Plain<'a, O, E> {
    dst: &'a mut [u8],
    src: &'a [u8],
    kinds: PhantomData<(O, E)>,
}

impl<O: Combine, E: Element> Kernel for Plain<'_, O, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let sources = self.src.chunks_exact(size_of::<E>());
        for (to, from) in self.dst.chunks_exact_mut(size_of::<E>()).zip(sources) {
            let to = to.as_mut_ptr().cast::<E>();
            // SAFETY: a chunk has the bytes of its type, all of whose bit patterns are numbers.
            unsafe {
                let value = from.as_ptr().cast::<E>().read_unaligned();
                to.write_unaligned(O::elements(to.read_unaligned(), value));
            }
        }
    }
}

fn plain<E: Element>(op: ReduceOp, dst: &mut [u8], src: &[u8]) {
    match op {
        ReduceOp::Sum => dispatch::run(Plain::<Sum, E> { dst, src, kinds: PhantomData }),
        ReduceOp::Min => dispatch::run(Plain::<Min, E> { dst, src, kinds: PhantomData }),
        ReduceOp::Max => dispatch::run(Plain::<Max, E> { dst, src, kinds: PhantomData }),
    }
}

/// The pairs that are not worth a kernel of their own: converted a block at a time.
fn converted(op: ReduceOp, dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) {
    const BLOCK_ELEMENTS: usize = 512;
    let mut block = [0; BLOCK_ELEMENTS * 8];
    let sources = src.chunks(BLOCK_ELEMENTS * src_dtype.bytes());
    for (to, from) in dst.chunks_mut(BLOCK_ELEMENTS * dst_dtype.bytes()).zip(sources) {
        let block = &mut block[..to.len()];
        cast(dst_dtype, block, src_dtype, from);
        reduce(op, dst_dtype, to, dst_dtype, block);
    }
}
