//! Sparse selections: elements of largest magnitude, and the sum of other ranks' selections. Indices are i32, counts
//! i64.

use super::{constants, magnitude, operands, view, view_mut};
use crate::dispatch::{self, Kernel};
use crate::lanes::Lanes;

/// (in) → (values, indices, count): the elements of largest magnitude, as many as fit, in the order of their indices.
/// Zeros are left out, so there may be fewer. Of equal magnitudes, earlier elements win.
pub fn top_k(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([values], [kept, indices, count]) = operands(inputs, outputs)?;
    let [] = constants(given)?;
    let values = view::<f32>(values)?;
    let (kept, indices) = (view_mut::<f32>(kept)?, view_mut::<i32>(indices)?);
    let taken = dispatch::run(TopK { values, kept, indices });
    *view_mut::<i64>(count)?.first_mut().ok_or("the count has no element")? = taken as i64;
    Ok(())
}

/// A radix selection in two passes over the values: a histogram of upper bits finds the bin of the threshold; the
/// values in or above that bin, little more than the result, are gathered and filtered.
struct TopK<'a> {
    values: &'a [f32],
    kept: &'a mut [f32],
    indices: &'a mut [i32],
}

/// Bits below those of the histogram, which are the exponent and three bits of the mantissa: 2,048 bins fit a
/// first-level cache, four times over.
const BIN_SHIFT: u32 = 20;
const BINS: usize = 1 << (31 - BIN_SHIFT);

/// Elements skipped together when none reaches the bin.
const GROUP: usize = 16;

impl Kernel for TopK<'_> {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> usize {
        let k = self.kept.len().min(self.indices.len()).min(self.values.len());
        if k == 0 {
            return 0;
        }
        let (floor, above, within) = bin_of_threshold(self.values, k);
        let reaching = indices_from(self.values, floor, above + within);
        let magnitudes = reaching.iter().map(|&index| magnitude(self.values[index]));
        let ceiling = floor + (1 << BIN_SHIFT);
        let mut candidates: Vec<u32> = magnitudes.filter(|&bits| bits < ceiling).collect();
        let (_, &mut threshold, larger) = candidates.select_nth_unstable(within - (k - above));
        // Ties at the threshold fill the remaining places.
        let mut ties = k - above - larger.iter().filter(|&&bits| bits > threshold).count();
        let mut taken = 0;
        for index in reaching {
            let bits = magnitude(self.values[index]);
            if bits == 0 || bits < threshold || bits == threshold && ties == 0 {
                continue;
            }
            ties -= usize::from(bits == threshold);
            self.kept[taken] = self.values[index];
            self.indices[taken] = index as i32;
            taken += 1;
        }
        taken
    }
}

/// The start of the bin that contains the `k`th largest value, the number of values above the bin, and the number in
/// it.
#[inline(always)]
fn bin_of_threshold(values: &[f32], k: usize) -> (u32, usize, usize) {
    // Neighbours count in separate tables: with equal values they would wait for each other's increments.
    let mut tables = vec![[0_u32; BINS]; 4];
    if let [one, two, three, four] = &mut tables[..] {
        let bin = |value: f32| (magnitude(value) >> BIN_SHIFT) as usize;
        let (quads, rest) = values.as_chunks::<4>();
        for quad in quads {
            one[bin(quad[0])] += 1;
            two[bin(quad[1])] += 1;
            three[bin(quad[2])] += 1;
            four[bin(quad[3])] += 1;
        }
        for &value in rest {
            one[bin(value)] += 1;
        }
    }
    let within = |bin: usize| tables.iter().map(|table| table[bin] as usize).sum::<usize>();
    let (mut bin, mut above) = (BINS - 1, 0);
    while above + within(bin) < k {
        above += within(bin);
        bin -= 1;
    }
    ((bin as u32) << BIN_SHIFT, above, within(bin))
}

/// The indices of the values whose magnitude is at least `floor`, of which there are `count`.
#[inline(always)]
fn indices_from(values: &[f32], floor: u32, count: usize) -> Vec<usize> {
    // Each index is written, and kept only if its value counts: no branch to mispredict. The last place takes the
    // surplus.
    let mut found = vec![0; count + 1];
    let mut len = 0;
    let (groups, rest) = values.as_chunks::<GROUP>();
    for (group, values) in groups.iter().enumerate() {
        if values.iter().fold(0, |max: u32, &value| max.max(magnitude(value))) >= floor {
            for (at, &value) in values.iter().enumerate() {
                found[len] = group * GROUP + at;
                len += usize::from(magnitude(value) >= floor);
            }
        }
    }
    for (at, &value) in rest.iter().enumerate() {
        found[len] = groups.len() * GROUP + at;
        len += usize::from(magnitude(value) >= floor);
    }
    found.truncate(len);
    found
}

/// (values, indices, count) → dense: adds the first `count` values at their indices.
pub fn scatter_add(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([values, indices, count], [dense]) = operands(inputs, outputs)?;
    let [] = constants(given)?;
    let (values, dense) = (view::<f32>(values)?, view_mut::<f32>(dense)?);
    for (&index, &value) in counted(indices, count)?.iter().zip(values) {
        *at(dense, index)? += value;
    }
    Ok(())
}

/// (indices, count) → dense: zero at the first `count` indices.
pub fn clear_at(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([indices, count], [dense]) = operands(inputs, outputs)?;
    let [] = constants(given)?;
    let dense = view_mut::<f32>(dense)?;
    for &index in counted(indices, count)? {
        *at(dense, index)? = 0.0;
    }
    Ok(())
}

fn counted<'a>(indices: &'a [u8], count: &[u8]) -> Result<&'a [i32], String> {
    let indices = view::<i32>(indices)?;
    let count = *view::<i64>(count)?.first().ok_or("the count has no element")?;
    let count = usize::try_from(count).ok().filter(|count| *count <= indices.len());
    Ok(&indices[..count.ok_or("the count is larger than the slice")?])
}

fn at(dense: &mut [f32], index: i32) -> Result<&mut f32, String> {
    let len = dense.len();
    let found = usize::try_from(index).ok().and_then(|index| dense.get_mut(index));
    found.ok_or_else(|| format!("index {index} of {len} elements"))
}
