//! Blocks of floats of any type to and from f32, through a buffer that stays in the first-level cache.

use crate::dtype::DType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Elements converted at a time: 4 KiB of f32.
pub const BLOCK: usize = 1024;

/// Widens `src` (whole elements of a 16-bit or 32-bit float) into `out`; exact.
pub fn widen(dtype: DType, src: &[u8], out: &mut [f32; BLOCK]) -> usize {
    let elements = src.len() / dtype.bytes();
    match dtype {
        DType::F16 => {
            let mut halves = [f16::ZERO; BLOCK];
            for (half, bytes) in halves.iter_mut().zip(src.chunks_exact(2)) {
                *half = f16::from_le_bytes([bytes[0], bytes[1]]);
            }
            halves[..elements].convert_to_f32_slice(&mut out[..elements]);
        }
        DType::BF16 => {
            for (value, bytes) in out.iter_mut().zip(src.chunks_exact(2)) {
                *value = f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16);
            }
        }
        DType::F32 => {
            for (value, bytes) in out.iter_mut().zip(src.chunks_exact(4)) {
                *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        other => panic!("{other:?} is not widened to f32"),
    }
    elements
}

/// Rounds `values` to nearest even into `dst`.
pub fn narrow(dtype: DType, values: &[f32], dst: &mut [u8]) {
    match dtype {
        DType::F16 => {
            let mut halves = [f16::ZERO; BLOCK];
            halves[..values.len()].convert_from_f32_slice(values);
            for (bytes, half) in dst.chunks_exact_mut(2).zip(&halves) {
                bytes.copy_from_slice(&half.to_le_bytes());
            }
        }
        DType::BF16 => {
            for (bytes, value) in dst.chunks_exact_mut(2).zip(values) {
                bytes.copy_from_slice(&round_to_bf16(*value).to_le_bytes());
            }
        }
        DType::F32 => {
            for (bytes, value) in dst.chunks_exact_mut(4).zip(values) {
                bytes.copy_from_slice(&value.to_le_bytes());
            }
        }
        other => panic!("f32 is not narrowed to {other:?}"),
    }
}

/// Bits of the nearest bf16, ties to even; written without branches so that the loop around it vectorises.
#[inline]
fn round_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // Rounding may carry a NaN's payload into infinity: keep it a quiet NaN.
    let quiet = bits >> 16 | 0x40;
    (if value.is_nan() { quiet } else { rounded }) as u16
}

/// For f64 and its neighbours, where exactness matters more than speed.
pub fn to_f64(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F64 => f64::from_le_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
        ]),
        DType::F32 => f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        DType::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        DType::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        other => panic!("{other:?} is no float"),
    }
}

/// Rounds once, from f64 straight to the type.
pub fn from_f64(dtype: DType, value: f64, bytes: &mut [u8]) {
    match dtype {
        DType::F64 => bytes.copy_from_slice(&value.to_le_bytes()),
        DType::F32 => bytes.copy_from_slice(&(value as f32).to_le_bytes()),
        DType::F16 => bytes.copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DType::BF16 => bytes.copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
        other => panic!("{other:?} is no float"),
    }
}
