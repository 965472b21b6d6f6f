//! Eight f32 in an AVX register, with the f16 conversions of F16C.

use crate::lanes::lanes;
use std::arch::x86_64::{
    __m256, __m256i, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch,
    _mm_sfence, _mm_storeu_si128, _mm256_add_epi32, _mm256_add_ps, _mm256_and_ps, _mm256_and_si256,
    _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmp_ps,
    _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_load_si256, _mm256_loadu_ps,
    _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_or_ps, _mm256_or_si256, _mm256_packus_epi32,
    _mm256_permute4x64_epi64, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_ps, _mm256_stream_si256,
};

#[derive(Clone, Copy)]
pub struct Avx2(__m256);

/// The nearest bf16 of each value, in the lower half of its lane.
///
/// # Safety
/// The CPU has the level's features.
#[inline(always)]
unsafe fn to_bf16(values: __m256) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        let bits = _mm256_castps_si256(values);
        let upper = _mm256_srli_epi32::<16>(bits);
        let odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
        let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
        let nearest = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
        let quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x0040));
        let unordered = _mm256_cmp_ps::<_CMP_UNORD_Q>(values, values);
        let chosen = _mm256_blendv_ps(_mm256_castsi256_ps(nearest), _mm256_castsi256_ps(quiet), unordered);
        _mm256_castps_si256(chosen)
    }
}

lanes! {
    Avx2:

    const COUNT: usize = 8;
    const PAST_CACHES: bool = true;

    fn splat(value: f32) -> Self { Self(_mm256_set1_ps(value)) }
    fn load_f32(from: *const u8) -> Self { Self(_mm256_loadu_ps(from.cast())) }
    fn load_f16(from: *const u8) -> Self { Self(_mm256_cvtph_ps(_mm_loadu_si128(from.cast()))) }
    fn load_bf16(from: *const u8) -> Self {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
        Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
    }
    fn store_f32(self, to: *mut u8) { _mm256_storeu_ps(to.cast(), self.0); }
    fn store_f16(self, to: *mut u8) {
        _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
    }
    fn store_bf16(self, to: *mut u8) {
        let wide = to_bf16(self.0);
        // Packing works within each half of the register; the permutation joins the two packed halves.
        let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(wide, wide));
        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
    }
    fn round_f16(self) -> Self { Self(_mm256_cvtph_ps(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0))) }
    fn round_bf16(self) -> Self { Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(to_bf16(self.0)))) }
    fn add(self, other: Self) -> Self { Self(_mm256_add_ps(self.0, other.0)) }
    fn mul(self, other: Self) -> Self { Self(_mm256_mul_ps(self.0, other.0)) }

    // `MINPS` and `MAXPS` give their second operand for equal values and NaN: taken both ways and joined, as
    // `Element::min` and `Element::max` do.
    fn min(self, other: Self) -> Self {
        Self(_mm256_or_ps(_mm256_min_ps(self.0, other.0), _mm256_min_ps(other.0, self.0)))
    }
    fn max(self, other: Self) -> Self {
        let (one, two) = (_mm256_max_ps(self.0, other.0), _mm256_max_ps(other.0, self.0));
        let unordered = _mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, other.0);
        Self(_mm256_blendv_ps(_mm256_and_ps(one, two), _mm256_or_ps(one, two), unordered))
    }
    fn store_line(to: *mut u8, from: *const u8) {
        _mm256_stream_si256(to.cast(), _mm256_load_si256(from.cast()));
        _mm256_stream_si256(to.add(32).cast(), _mm256_load_si256(from.add(32).cast()));
    }
    fn fetch(from: *const u8) { _mm_prefetch::<_MM_HINT_T1>(from.cast()); }
    fn fence() { _mm_sfence(); }
}
