//! Four f32 in a NEON register. The f32 operations are vector instructions; 16-bit floats go through their scalar
//! definitions, lane by lane, until there is a machine to test conversion instructions on.
//!
//! Untested: no ARM machine has run this yet.

use crate::lanes::Lanes;
use std::arch::aarch64::{
    float32x4_t, vaddq_f32, vandq_u32, vbslq_f32, vbslq_u32, vceqq_f32, vcgtq_f32, vcltq_f32, vdupq_n_f32,
    vld1q_f32, vmulq_f32, vorrq_u32, vreinterpretq_f32_u32, vreinterpretq_u32_f32, vst1q_f32,
};

/// Four values.
#[derive(Clone, Copy)]
pub struct Neon(float32x4_t);

const COUNT: usize = 4;

/// Four values of 16 bits, each through `load`.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn load_each(from: *const u8, load: unsafe fn(*const u8) -> f32) -> Neon {
    // SAFETY: the caller's.
    unsafe {
        let values: [f32; COUNT] = std::array::from_fn(|lane| load(from.add(lane * 2)));
        Neon(vld1q_f32(values.as_ptr()))
    }
}

impl Neon {
    #[inline(always)]
    fn values(self) -> [f32; COUNT] {
        let mut values = [0.0; COUNT];
        // SAFETY: every CPU of the target has NEON; four values are there.
        unsafe { vst1q_f32(values.as_mut_ptr(), self.0) };
        values
    }
}

// SAFETY of every block below: the trait's conditions, CPU features and room for four elements.
impl Lanes for Neon {
    const COUNT: usize = COUNT;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self(unsafe { vdupq_n_f32(value) })
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> Self {
        Self(unsafe { vld1q_f32(from.cast()) })
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> Self {
        unsafe { load_each(from, f32::load_f16) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> Self {
        unsafe { load_each(from, f32::load_bf16) }
    }

    #[inline(always)]
    unsafe fn store_f32(self, to: *mut u8) {
        unsafe { vst1q_f32(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u8) {
        for (lane, value) in self.values().into_iter().enumerate() {
            unsafe { value.store_f16(to.add(lane * 2)) }
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u8) {
        for (lane, value) in self.values().into_iter().enumerate() {
            unsafe { value.store_bf16(to.add(lane * 2)) }
        }
    }

    #[inline(always)]
    unsafe fn round_f16(self) -> Self {
        let values = self.values().map(|value| unsafe { value.round_f16() });
        Self(unsafe { vld1q_f32(values.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn round_bf16(self) -> Self {
        let values = self.values().map(|value| unsafe { value.round_bf16() });
        Self(unsafe { vld1q_f32(values.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(unsafe { vaddq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(unsafe { vmulq_f32(self.0, other.0) })
    }

    // As `Element::min`: both ways of choosing, joined.
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe {
            let one = vbslq_f32(vcltq_f32(self.0, other.0), self.0, other.0);
            let two = vbslq_f32(vcltq_f32(other.0, self.0), other.0, self.0);
            let joined = vorrq_u32(vreinterpretq_u32_f32(one), vreinterpretq_u32_f32(two));
            Self(vreinterpretq_f32_u32(joined))
        }
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe {
            let one = vreinterpretq_u32_f32(vbslq_f32(vcgtq_f32(self.0, other.0), self.0, other.0));
            let two = vreinterpretq_u32_f32(vbslq_f32(vcgtq_f32(other.0, self.0), other.0, self.0));
            let ordered = vandq_u32(vceqq_f32(self.0, self.0), vceqq_f32(other.0, other.0));
            Self(vreinterpretq_f32_u32(vbslq_u32(ordered, vandq_u32(one, two), vorrq_u32(one, two))))
        }
    }

    #[inline(always)]
    unsafe fn store_line(to: *mut u8, from: *const u8) {
        unsafe { to.copy_from_nonoverlapping(from, 64) }
    }

    #[inline(always)]
    unsafe fn fence() {}
}
