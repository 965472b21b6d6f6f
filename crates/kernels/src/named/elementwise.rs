//! Element by element, one kind of float.

use super::{Number, Plain, constants, operands, view, view_mut};
use crate::half_float::{f32_to_bf16, f32_to_f16};

/// `out = left - right`.
pub fn sub<T: Number + Plain>(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
) -> Result<(), String> {
    binary::<T>(inputs, outputs, given, |left, right| left - right)
}

/// `out = left · right`.
pub fn mul<T: Number + Plain>(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
) -> Result<(), String> {
    binary::<T>(inputs, outputs, given, |left, right| left * right)
}

fn binary<T: Number + Plain>(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
    combine: impl Fn(T, T) -> T,
) -> Result<(), String> {
    let ([left, right], [out]) = operands(inputs, outputs)?;
    let [] = constants(given)?;
    let (left, right) = (view::<T>(left)?, view::<T>(right)?);
    for ((out, &left), &right) in view_mut::<T>(out)?.iter_mut().zip(left).zip(right) {
        *out = combine(left, right);
    }
    Ok(())
}

/// `out = in` between the constants `low` and `high`; NaN stays.
pub fn clamp<T: Number + Plain>(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
) -> Result<(), String> {
    let ([values], [out]) = operands(inputs, outputs)?;
    let [low, high] = constants(given)?.map(T::from_f64);
    for (out, &value) in view_mut::<T>(out)?.iter_mut().zip(view::<T>(values)?) {
        *out = if value < low {
            low
        } else if value > high {
            high
        } else {
            value
        };
    }
    Ok(())
}

/// `out` = the constant, everywhere.
pub fn fill<T: Number + Plain>(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
) -> Result<(), String> {
    let ([], [out]) = operands(inputs, outputs)?;
    let [value] = constants(given)?.map(T::from_f64);
    view_mut::<T>(out)?.fill(value);
    Ok(())
}

/// `out` = the constant, as f16.
pub fn fill_f16(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    fill_bits(inputs, outputs, given, f32_to_f16)
}

/// `out` = the constant, as bf16.
pub fn fill_bf16(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    fill_bits(inputs, outputs, given, f32_to_bf16)
}

fn fill_bits(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
    bits: fn(f32) -> u16,
) -> Result<(), String> {
    let ([], [out]) = operands(inputs, outputs)?;
    let [value] = constants(given)?;
    view_mut::<u16>(out)?.fill(bits(value as f32));
    Ok(())
}
