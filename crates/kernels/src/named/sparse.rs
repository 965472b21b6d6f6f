//! A few elements of many: selection by magnitude, and the sum of what was selected elsewhere. Indices are i32, counts i64.

use super::{constants, operands, view, view_mut};

/// (in) → (values, indices, count): the elements of largest magnitude, as many as fit, in the order of their indices; zeros
/// are left out, which is why there may be fewer. Of equal magnitudes, earlier elements go first.
pub fn top_k(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([values], [kept, indices, count]) = operands(inputs, outputs)?;
    let [] = constants(given)?;
    let values = view::<f32>(values)?;
    let (kept, indices) = (view_mut::<f32>(kept)?, view_mut::<i32>(indices)?);
    let k = kept.len().min(indices.len()).min(values.len());
    // The bits of a float without its sign grow with its magnitude; NaN is largest, so that it is seen.
    let magnitude = |value: f32| value.to_bits() & 0x7fff_ffff;
    let mut taken = 0;
    if k > 0 {
        let mut all: Vec<u32> = values.iter().map(|&value| magnitude(value)).collect();
        let at = all.len() - k;
        let (_, &mut threshold, above) = all.select_nth_unstable(at);
        // Ties at the threshold fill what those above it leave.
        let mut ties = k - above.iter().filter(|&&bits| bits > threshold).count();
        for (index, &value) in values.iter().enumerate() {
            let bits = magnitude(value);
            if bits == 0 || bits < threshold || bits == threshold && ties == 0 {
                continue;
            }
            ties -= usize::from(bits == threshold);
            kept[taken] = value;
            indices[taken] = index as i32;
            taken += 1;
        }
    }
    *view_mut::<i64>(count)?.first_mut().ok_or("the count has no element")? = taken as i64;
    Ok(())
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
