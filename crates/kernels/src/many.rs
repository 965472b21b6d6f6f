//! `dst = s₀ ⊕ s₁ ⊕ …` in one pass: each source is read once, the destination written once.
//!
//! Ranks of one host reduce each other's buckets with it. Bound by memory: n reads and a write for n sources; a chain
//! of `reduce` would read and write the destination n times, and the write would first read the line that it
//! overwrites. Values stay in registers from the first source to the last. If the data is too large for the caches,
//! results are staged in the first level and stored past them.

use crate::combine::{BitAnd, BitOr, BitXor, Combine, CombineElements, for_arithmetic};
use crate::dtype::{DType, ReduceOp, count};
use crate::element::Element;
use crate::fill::{Make, fill};
use crate::lanes::{BF16, F16, F32, Format, Lanes};
use std::marker::PhantomData;

#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The destination's own value. It may stand at any position, so that every rank can reduce in the same order.
    Dst,
    /// Other memory, as long as the destination.
    Bytes(&'a [u8]),
}

/// `dst` becomes the reduction of `sources` in their order: the same bits as the first, then one
/// [`reduce`](crate::reduce()) after the other. Results are stored past the caches if `together_bytes`, of which they
/// are part, do not fit them and no source is the destination.
///
/// # Panics
/// When there is no source, a source's length differs from `dst`'s, they hold a partial element, or the op is bitwise
/// and the type a float.
///
/// ```
/// use hocket_kernels::{DType, ReduceOp, Source, reduce_many};
/// let (mine, theirs) = (1.5_f32.to_ne_bytes(), 2.0_f32.to_ne_bytes());
/// let mut sum = 0.25_f32.to_ne_bytes();
/// let sources = [Source::Bytes(&mine), Source::Dst, Source::Bytes(&theirs)];
/// reduce_many(ReduceOp::Sum, DType::F32, &mut sum, &sources, 4);
/// assert_eq!(f32::from_ne_bytes(sum), 3.75);
/// ```
pub fn reduce_many(
    op: ReduceOp,
    dtype: DType,
    dst: &mut [u8],
    sources: &[Source<'_>],
    together_bytes: usize,
) {
    count(dtype, dst.len());
    assert!(!sources.is_empty(), "a reduction of nothing");
    let own = dst.as_ptr();
    let starts: Vec<*const u8> = sources
        .iter()
        .map(|source| match source {
            Source::Dst => own,
            Source::Bytes(bytes) => {
                assert_eq!(bytes.len(), dst.len(), "a source of another length than the destination");
                bytes.as_ptr()
            }
        })
        .collect();
    let in_place = sources.iter().any(|source| matches!(source, Source::Dst));
    let mut all = All { dst, starts: &starts, together_bytes: if in_place { 0 } else { together_bytes } };
    match (dtype, op) {
        (DType::F32, _) => for_arithmetic!(op, lanes::<F32>(&mut all)),
        (DType::F16, _) => for_arithmetic!(op, lanes::<F16>(&mut all)),
        (DType::BF16, _) => for_arithmetic!(op, lanes::<BF16>(&mut all)),
        (DType::F64, _) => for_arithmetic!(op, plain::<f64>(&mut all)),
        (_, ReduceOp::BitAnd) => plain::<BitAnd, u8>(&mut all),
        (_, ReduceOp::BitOr) => plain::<BitOr, u8>(&mut all),
        (_, ReduceOp::BitXor) => plain::<BitXor, u8>(&mut all),
        (DType::I64, _) => for_arithmetic!(op, plain::<i64>(&mut all)),
        (DType::I32, _) => for_arithmetic!(op, plain::<i32>(&mut all)),
        (DType::I8, _) => for_arithmetic!(op, plain::<i8>(&mut all)),
        (DType::U8, _) => for_arithmetic!(op, plain::<u8>(&mut all)),
    }
}

/// All operands: `dst`'s length can be read from each start, which is that of `dst` or does not overlap it.
struct All<'a> {
    dst: &'a mut [u8],
    starts: &'a [*const u8],
    together_bytes: usize,
}

fn lanes<O: Combine, F: Format>(all: &mut All<'_>) {
    let make = Joined::<O, F> { starts: all.starts, kinds: PhantomData };
    // SAFETY: by the contract of `All`.
    unsafe { fill(all.dst, make, all.together_bytes) }
}

fn plain<O: CombineElements<E>, E: Element>(all: &mut All<'_>) {
    let make = JoinedElements::<O, E> { starts: all.starts, kinds: PhantomData };
    // SAFETY: by the contract of `All`.
    unsafe { fill(all.dst, make, all.together_bytes) }
}

struct Joined<'a, O, F> {
    starts: &'a [*const u8],
    kinds: PhantomData<(O, F)>,
}

impl<O: Combine, F: Format> Make for Joined<'_, O, F> {
    const BYTES: usize = F::BYTES;

    #[inline(always)]
    fn count<L: Lanes>() -> usize {
        L::COUNT
    }

    #[inline(always)]
    unsafe fn vectors<L: Lanes, const N: usize>(&self, index: usize, to: *mut u8) {
        // SAFETY: the caller's; all sources are read at a place before the destination, which may be one, is written there.
        unsafe {
            let mut values = [L::splat(0.0); N];
            for (turn, value) in values.iter_mut().enumerate() {
                *value = F::load::<L>(self.starts[0].add((index + turn * L::COUNT) * F::BYTES));
            }
            for (number, &start) in self.starts.iter().enumerate().skip(1) {
                let last = number + 1 == self.starts.len();
                for (turn, value) in values.iter_mut().enumerate() {
                    let next = F::load::<L>(start.add((index + turn * L::COUNT) * F::BYTES));
                    let joined = O::lanes(*value, next);
                    // The store rounds the last result.
                    *value = if last { joined } else { F::round(joined) };
                }
            }
            for (turn, value) in values.into_iter().enumerate() {
                F::store(value, to.add(turn * L::COUNT * F::BYTES));
            }
        }
    }

    #[inline(always)]
    unsafe fn one(&self, index: usize, to: *mut u8) {
        // SAFETY: the caller's; any CPU has one f32.
        unsafe { self.vectors::<f32, 1>(index, to) }
    }
}

struct JoinedElements<'a, O, E> {
    starts: &'a [*const u8],
    kinds: PhantomData<(O, E)>,
}

/// Elements combined at a time; the compiler vectorises them.
const ELEMENTS: usize = 8;

impl<O: CombineElements<E>, E: Element> JoinedElements<'_, O, E> {
    /// # Safety
    /// As of `Make::vectors`.
    #[inline(always)]
    unsafe fn arrays<const N: usize, const M: usize>(&self, index: usize, to: *mut u8) {
        // SAFETY: the caller's; all bit patterns are numbers, and sources are read before the destination is written.
        unsafe {
            let place = index * size_of::<E>();
            let mut values = self.starts[0].add(place).cast::<[[E; M]; N]>().read_unaligned();
            for &start in &self.starts[1..] {
                let others = start.add(place).cast::<[[E; M]; N]>().read_unaligned();
                for (value, other) in values.as_flattened_mut().iter_mut().zip(others.as_flattened()) {
                    *value = O::elements(*value, *other);
                }
            }
            to.cast::<[[E; M]; N]>().write_unaligned(values);
        }
    }
}

impl<O: CombineElements<E>, E: Element> Make for JoinedElements<'_, O, E> {
    const BYTES: usize = size_of::<E>();

    #[inline(always)]
    fn count<L: Lanes>() -> usize {
        ELEMENTS
    }

    #[inline(always)]
    unsafe fn vectors<L: Lanes, const N: usize>(&self, index: usize, to: *mut u8) {
        // SAFETY: the caller's.
        unsafe { self.arrays::<N, ELEMENTS>(index, to) }
    }

    #[inline(always)]
    unsafe fn one(&self, index: usize, to: *mut u8) {
        // SAFETY: the caller's.
        unsafe { self.arrays::<1, 1>(index, to) }
    }
}
