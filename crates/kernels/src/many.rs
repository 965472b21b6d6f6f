//! `dst = s₀ ⊕ s₁ ⊕ …` in one pass: each source is read once, the destination written once.
//!
//! What ranks of one host do with each other's buckets. Bound by memory: n reads and a write for n sources; a chain of
//! `reduce` would read and write the destination n times, and the write would first read the line that it overwrites.
//! Values stay in registers from the first source to the last. Where all that moves is too large for the caches, results are
//! staged in the first level and stored past them.

use crate::combine::{BitAnd, BitOr, BitXor, Combine, CombineElements, for_arithmetic};
use crate::dispatch::{self, Kernel};
use crate::dtype::{DType, ReduceOp, count};
use crate::element::Element;
use crate::lanes::{BF16, F16, F32, Format, Lanes};
use crate::past_caches::PastCaches;
use std::marker::PhantomData;

/// One of several that become one.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// What the destination holds. It may stand at any place of the order, so that every rank can reduce in the same one.
    Dst,
    /// Other memory, as long as the destination.
    Bytes(&'a [u8]),
}

/// `dst` becomes the reduction of `sources` in their order: the same bits as the first, then one
/// [`reduce`](crate::reduce()) after the other. The results are stored past the caches when `together_bytes`, which they are
/// part of, do not fit them and no source is the destination.
///
/// # Panics
/// When there is no source, a source's length is not that of `dst`, they hold part of an element, or bits of floats are asked
/// for.
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
    // SAFETY: as many bytes as `dst` has can be read from each start, by the check above; a source is `dst` itself or,
    // being borrowed beside it, does not overlap it.
    let block = |at: usize, to: &mut [u8]| unsafe { block(op, dtype, to, &starts, at) };
    match PastCaches::worthwhile(dst.len(), together_bytes).filter(|_| !in_place) {
        Some(past_caches) => past_caches.fill(dst, dtype.bytes(), block),
        None => block(0, dst),
    }
}

/// `to` becomes the reduction of as many bytes from `at` bytes behind each start.
///
/// # Safety
/// They can be read there, and `to` either does not overlap what is read or is just that.
unsafe fn block(op: ReduceOp, dtype: DType, to: &mut [u8], starts: &[*const u8], at: usize) {
    let all = All { dst: to.as_mut_ptr(), bytes: to.len(), starts, at };
    match (dtype, op) {
        (DType::F32, _) => for_arithmetic!(op, lanes::<F32>(all)),
        (DType::F16, _) => for_arithmetic!(op, lanes::<F16>(all)),
        (DType::BF16, _) => for_arithmetic!(op, lanes::<BF16>(all)),
        (DType::F64, _) => for_arithmetic!(op, plain::<f64>(all)),
        (_, ReduceOp::BitAnd) => plain::<BitAnd, u8>(all),
        (_, ReduceOp::BitOr) => plain::<BitOr, u8>(all),
        (_, ReduceOp::BitXor) => plain::<BitXor, u8>(all),
        (DType::I64, _) => for_arithmetic!(op, plain::<i64>(all)),
        (DType::I32, _) => for_arithmetic!(op, plain::<i32>(all)),
        (DType::I8, _) => for_arithmetic!(op, plain::<i8>(all)),
        (DType::U8, _) => for_arithmetic!(op, plain::<u8>(all)),
    }
}

/// Where all operands lie. Built by `block` alone, whose conditions hold for it.
struct All<'a> {
    dst: *mut u8,
    bytes: usize,
    starts: &'a [*const u8],
    at: usize,
}

fn lanes<O: Combine, F: Format>(all: All<'_>) {
    dispatch::run(Joined::<O, F> { all, kinds: PhantomData });
}

fn plain<O: CombineElements<E>, E: Element>(all: All<'_>) {
    dispatch::run(JoinedElements::<O, E> { all, kinds: PhantomData });
}

struct Joined<'a, O, F> {
    all: All<'a>,
    kinds: PhantomData<(O, F)>,
}

impl<O: Combine, F: Format> Joined<'_, O, F> {
    /// `N` vectors at `index`.
    ///
    /// # Safety
    /// The CPU has the features of `L`, and that many elements are there.
    #[inline(always)]
    unsafe fn vectors<L: Lanes, const N: usize>(&self, index: usize) {
        let All { dst, starts, at, .. } = self.all;
        // SAFETY: the caller's; all sources are read at a place before the destination is written there.
        unsafe {
            let place = |turn: usize| (index + turn * L::COUNT) * F::BYTES;
            let mut values = [L::splat(0.0); N];
            for (turn, value) in values.iter_mut().enumerate() {
                *value = F::load::<L>(starts[0].add(at + place(turn)));
            }
            for &start in &starts[1..] {
                for (turn, value) in values.iter_mut().enumerate() {
                    *value = F::round(O::lanes(*value, F::load::<L>(start.add(at + place(turn)))));
                }
            }
            for (turn, value) in values.into_iter().enumerate() {
                F::store(value, dst.add(place(turn)));
            }
        }
    }
}

impl<O: Combine, F: Format> Kernel for Joined<'_, O, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let elements = self.all.bytes / F::BYTES;
        let mut index = 0;
        // SAFETY: the caller's CPU features; each access ends at or before `elements`.
        unsafe {
            while elements - index >= 4 * L::COUNT {
                self.vectors::<L, 4>(index);
                index += 4 * L::COUNT;
            }
            while elements - index >= L::COUNT {
                self.vectors::<L, 1>(index);
                index += L::COUNT;
            }
            while index < elements {
                self.vectors::<f32, 1>(index);
                index += 1;
            }
        }
    }
}

struct JoinedElements<'a, O, E> {
    all: All<'a>,
    kinds: PhantomData<(O, E)>,
}

impl<O: CombineElements<E>, E: Element> JoinedElements<'_, O, E> {
    /// The `N` elements at byte `place`.
    ///
    /// # Safety
    /// That many are there.
    #[inline(always)]
    unsafe fn elements<const N: usize>(&self, place: usize) {
        let All { dst, starts, at, .. } = self.all;
        // SAFETY: the caller's; all bit patterns are numbers, and sources are read before the destination is written.
        unsafe {
            let mut values = starts[0].add(at + place).cast::<[E; N]>().read_unaligned();
            for &start in &starts[1..] {
                let others = start.add(at + place).cast::<[E; N]>().read_unaligned();
                for (value, other) in values.iter_mut().zip(others) {
                    *value = O::elements(*value, other);
                }
            }
            dst.add(place).cast::<[E; N]>().write_unaligned(values);
        }
    }
}

impl<O: CombineElements<E>, E: Element> Kernel for JoinedElements<'_, O, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        const N: usize = 32;
        let mut place = 0;
        // SAFETY: each access ends at or before `bytes`, a whole number of elements.
        unsafe {
            while self.all.bytes - place >= N * size_of::<E>() {
                self.elements::<N>(place);
                place += N * size_of::<E>();
            }
            while place < self.all.bytes {
                self.elements::<1>(place);
                place += size_of::<E>();
            }
        }
    }
}
