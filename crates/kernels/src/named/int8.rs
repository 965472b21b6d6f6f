//! f32 as i8 with one f32 scale per block of elements: a step is a 127th of the block's largest magnitude.

use super::{constants, operands, view, view_mut};

/// (in) → (codes, scales), constant: elements per block. A block with NaN or infinity has a scale that is one.
pub fn quantise(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([values], [codes, scales]) = operands(inputs, outputs)?;
    let (values, codes, scales) = (view::<f32>(values)?, view_mut::<i8>(codes)?, view_mut::<f32>(scales)?);
    let block = block(given, codes.len(), scales.len())?;
    for ((values, codes), scale) in values.chunks(block).zip(codes.chunks_mut(block)).zip(scales) {
        let largest =
            values.iter().fold(0f32, |max, value| if value.abs() <= max { max } else { value.abs() });
        *scale = largest / 127.0;
        let steps = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        for (code, value) in codes.iter_mut().zip(values) {
            *code = (value * steps).round_ties_even() as i8;
        }
    }
    Ok(())
}

/// (codes, scales) → out.
pub fn dequantise(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    decode(inputs, outputs, given, |out, value| *out = value)
}

/// (codes, scales) → out, added to what is there.
pub fn dequantise_add(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    decode(inputs, outputs, given, |out, value| *out += value)
}

fn decode(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
    put: impl Fn(&mut f32, f32),
) -> Result<(), String> {
    let ([codes, scales], [out]) = operands(inputs, outputs)?;
    let (codes, scales, out) = (view::<i8>(codes)?, view::<f32>(scales)?, view_mut::<f32>(out)?);
    let block = block(given, codes.len(), scales.len())?;
    for ((codes, out), scale) in codes.chunks(block).zip(out.chunks_mut(block)).zip(scales) {
        for (code, out) in codes.iter().zip(out) {
            put(out, f32::from(*code) * scale);
        }
    }
    Ok(())
}

fn block(given: &[f64], elements: usize, scales: usize) -> Result<usize, String> {
    let [block] = constants(given)?;
    let block = block as usize;
    if block == 0 || elements.div_ceil(block) != scales {
        return Err(format!("{elements} elements in blocks of {block} with {scales} scales"));
    }
    Ok(block)
}
