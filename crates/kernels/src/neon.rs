//! Four f32 in a NEON register, with the f16 conversions of every 64-bit ARM CPU.
//!
//! Not run on any ARM machine yet; the tests pass under an emulator (CONTRIBUTING.md).

use crate::lanes::lanes;
use std::arch::aarch64::{
    float32x4_t, uint16x4_t, vaddq_f32, vaddq_u32, vandq_u32, vbslq_f32, vbslq_u32, vceqq_f32, vcgtq_f32,
    vcltq_f32, vdupq_n_f32, vdupq_n_u32, vld1_u16, vld1q_f32, vmovn_u32, vmulq_f32, vorrq_u32,
    vreinterpretq_f32_u32, vreinterpretq_u32_f32, vshll_n_u16, vshrq_n_u32, vst1_u16, vst1q_f32,
};
use std::arch::asm;

#[derive(Clone, Copy)]
pub struct Neon(float32x4_t);

/// The values of four f16. By the instruction itself: its intrinsic needs a newer Rust than ours.
///
/// # Safety
/// Every CPU of the target has NEON.
#[inline(always)]
unsafe fn from_f16(bits: uint16x4_t) -> float32x4_t {
    let values;
    // SAFETY: an instruction on registers alone.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) values, in(vreg) bits, options(pure, nomem, nostack, preserves_flags));
    }
    values
}

/// The nearest f16 of each value; rounding is to nearest even, as threads start.
///
/// # Safety
/// Every CPU of the target has NEON.
#[inline(always)]
unsafe fn to_f16(values: float32x4_t) -> uint16x4_t {
    let bits;
    // SAFETY: an instruction on registers alone.
    unsafe {
        asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) bits, in(vreg) values, options(pure, nomem, nostack, preserves_flags));
    }
    bits
}

/// The values of four bf16.
///
/// # Safety
/// Every CPU of the target has NEON.
#[inline(always)]
unsafe fn from_bf16(bits: uint16x4_t) -> float32x4_t {
    // SAFETY: the caller's.
    unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(bits)) }
}

/// The nearest bf16 of each value.
///
/// # Safety
/// Every CPU of the target has NEON.
#[inline(always)]
unsafe fn to_bf16(values: float32x4_t) -> uint16x4_t {
    // SAFETY: the caller's.
    unsafe {
        let bits = vreinterpretq_u32_f32(values);
        let upper = vshrq_n_u32::<16>(bits);
        let odd = vandq_u32(upper, vdupq_n_u32(1));
        let half = vaddq_u32(odd, vdupq_n_u32(0x7fff));
        let nearest = vshrq_n_u32::<16>(vaddq_u32(bits, half));
        let quiet = vorrq_u32(upper, vdupq_n_u32(0x0040));
        vmovn_u32(vbslq_u32(vceqq_f32(values, values), nearest, quiet))
    }
}

lanes! {
    Neon:

    const COUNT: usize = 4;

    fn splat(value: f32) -> Self { Self(vdupq_n_f32(value)) }
    fn load_f32(from: *const u8) -> Self { Self(vld1q_f32(from.cast())) }
    fn load_f16(from: *const u8) -> Self { Self(from_f16(vld1_u16(from.cast()))) }
    fn load_bf16(from: *const u8) -> Self { Self(from_bf16(vld1_u16(from.cast()))) }
    fn store_f32(self, to: *mut u8) { vst1q_f32(to.cast(), self.0); }
    fn store_f16(self, to: *mut u8) { vst1_u16(to.cast(), to_f16(self.0)); }
    fn store_bf16(self, to: *mut u8) { vst1_u16(to.cast(), to_bf16(self.0)); }
    fn round_f16(self) -> Self { Self(from_f16(to_f16(self.0))) }
    fn round_bf16(self) -> Self { Self(from_bf16(to_bf16(self.0))) }
    fn add(self, other: Self) -> Self { Self(vaddq_f32(self.0, other.0)) }
    fn mul(self, other: Self) -> Self { Self(vmulq_f32(self.0, other.0)) }

    // As `Element::min`: both ways of choosing, joined.
    fn min(self, other: Self) -> Self {
        let one = vbslq_f32(vcltq_f32(self.0, other.0), self.0, other.0);
        let two = vbslq_f32(vcltq_f32(other.0, self.0), other.0, self.0);
        let joined = vorrq_u32(vreinterpretq_u32_f32(one), vreinterpretq_u32_f32(two));
        Self(vreinterpretq_f32_u32(joined))
    }
    fn max(self, other: Self) -> Self {
        let one = vreinterpretq_u32_f32(vbslq_f32(vcgtq_f32(self.0, other.0), self.0, other.0));
        let two = vreinterpretq_u32_f32(vbslq_f32(vcgtq_f32(other.0, self.0), other.0, self.0));
        let ordered = vandq_u32(vceqq_f32(self.0, self.0), vceqq_f32(other.0, other.0));
        Self(vreinterpretq_f32_u32(vbslq_u32(ordered, vandq_u32(one, two), vorrq_u32(one, two))))
    }
}
