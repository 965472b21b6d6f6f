//! The largest elements of each chunk in 2 bits: a sign, and which of the chunk's two magnitudes. The magnitudes are the means of
//! those above and up to half of the largest one, so what is sent is never farther from the elements than nothing is. Places
//! are u16 within the chunk.

use super::{constants, magnitude, operands, view, view_mut};

/// Elements of a chunk whose places fit into 16 bits.
const CHUNK_MAX: usize = 1 << 16;

/// (in) → (places, codes, scales), constants: elements per chunk, and how many of them are sent, those of the largest
/// magnitude. Of equal magnitudes, earlier elements win.
pub fn top_k(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([values], [places, codes, scales]) = operands(inputs, outputs)?;
    let (values, scales) = (view::<f32>(values)?, view_mut::<f32>(scales)?);
    let layout = Layout::of(given, values.len(), [places.len(), codes.len(), scales.len()])?;
    codes.fill(0);
    let mut order: Vec<u16> = Vec::with_capacity(layout.chunk);
    let mut sent = 0;
    for (chunk, means) in values.chunks(layout.chunk).zip(scales.as_chunks_mut::<2>().0) {
        let taken = layout.count.min(chunk.len());
        order.clear();
        order.extend((0..chunk.len()).map(|at| at as u16));
        let magnitude = |at: u16| magnitude(chunk[usize::from(at)]);
        if taken < chunk.len() {
            order.select_nth_unstable_by_key(taken, |&at| (u32::MAX - magnitude(at), at));
            order.truncate(taken);
        }
        order.sort_unstable();
        let largest = order.iter().fold(0, |max, &at| max.max(magnitude(at)));
        let middle = f32::from_bits(largest) / 2.0;
        let (mut sums, mut counts) = ([0.0_f64; 2], [0_u32; 2]);
        for &at in &order {
            let value = chunk[usize::from(at)];
            // NaN is above, and spreads from there.
            let within = value.abs() <= middle;
            let above = !within;
            sums[usize::from(above)] += f64::from(value.abs());
            counts[usize::from(above)] += 1;
            let code = u8::from(above) | u8::from(value.is_sign_negative()) << 1;
            codes[sent / 4] |= code << (2 * (sent % 4));
            places[2 * sent..2 * sent + 2].copy_from_slice(&at.to_le_bytes());
            sent += 1;
        }
        for ((mean, sum), count) in means.iter_mut().zip(sums).zip(counts) {
            *mean = if count == 0 { 0.0 } else { (sum / f64::from(count)) as f32 };
        }
    }
    Ok(())
}

/// (places, codes, scales) → dense: adds what `top_k` has sent.
pub fn scatter_add(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([places, codes, scales], [dense]) = operands(inputs, outputs)?;
    let (scales, dense) = (view::<f32>(scales)?, view_mut::<f32>(dense)?);
    let layout = Layout::of(given, dense.len(), [places.len(), codes.len(), scales.len()])?;
    let mut sent = 0;
    for (chunk, means) in dense.chunks_mut(layout.chunk).zip(scales.as_chunks::<2>().0) {
        for _ in 0..layout.count.min(chunk.len()) {
            let at = usize::from(u16::from_le_bytes([places[2 * sent], places[2 * sent + 1]]));
            let code = codes[sent / 4] >> (2 * (sent % 4));
            let magnitude = means[usize::from(code & 1)];
            let len = chunk.len();
            *chunk.get_mut(at).ok_or_else(|| format!("place {at} of {len} elements"))? +=
                if code & 2 == 0 { magnitude } else { -magnitude };
            sent += 1;
        }
    }
    Ok(())
}

struct Layout {
    chunk: usize,
    count: usize,
}

impl Layout {
    /// The layout by a call's constants, if its slices have these lengths.
    fn of(given: &[f64], elements: usize, lengths: [usize; 3]) -> Result<Self, String> {
        let [chunk, count] = constants(given)?;
        let (chunk, count) = (chunk as usize, count as usize);
        if chunk == 0 || chunk > CHUNK_MAX || count == 0 || count > chunk {
            return Err(format!("{count} elements of each {chunk}: from 1 to all, of {CHUNK_MAX} at most"));
        }
        let sent = elements / chunk * count + count.min(elements % chunk);
        let wanted = [2 * sent, sent.div_ceil(4), 2 * elements.div_ceil(chunk)];
        if wanted != lengths {
            return Err(format!("{elements} elements take slices of {wanted:?}, given {lengths:?}"));
        }
        Ok(Self { chunk, count })
    }
}
