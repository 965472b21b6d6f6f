//! f32 as 4 bits with one f32 scale per block of elements: a step is a seventh of the block's largest magnitude. Two codes
//! share a byte, the first one in its lower half; blocks are even, so that no byte belongs to two of them.

use super::{constants, largest, operands, view, view_mut};
use crate::dispatch::{self, Kernel};
use crate::lanes::Lanes;

/// (in) → (codes, scales), constant: elements per block. A block with NaN or infinity has a scale that is one.
pub fn quantise(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([values], [codes, scales]) = operands(inputs, outputs)?;
    let (values, scales) = (view::<f32>(values)?, view_mut::<f32>(scales)?);
    let block = block(given, values.len(), codes.len(), scales.len())?;
    dispatch::run(Quantise { values, codes, scales, block });
    Ok(())
}

struct Quantise<'a> {
    values: &'a [f32],
    codes: &'a mut [u8],
    scales: &'a mut [f32],
    block: usize,
}

impl Kernel for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let blocks = self.values.chunks(self.block).zip(self.codes.chunks_mut(self.block / 2));
        for ((values, codes), scale) in blocks.zip(self.scales) {
            let largest = largest(values);
            *scale = largest / 7.0;
            let steps = if largest > 0.0 { 7.0 / largest } else { 0.0 };
            let (pairs, rest) = values.as_chunks::<2>();
            for (code, [low, high]) in codes.iter_mut().zip(pairs) {
                *code = nearest(low * steps) | nearest(high * steps) << 4;
            }
            if let ([last], Some(code)) = (rest, codes.get_mut(pairs.len())) {
                *code = nearest(last * steps);
            }
        }
    }
}

/// The nearest of -7 to 7 in 4 bits, of two the even one; zero for NaN.
#[inline(always)]
fn nearest(value: f32) -> u8 {
    let ordered = if value.is_nan() { 0.0 } else { value };
    // The addition rounds and leaves the code in the lowest bits, as with 8 bits.
    (ordered.clamp(-7.0, 7.0) + 12_582_912.0).to_bits() as u8 & 0xf
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
    let (scales, out) = (view::<f32>(scales)?, view_mut::<f32>(out)?);
    let block = block(given, out.len(), codes.len(), scales.len())?;
    dispatch::run(Dequantise { codes, scales, out, block, put });
    Ok(())
}

struct Dequantise<'a, P> {
    codes: &'a [u8],
    scales: &'a [f32],
    out: &'a mut [f32],
    block: usize,
    put: P,
}

impl<P: Fn(&mut f32, f32)> Kernel for Dequantise<'_, P> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let blocks = self.codes.chunks(self.block / 2).zip(self.out.chunks_mut(self.block));
        for ((codes, out), scale) in blocks.zip(self.scales) {
            let (pairs, rest) = out.as_chunks_mut::<2>();
            for (code, [low, high]) in codes.iter().zip(&mut *pairs) {
                (self.put)(low, number(*code) * scale);
                (self.put)(high, number(*code >> 4) * scale);
            }
            if let ([last], Some(code)) = (rest, codes.get(pairs.len())) {
                (self.put)(last, number(*code) * scale);
            }
        }
    }
}

/// The number in the lower half of a byte.
#[inline(always)]
fn number(code: u8) -> f32 {
    f32::from((code << 4).cast_signed() >> 4)
}

fn block(given: &[f64], elements: usize, codes: usize, scales: usize) -> Result<usize, String> {
    let [block] = constants(given)?;
    let block = block as usize;
    let fits = codes == elements.div_ceil(2) && block != 0 && elements.div_ceil(block) == scales;
    if !fits || !block.is_multiple_of(2) {
        return Err(format!(
            "{elements} elements in even blocks of {block}, with {codes} bytes of codes and {scales} scales"
        ));
    }
    Ok(block)
}
