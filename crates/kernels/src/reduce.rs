//! `dst = dst ⊕ convert(src)`.
//!
//! Bound by memory: a sum of f32 reads both operands and writes one; a source of 16 bits is widened in registers, so it
//! costs half the reads. Within the caches, only sums into bf16 are bound by their rounding. A mean is a sum, then
//! [`scale`](crate::scale()).

use crate::cast::cast;
use crate::combine::{BitAnd, BitOr, BitXor, Combine, CombineElements, for_arithmetic};
use crate::dispatch::{self, Kernel, Step, Sweep};
use crate::dtype::{DType, ReduceOp, common_count};
use crate::element::Element;
use crate::lanes::{BF16, F16, F32, Format, Lanes};
use std::marker::PhantomData;

/// Reduces `src` into `dst`. A source of another float type is first converted to that of `dst`.
///
/// # Panics
/// When the slices differ in elements or hold a partial one, the types differ and are not both floats, or the op is
/// bitwise and a type is a float: programs are checked for it.
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
        _ if op.is_bitwise() && dst_dtype == src_dtype && !dst_dtype.is_float() => bitwise(op, dst, src),
        (DType::F32, DType::F32) => for_arithmetic!(op, lanes::<F32, F32>(dst, src, elements)),
        (DType::F32, DType::F16) => for_arithmetic!(op, lanes::<F32, F16>(dst, src, elements)),
        (DType::F32, DType::BF16) => for_arithmetic!(op, lanes::<F32, BF16>(dst, src, elements)),
        (DType::F16, DType::F16) => for_arithmetic!(op, lanes::<F16, F16>(dst, src, elements)),
        (DType::BF16, DType::BF16) => for_arithmetic!(op, lanes::<BF16, BF16>(dst, src, elements)),
        (DType::F64, DType::F64) => for_arithmetic!(op, plain::<f64>(dst, src)),
        (DType::I64, DType::I64) => for_arithmetic!(op, plain::<i64>(dst, src)),
        (DType::I32, DType::I32) => for_arithmetic!(op, plain::<i32>(dst, src)),
        (DType::I8, DType::I8) => for_arithmetic!(op, plain::<i8>(dst, src)),
        (DType::U8, DType::U8) => for_arithmetic!(op, plain::<u8>(dst, src)),
        _ if dst_dtype.is_float() && src_dtype.is_float() => converted(op, dst_dtype, dst, src_dtype, src),
        _ => panic!("a reduction of {src_dtype:?} into {dst_dtype:?}: only equal types or floats"),
    }
}

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

fn lanes<O: Combine, D: Format, S: Format>(dst: &mut [u8], src: &[u8], elements: usize) {
    let step = Lanewise::<O, D, S> { dst: dst.as_mut_ptr(), src: src.as_ptr(), kinds: PhantomData };
    dispatch::run(Sweep { elements, step });
}

struct Plain<'a, O, E> {
    dst: &'a mut [u8],
    src: &'a [u8],
    kinds: PhantomData<(O, E)>,
}

impl<O: CombineElements<E>, E: Element> Kernel for Plain<'_, O, E> {
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

fn plain<O: CombineElements<E>, E: Element>(dst: &mut [u8], src: &[u8]) {
    dispatch::run(Plain::<O, E> { dst, src, kinds: PhantomData });
}

fn bitwise(op: ReduceOp, dst: &mut [u8], src: &[u8]) {
    match op {
        ReduceOp::BitAnd => plain::<BitAnd, u8>(dst, src),
        ReduceOp::BitOr => plain::<BitOr, u8>(dst, src),
        _ => plain::<BitXor, u8>(dst, src),
    }
}

/// Pairs that do not justify a kernel of their own: converted a block at a time.
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
