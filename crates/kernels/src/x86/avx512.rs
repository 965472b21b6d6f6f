//! Sixteen f32 in an AVX-512 register.
//!
//! bf16 is rounded with integer instructions: `VCVTNEPS2BF16` treats subnormals as zero.

use crate::lanes::lanes;
use std::arch::x86_64::{
    __m512, __m512i, _CMP_UNORD_Q, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T1, _mm_prefetch,
    _mm_sfence, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_and_ps,
    _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_epi16,
    _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_load_si512, _mm512_loadu_ps,
    _mm512_mask_blend_epi32, _mm512_mask_or_ps, _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_or_ps,
    _mm512_or_si512, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32, _mm512_srli_epi32,
    _mm512_storeu_ps, _mm512_stream_si512,
};

const NEAREST_EVEN: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

#[derive(Clone, Copy)]
pub struct Avx512(__m512);

/// The nearest bf16 of each value, in the lower half of its lane.
///
/// # Safety
/// The CPU has the level's features.
#[inline(always)]
unsafe fn to_bf16(values: __m512) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        let bits = _mm512_castps_si512(values);
        let upper = _mm512_srli_epi32::<16>(bits);
        let odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
        let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
        let nearest = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half));
        let quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x0040));
        _mm512_mask_blend_epi32(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values), nearest, quiet)
    }
}

lanes! {
    Avx512:

    const COUNT: usize = 16;
    const PAST_CACHES: bool = true;

    fn splat(value: f32) -> Self { Self(_mm512_set1_ps(value)) }
    fn load_f32(from: *const u8) -> Self { Self(_mm512_loadu_ps(from.cast())) }
    fn load_f16(from: *const u8) -> Self { Self(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
    fn load_bf16(from: *const u8) -> Self {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
        Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
    }
    fn store_f32(self, to: *mut u8) { _mm512_storeu_ps(to.cast(), self.0); }
    fn store_f16(self, to: *mut u8) {
        _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<NEAREST_EVEN>(self.0));
    }
    fn store_bf16(self, to: *mut u8) {
        _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(to_bf16(self.0)));
    }
    fn round_f16(self) -> Self { Self(_mm512_cvtph_ps(_mm512_cvtps_ph::<NEAREST_EVEN>(self.0))) }
    fn round_bf16(self) -> Self { Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(to_bf16(self.0)))) }
    fn add(self, other: Self) -> Self { Self(_mm512_add_ps(self.0, other.0)) }
    fn mul(self, other: Self) -> Self { Self(_mm512_mul_ps(self.0, other.0)) }

    // `MINPS` and `MAXPS` give their second operand for equal values and NaN: taken both ways and joined, as
    // `Element::min` and `Element::max` do.
    fn min(self, other: Self) -> Self {
        Self(_mm512_or_ps(_mm512_min_ps(self.0, other.0), _mm512_min_ps(other.0, self.0)))
    }
    fn max(self, other: Self) -> Self {
        let (one, two) = (_mm512_max_ps(self.0, other.0), _mm512_max_ps(other.0, self.0));
        let unordered = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, other.0);
        Self(_mm512_mask_or_ps(_mm512_and_ps(one, two), unordered, one, two))
    }
    fn store_line(to: *mut u8, from: *const u8) {
        _mm512_stream_si512(to.cast(), _mm512_load_si512(from.cast()));
    }
    fn fetch(from: *const u8) { _mm_prefetch::<_MM_HINT_T1>(from.cast()); }
    fn fence() { _mm_sfence(); }
}
