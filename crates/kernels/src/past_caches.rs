//! When and how to write what is too large for the caches: with stores that do not read the line that they overwrite.

#[cfg(target_arch = "x86_64")]
use crate::{dispatch, x86::stream};

/// From this size on what is moved does not fit a last-level cache, and such stores win. With a cache of 32 MiB copies with
/// them were 0.6 × `memcpy` at 8 MiB, 1.6 × at 16 MiB.
const TOGETHER_BYTES_MIN: usize = 16 << 20;

/// Below, the fence at the end of such stores costs more than they save.
const STREAM_BYTES_MIN: usize = 64 << 10;

/// What is computed in the first-level cache before it is stored. A page of 4 KiB was 5 % slower.
const STAGE_BYTES: usize = 1024;

const LINE_BYTES: usize = 64;

/// The stores of a CPU that has them, where they are worth it.
#[derive(Clone, Copy)]
pub struct PastCaches {
    /// `dst = src`, in no order with other stores until the next fence. The CPU has what it needs.
    store: unsafe fn(dst: &mut [u8], src: &[u8]),
}

impl PastCaches {
    /// Whether to write `bytes`, which are part of `together_bytes`, past the caches.
    pub fn worthwhile(bytes: usize, together_bytes: usize) -> Option<Self> {
        (together_bytes >= TOGETHER_BYTES_MIN && bytes >= STREAM_BYTES_MIN).then(Self::possible)?
    }

    fn possible() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if dispatch::level() != dispatch::Level::Scalar {
            return Some(Self { store: stream::copy }); // both other levels include its AVX2
        }
        None
    }

    /// `dst = src`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn copy(self, dst: &mut [u8], src: &[u8]) {
        // SAFETY: the field's.
        unsafe { (self.store)(dst, src) };
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
            // SAFETY: the field's.
            unsafe { (self.store)(&mut dst[at..end], staged) };
            (at, end) = (end, dst.len().min(end + STAGE_BYTES));
        }
        fence();
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
