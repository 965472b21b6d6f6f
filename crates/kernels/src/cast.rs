//! Conversions between element types, and elementwise functions in place.

use crate::convert::{BLOCK, from_f64, narrow, to_f64, widen};
use crate::dispatch::dispatched;
use crate::dtype::DType;
use crate::reduce::check;

/// `dst = convert(src)`: floats among each other, rounded to nearest even once; equal types are copied.
///
/// # Panics
/// When the element counts differ, or an integer type is to become another one.
pub fn cast(dst_dtype: DType, dst: &mut [u8], src_dtype: DType, src: &[u8]) {
    check(dst_dtype, dst, src_dtype, src);
    match (dst_dtype, src_dtype) {
        _ if dst_dtype == src_dtype => dst.copy_from_slice(src),
        (DType::F32 | DType::F16 | DType::BF16, DType::F32 | DType::F16 | DType::BF16) => {
            let mut values = [0.0; BLOCK];
            let blocks = dst.chunks_mut(BLOCK * dst_dtype.bytes()).zip(src.chunks(BLOCK * src_dtype.bytes()));
            for (dst, src) in blocks {
                let elements = widen(src_dtype, src, &mut values);
                narrow(dst_dtype, &values[..elements], dst);
            }
        }
        _ => {
            for (d, s) in dst.chunks_exact_mut(dst_dtype.bytes()).zip(src.chunks_exact(src_dtype.bytes())) {
                from_f64(dst_dtype, to_f64(src_dtype, s), d);
            }
        }
    }
}

/// `dst = factor · dst`, floats only; the factor is rounded to the type's arithmetic (f32 for 16-bit types) first.
///
/// # Panics
/// When the type is no float or the bytes are no whole elements.
pub fn scale(dtype: DType, dst: &mut [u8], factor: f64) {
    match dtype {
        DType::F32 => scale_f32(dst, factor as f32),
        DType::F16 | DType::BF16 => {
            let mut values = [0.0; BLOCK];
            for block in dst.chunks_mut(BLOCK * 2) {
                let elements = widen(dtype, block, &mut values);
                values[..elements].iter_mut().for_each(|value| *value *= factor as f32);
                narrow(dtype, &values[..elements], block);
            }
        }
        _ => {
            for element in dst.chunks_exact_mut(dtype.bytes()) {
                from_f64(dtype, to_f64(dtype, element) * factor, element);
            }
        }
    }
}

/// Rounds each element to the nearest value that `to` holds, in place.
///
/// # Panics
/// When a type is no float.
pub fn round(dtype: DType, dst: &mut [u8], to: DType) {
    let mut narrow_block = [0u8; BLOCK * 8];
    for block in dst.chunks_mut(BLOCK * dtype.bytes()) {
        let narrowed = &mut narrow_block[..block.len() / dtype.bytes() * to.bytes()];
        cast(to, narrowed, dtype, block);
        cast(dtype, block, to, narrowed);
    }
}

dispatched! {
    fn scale_f32(dst: &mut [u8], factor: f32) {
        let (elements, _) = dst.as_chunks_mut::<4>();
        for element in elements {
            *element = (f32::from_le_bytes(*element) * factor).to_le_bytes();
        }
    }
}
