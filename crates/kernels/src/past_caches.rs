//! When and how to write what is too large for the caches: with stores that do not read the line that they overwrite.

#[cfg(target_arch = "x86_64")]
use crate::{dispatch, x86::stream};

/// From this size on what is moved does not fit a last-level cache, and such stores win. With a cache of 32 MiB copies with
/// them were 0.6 × `memcpy` at 8 MiB, 1.6 × at 16 MiB.
const TOGETHER_BYTES_MIN: usize = 16 << 20;

/// Below, the fence at the end of such stores costs more than they save.
const STREAM_BYTES_MIN: usize = 64 << 10;

/// What is computed in the first-level cache before it is stored: a page.
const STAGE_BYTES: usize = 4096;

const LINE_BYTES: usize = 64;

/// Says that this CPU has such stores, and that they are worth it here.
#[derive(Clone, Copy)]
pub struct PastCaches(());

impl PastCaches {
    /// Whether to write `bytes`, which are part of `together_bytes`, past the caches.
    pub fn worthwhile(bytes: usize, together_bytes: usize) -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        let possible = dispatch::level() != dispatch::Level::Scalar;
        #[cfg(not(target_arch = "x86_64"))]
        let possible = false;
        (possible && together_bytes >= TOGETHER_BYTES_MIN && bytes >= STREAM_BYTES_MIN).then_some(Self(()))
    }

    /// `dst = src`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn copy(self, dst: &mut [u8], src: &[u8]) {
        self.copy_unordered(dst, src);
        fence();
    }

    /// Fills `dst` with what `make(at, part)` writes to each part, a whole number of elements of `element_bytes`; its first
    /// byte belongs at byte `at`.
    pub fn fill(self, dst: &mut [u8], element_bytes: usize, mut make: impl FnMut(usize, &mut [u8])) {
        #[repr(align(64))]
        struct Stage([u8; STAGE_BYTES]);
        let mut stage = Stage([0; STAGE_BYTES]);
        // Parts begin where lines do, so that each line is written whole; elements that straddle lines forbid it.
        let to_line = dst.as_ptr().align_offset(LINE_BYTES).min(dst.len());
        let mut end = if to_line.is_multiple_of(element_bytes) { to_line } else { 0 };
        let mut at = 0;
        while at < dst.len() {
            let staged = &mut stage.0[..end - at];
            make(at, staged);
            self.copy_unordered(&mut dst[at..end], staged);
            (at, end) = (end, dst.len().min(end + STAGE_BYTES));
        }
        fence();
    }

    /// `dst = src`, in no order with other stores until the next fence.
    fn copy_unordered(self, dst: &mut [u8], src: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `self` was made at a level that includes AVX2.
        unsafe {
            stream::copy(dst, src);
        }
        #[cfg(not(target_arch = "x86_64"))]
        dst.copy_from_slice(src);
    }
}

/// Other threads that are told of anything after this find what was copied before.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every CPU of the target has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
