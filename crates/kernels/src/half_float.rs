//! The two 16-bit floats, one value at a time: the definition that vector instructions are tested against.
//!
//! Rounding is to nearest even; subnormals are kept; NaNs become quiet and keep their upper payload bits, as the
//! x86 instructions do.

/// 2⁻²⁴, the smallest f16 above zero.
const F16_STEP: f32 = 1.0 / 16_777_216.0;

/// The value of an f16.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let rest = u32::from(bits & 0x7fff);
    let magnitude = if rest > 0x7c00 {
        (rest << 13) | 0x7fc0_0000
    } else if rest == 0x7c00 {
        0x7f80_0000
    } else if rest >= 0x0400 {
        (rest << 13) + 0x3800_0000
    } else {
        (rest as f32 * F16_STEP).to_bits()
    };
    f32::from_bits(sign | magnitude)
}

/// The nearest f16.
#[inline(always)]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let rest = bits & 0x7fff_ffff;
    let magnitude = if rest > 0x7f80_0000 {
        0x7e00 | (rest >> 13) as u16 & 0x03ff
    } else if rest >= 0x4780_0000 {
        0x7c00 // 2¹⁶ and more
    } else if rest >= 0x3880_0000 {
        let odd = (rest >> 13) & 1;
        ((rest - 0x3800_0000 + 0x0fff + odd) >> 13) as u16 // the carry may reach infinity, rightly
    } else {
        // A subnormal: 0.5 has the step of an f16 subnormal, so the addition rounds as we must.
        ((f32::from_bits(rest) + 0.5).to_bits() - 0x3f00_0000) as u16
    };
    sign | magnitude
}

/// The value of a bf16.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bf16.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        (bits >> 16) as u16 | 0x0040
    } else {
        ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
    }
}

/// `value` in f32, rounded to odd: rounding the result to a 16-bit float gives what rounding `value` itself would
/// (Boldo and Melquiond 2008).
#[inline(always)]
pub fn f64_to_odd_f32(value: f64) -> f32 {
    let nearest = value as f32;
    let (exact, got) = (value.abs(), f64::from(nearest).abs());
    if got > exact {
        f32::from_bits((nearest.to_bits() - 1) | 1)
    } else if got < exact {
        f32::from_bits(nearest.to_bits() | 1)
    } else {
        nearest
    }
}
