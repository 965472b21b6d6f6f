//! f32 as i8 with one f32 scale per block of elements: a step is a 127th of the block's largest magnitude.
//!
//! Plain loops, vectorised at each level; a block is read twice by quantisation, the second time from the first-level cache.

use super::{constants, largest, operands, view, view_mut};
use crate::dispatch::{self, Kernel};
use crate::lanes::Lanes;

/// (in) → (codes, scales), constant: elements per block. A block with NaN or infinity has a scale that is one.
pub fn quantise(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([values], [codes, scales]) = operands(inputs, outputs)?;
    let (values, codes, scales) = (view::<f32>(values)?, view_mut::<i8>(codes)?, view_mut::<f32>(scales)?);
    let block = block(given, codes.len(), scales.len())?;
    dispatch::run(Quantise { values, codes, scales, block });
    Ok(())
}

struct Quantise<'a> {
    values: &'a [f32],
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    block: usize,
}

impl Kernel for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let blocks = self.values.chunks(self.block).zip(self.codes.chunks_mut(self.block));
        for ((values, codes), scale) in blocks.zip(self.scales) {
            let largest = largest(values);
            *scale = largest / 127.0;
            let steps = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            for (code, value) in codes.iter_mut().zip(values) {
                *code = nearest(value * steps);
            }
        }
    }
}

/// The nearest i8, of two the even one; zero for NaN.
#[inline(always)]
fn nearest(value: f32) -> i8 {
    // Within the reach of i8 the sum with 1.5 · 2²³ has a step of one, so the addition rounds and leaves the code in the
    // lowest bits: every CPU has vectors of that, while few have them of `round_ties_even`.
    let ordered = if value.is_nan() { 0.0 } else { value };
    let low = if ordered < -128.0 { -128.0 } else { ordered };
    let within = if low > 127.0 { 127.0 } else { low };
    (within + 12_582_912.0).to_bits() as i8
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
    dispatch::run(Dequantise { codes, scales, out, block, put });
    Ok(())
}

struct Dequantise<'a, P> {
    codes: &'a [i8],
    scales: &'a [f32],
    out: &'a mut [f32],
    block: usize,
    put: P,
}

impl<P: Fn(&mut f32, f32)> Kernel for Dequantise<'_, P> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let blocks = self.codes.chunks(self.block).zip(self.out.chunks_mut(self.block));
        for ((codes, out), scale) in blocks.zip(self.scales) {
            for (code, out) in codes.iter().zip(out) {
                (self.put)(out, f32::from(*code) * scale);
            }
        }
    }
}

fn block(given: &[f64], elements: usize, scales: usize) -> Result<usize, String> {
    let [block] = constants(given)?;
    let block = block as usize;
    if block == 0 || elements.div_ceil(block) != scales {
        return Err(format!("{elements} elements in blocks of {block} with {scales} scales"));
    }
    Ok(block)
}
