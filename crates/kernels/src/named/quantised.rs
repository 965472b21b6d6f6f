//! f32 as codes of 8 or 4 bits with one f32 scale per block of elements: a step is the 127th or the seventh part of the block's
//! largest magnitude. Two codes of 4 bits share a byte, the first one in its lower half; their blocks are even, so that no byte
//! belongs to two of them.
//!
//! Plain loops, vectorised at each level; a block is read twice by quantisation, the second time from the first-level cache.

use super::{constants, largest, operands, view, view_mut};
use crate::dispatch::{self, Kernel};
use crate::lanes::Lanes;
use std::marker::PhantomData;

/// Codes of one width.
pub trait Codes {
    /// Largest code that quantisation makes.
    const MOST: f32;
    /// Number of codes in a byte, of which blocks have multiples.
    const IN_BYTE: usize;
    /// Write a block's elements, `steps` of which are 1, as the nearest codes, of two the even one; NaN as zero.
    fn encode(values: &[f32], steps: f32, codes: &mut [u8]);
    /// Put the numbers of codes, times `scale`.
    fn decode(codes: &[u8], scale: f32, out: &mut [f32], put: &impl Fn(&mut f32, f32));
}

pub struct Int8;

impl Codes for Int8 {
    const MOST: f32 = 127.0;
    const IN_BYTE: usize = 1;

    #[inline(always)]
    fn encode(values: &[f32], steps: f32, codes: &mut [u8]) {
        for (code, value) in codes.iter_mut().zip(values) {
            *code = nearest(value * steps, -128.0, 127.0);
        }
    }

    #[inline(always)]
    fn decode(codes: &[u8], scale: f32, out: &mut [f32], put: &impl Fn(&mut f32, f32)) {
        for (code, out) in codes.iter().zip(out) {
            put(out, f32::from(code.cast_signed()) * scale);
        }
    }
}

pub struct Int4;

impl Codes for Int4 {
    const MOST: f32 = 7.0;
    const IN_BYTE: usize = 2;

    #[inline(always)]
    fn encode(values: &[f32], steps: f32, codes: &mut [u8]) {
        let nearest = |value: f32| nearest(value * steps, -7.0, 7.0) & 0xf;
        let (pairs, rest) = values.as_chunks::<2>();
        for (code, [low, high]) in codes.iter_mut().zip(pairs) {
            *code = nearest(*low) | nearest(*high) << 4;
        }
        if let ([last], Some(code)) = (rest, codes.get_mut(pairs.len())) {
            *code = nearest(*last);
        }
    }

    #[inline(always)]
    fn decode(codes: &[u8], scale: f32, out: &mut [f32], put: &impl Fn(&mut f32, f32)) {
        let number = |half: u8| f32::from((half << 4).cast_signed() >> 4);
        let (pairs, rest) = out.as_chunks_mut::<2>();
        for (code, [low, high]) in codes.iter().zip(&mut *pairs) {
            put(low, number(*code) * scale);
            put(high, number(*code >> 4) * scale);
        }
        if let ([last], Some(code)) = (rest, codes.get(pairs.len())) {
            put(last, number(*code) * scale);
        }
    }
}

/// The nearest number in the lowest bits, of two the even one; zero for NaN.
#[inline(always)]
fn nearest(value: f32, least: f32, most: f32) -> u8 {
    // Within the reach of i8 the sum with 1.5 · 2²³ has a step of one, so the addition rounds and leaves the code in the
    // lowest bits: every CPU has vectors of that, while few have them of `round_ties_even`.
    let ordered = if value.is_nan() { 0.0 } else { value };
    let low = if ordered < least { least } else { ordered };
    let within = if low > most { most } else { low };
    (within + 12_582_912.0).to_bits() as u8
}

/// (in) → (codes, scales), constant: elements per block. A block with NaN or infinity has a scale that is one.
pub fn quantise<C: Codes>(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([values], [codes, scales]) = operands(inputs, outputs)?;
    let (values, scales) = (view::<f32>(values)?, view_mut::<f32>(scales)?);
    let block = block::<C>(given, values.len(), codes.len(), scales.len())?;
    dispatch::run(Quantise::<C> { values, codes, scales, block, of: PhantomData });
    Ok(())
}

struct Quantise<'a, C> {
    values: &'a [f32],
    codes: &'a mut [u8],
    scales: &'a mut [f32],
    block: usize,
    of: PhantomData<C>,
}

impl<C: Codes> Kernel for Quantise<'_, C> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let blocks = self.values.chunks(self.block).zip(self.codes.chunks_mut(self.block / C::IN_BYTE));
        for ((values, codes), scale) in blocks.zip(self.scales) {
            let largest = largest(values);
            *scale = largest / C::MOST;
            C::encode(values, if largest > 0.0 { C::MOST / largest } else { 0.0 }, codes);
        }
    }
}

/// (codes, scales) → out.
pub fn dequantise<C: Codes>(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
) -> Result<(), String> {
    decode::<C, _>(inputs, outputs, given, |out, value| *out = value)
}

/// (codes, scales) → out, added to what is there.
pub fn dequantise_add<C: Codes>(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
) -> Result<(), String> {
    decode::<C, _>(inputs, outputs, given, |out, value| *out += value)
}

fn decode<C: Codes, P: Fn(&mut f32, f32)>(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
    put: P,
) -> Result<(), String> {
    let ([codes, scales], [out]) = operands(inputs, outputs)?;
    let (scales, out) = (view::<f32>(scales)?, view_mut::<f32>(out)?);
    let block = block::<C>(given, out.len(), codes.len(), scales.len())?;
    dispatch::run(Dequantise::<C, P> { codes, scales, out, block, put, of: PhantomData });
    Ok(())
}

struct Dequantise<'a, C, P> {
    codes: &'a [u8],
    scales: &'a [f32],
    out: &'a mut [f32],
    block: usize,
    put: P,
    of: PhantomData<C>,
}

impl<C: Codes, P: Fn(&mut f32, f32)> Kernel for Dequantise<'_, C, P> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let blocks = self.codes.chunks(self.block / C::IN_BYTE).zip(self.out.chunks_mut(self.block));
        for ((codes, out), scale) in blocks.zip(self.scales) {
            C::decode(codes, *scale, out, &self.put);
        }
    }
}

fn block<C: Codes>(given: &[f64], elements: usize, codes: usize, scales: usize) -> Result<usize, String> {
    let [block] = constants(given)?;
    let block = block as usize;
    let fits = block != 0 && elements.div_ceil(block) == scales && elements.div_ceil(C::IN_BYTE) == codes;
    if fits && block.is_multiple_of(C::IN_BYTE) {
        return Ok(block);
    }
    Err(format!(
        "{elements} elements in blocks of {block}, a multiple of {}, with {codes} bytes of codes and {scales} scales",
        C::IN_BYTE
    ))
}
