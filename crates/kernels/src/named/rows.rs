//! Rows of a table: what sparse gradients are sums of. Numbers of rows and counts are i64.

use super::{constants, operands, view};
use hocket_ids::{DType, ReduceOp};

/// (rows, numbers, count) → table: adds the first `count` rows, of as many elements as the constant says, to those of their
/// numbers. A number may come several times; rows are added in order, so that all ranks get the same bits.
///
/// Bound by memory: a row is read once, and its place in the table read and written once.
fn scatter_add(
    dtype: DType,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    given: &[f64],
) -> Result<(), String> {
    let ([rows, numbers, count], [table]) = operands(inputs, outputs)?;
    let [elements] = constants(given)?;
    let row_bytes = elements as usize * dtype.bytes();
    if row_bytes == 0 || !table.len().is_multiple_of(row_bytes) {
        return Err(format!("a table of {} bytes has no rows of {elements} elements", table.len()));
    }
    let numbers = view::<i64>(numbers)?;
    let count = *view::<i64>(count)?.first().ok_or("the count has no element")?;
    let taken = usize::try_from(count).ok().and_then(|count| numbers.get(..count));
    let taken = taken.ok_or_else(|| format!("{count} rows of {}", numbers.len()))?;
    if rows.len() < taken.len() * row_bytes {
        return Err(format!("{count} rows are more than {} bytes", rows.len()));
    }
    let known = table.len() / row_bytes;
    for (&number, row) in taken.iter().zip(rows.chunks_exact(row_bytes)) {
        let place = usize::try_from(number).ok().filter(|&number| number < known);
        let start = place.ok_or_else(|| format!("row {number} of {known}"))? * row_bytes;
        crate::reduce(ReduceOp::Sum, dtype, &mut table[start..start + row_bytes], dtype, row);
    }
    Ok(())
}

macro_rules! scatter_add {
    ($($name:ident $dtype:ident)*) => {$(
        #[doc = concat!("Of ", stringify!($dtype), ".")]
        pub fn $name(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
            scatter_add(DType::$dtype, inputs, outputs, given)
        }
    )*};
}

scatter_add! { scatter_add_f64 F64 scatter_add_f32 F32 scatter_add_f16 F16 scatter_add_bf16 BF16 }
