//! Sweeps over a destination that is written and not read. Ordinary stores first read each line that they overwrite; if
//! the data does not fit the caches, stores past the caches avoid that.

use crate::dispatch::{self, Kernel};
use crate::lanes::Lanes;

/// Size above which data does not fit a last-level cache, and stores past the caches win. With a cache of 32 MiB,
/// copies with them were 0.6 × `memcpy` at 8 MiB, 1.6 × at 16 MiB; with a shared one of 260 MiB, 1.2 to 1.3 × from 16
/// MiB on.
const TOGETHER_BYTES_MIN: usize = 16 << 20;

/// For smaller data, the fence at the end of such stores costs more than they save.
const PAST_CACHES_BYTES_MIN: usize = 64 << 10;

/// Staging buffer in the first-level cache, filled before it is stored past the caches. Line by line was 10 % slower;
/// from 256 bytes to a page it made no difference.
const STAGE_BYTES: usize = 1024;

const LINE_BYTES: usize = 64;

/// Prefetch distance into the second-level cache. The processor prefetches by itself only to the end of a page, and
/// stores past the caches occupy the first level's few miss buffers: f32 to f16 reached 0.87 of the bandwidth without
/// prefetch and 0.93 with it, f32 to bf16 0.67 and 0.80; any distance from 8 to 128 KiB does.
const AHEAD_BYTES: usize = 32 << 10;

/// The source of the values of a fill.
pub trait Make {
    const BYTES: usize;

    /// How many elements a vector has.
    fn count<L: Lanes>() -> usize;

    /// Writes `N` vectors, those of the elements from `index` on, to `to`. Must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The CPU has the features of `L`, that many elements are there, and `to` has room for them.
    unsafe fn vectors<L: Lanes, const N: usize>(&self, index: usize, to: *mut u8);

    /// Prefetches the sources of `elements` from `index` on, some distance ahead, by [`fetch_ahead`]. Must be
    /// `#[inline(always)]`. Does nothing by default: several sources at once keep a core's miss buffers busy anyway,
    /// and sums of f16 and bf16 were 5 and 12 % slower with it.
    ///
    /// # Safety
    /// The CPU has the features of `L`.
    #[inline(always)]
    unsafe fn fetch_ahead<L: Lanes>(&self, _index: usize, _elements: usize) {}

    /// The same as `vectors` for one element.
    ///
    /// # Safety
    /// It is there, and `to` has room for it.
    unsafe fn one(&self, index: usize, to: *mut u8);
}

/// Fills `dst` with the values of `make`; this is part of `together_bytes` moved in one go.
///
/// # Safety
/// `make` has an element for each of `dst`.
pub unsafe fn fill<M: Make>(dst: &mut [u8], make: M, together_bytes: usize) {
    let past_caches = past_caches(dst.len(), together_bytes) && dst.as_ptr().addr().is_multiple_of(M::BYTES);
    dispatch::run(Fill { dst: dst.as_mut_ptr(), elements: dst.len() / M::BYTES, make, past_caches });
}

/// Prefetches the data `AHEAD_BYTES` behind the `bytes` at `from`, if there is any.
///
/// # Safety
/// The CPU has the features of `L`.
#[inline(always)]
pub unsafe fn fetch_ahead<L: Lanes>(from: *const u8, bytes: usize) {
    for byte in (0..bytes).step_by(LINE_BYTES) {
        // SAFETY: the caller's; the address need not be mapped.
        unsafe { L::fetch(from.wrapping_add(AHEAD_BYTES + byte)) }
    }
}

/// Whether stores of `bytes`, part of `together_bytes`, should go past the caches.
pub fn past_caches(bytes: usize, together_bytes: usize) -> bool {
    together_bytes >= TOGETHER_BYTES_MIN && bytes >= PAST_CACHES_BYTES_MIN
}

struct Fill<M> {
    dst: *mut u8,
    elements: usize,
    make: M,
    /// The destination is aligned for its elements.
    past_caches: bool,
}

impl<M: Make> Kernel for Fill<M> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: the caller's CPU features; accesses end at or before `elements`.
        unsafe {
            let mut index = if self.past_caches && L::PAST_CACHES { self.run_past_caches::<L>() } else { 0 };
            while self.elements - index >= 4 * M::count::<L>() {
                self.make.vectors::<L, 4>(index, self.at(index));
                index += 4 * M::count::<L>();
            }
            while self.elements - index >= M::count::<L>() {
                self.make.vectors::<L, 1>(index, self.at(index));
                index += M::count::<L>();
            }
            while index < self.elements {
                self.make.one(index, self.at(index));
                index += 1;
            }
        }
    }
}

impl<M: Make> Fill<M> {
    /// The address of an element.
    ///
    /// # Safety
    /// There is one of that index, or the one before.
    #[inline(always)]
    unsafe fn at(&self, index: usize) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { self.dst.add(index * M::BYTES) }
    }

    /// Fills up to a line, then as many whole stages as there are; returns the first remaining element.
    ///
    /// # Safety
    /// As of `run`; the destination is aligned for its elements.
    #[inline(always)]
    unsafe fn run_past_caches<L: Lanes>(&self) -> usize {
        #[repr(align(64))]
        struct Stage([u8; STAGE_BYTES]);
        let mut stage = Stage([0; STAGE_BYTES]);
        let stage = stage.0.as_mut_ptr();
        let staged = STAGE_BYTES / M::BYTES;
        let mut index = 0;
        // SAFETY: the caller's; vectors and lines divide the stage, and stages are stored where lines begin.
        unsafe {
            while index < self.elements && !self.at(index).addr().is_multiple_of(LINE_BYTES) {
                self.make.one(index, self.at(index));
                index += 1;
            }
            while self.elements - index >= staged {
                self.make.fetch_ahead::<L>(index, staged);
                let mut made = 0;
                while made < staged {
                    self.make.vectors::<L, 4>(index + made, stage.add(made * M::BYTES));
                    made += 4 * M::count::<L>();
                }
                for byte in (0..STAGE_BYTES).step_by(LINE_BYTES) {
                    L::store_line(self.at(index).add(byte), stage.add(byte));
                }
                index += staged;
            }
            L::fence();
        }
        index
    }
}
