//! Small matrices for low-rank compression (PowerSGD, Vogels, Karimireddy and Jaggi 2019). Row-major f32.

use super::{constants, operands, view, view_mut};

/// (left, right) → out: constants rows, inner, cols of the product, then 1 where left, right is stored transposed.
pub fn matmul(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([left, right], [out]) = operands(inputs, outputs)?;
    let [rows, inner, cols, left_t, right_t] = constants(given)?.map(|value| value as usize);
    let (left, right, out) = (view::<f32>(left)?, view::<f32>(right)?, view_mut::<f32>(out)?);
    if left.len() != rows * inner || right.len() != inner * cols || out.len() != rows * cols {
        return Err(format!(
            "{rows}×{inner} by {inner}×{cols} of {}, {} into {} elements",
            left.len(),
            right.len(),
            out.len()
        ));
    }
    out.fill(0.0);
    if left_t == 1 {
        // Down the stored rows of left, which are contiguous: each adds to all rows of the product.
        for k in 0..inner {
            for row in 0..rows {
                let factor = left[k * rows + row];
                add_row(&mut out[row * cols..][..cols], factor, right, k, inner, right_t == 1);
            }
        }
        return Ok(());
    }
    for row in 0..rows {
        for k in 0..inner {
            let factor = left[row * inner + k];
            add_row(&mut out[row * cols..][..cols], factor, right, k, inner, right_t == 1);
        }
    }
    Ok(())
}

fn add_row(out: &mut [f32], factor: f32, right: &[f32], k: usize, inner: usize, transposed: bool) {
    let cols = out.len();
    if transposed {
        for (col, out) in out.iter_mut().enumerate() {
            *out += factor * right[col * inner + k];
        }
    } else {
        for (out, right) in out.iter_mut().zip(&right[k * cols..][..cols]) {
            *out += factor * right;
        }
    }
}

/// Columns become orthonormal, by modified Gram-Schmidt; a column that depends on those before becomes zero. Constants: rows,
/// cols.
pub fn orthogonalise(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([], [matrix]) = operands(inputs, outputs)?;
    let [rows, cols] = constants(given)?.map(|value| value as usize);
    let matrix = view_mut::<f32>(matrix)?;
    if matrix.len() != rows * cols {
        return Err(format!("a matrix of {rows}×{cols} in {} elements", matrix.len()));
    }
    let dot = |matrix: &[f32], a: usize, b: usize| -> f32 {
        (0..rows).map(|row| matrix[row * cols + a] * matrix[row * cols + b]).sum()
    };
    for col in 0..cols {
        let before = dot(matrix, col, col);
        for other in 0..col {
            let shared = dot(matrix, col, other);
            for row in 0..rows {
                matrix[row * cols + col] -= shared * matrix[row * cols + other];
            }
        }
        let norm = dot(matrix, col, col);
        // The rest of a dependent column is rounding error: its direction would be noise.
        let factor = if norm > before * 1e-10 { norm.sqrt().recip() } else { 0.0 };
        for row in 0..rows {
            matrix[row * cols + col] *= factor;
        }
    }
    Ok(())
}

/// Where all elements are zero, as in a new state, they become the same pseudo-random numbers between -1 and 1 on every
/// rank.
pub fn seed(inputs: &[&[u8]], outputs: &mut [&mut [u8]], given: &[f64]) -> Result<(), String> {
    let ([], [matrix]) = operands(inputs, outputs)?;
    let [] = constants(given)?;
    let matrix = view_mut::<f32>(matrix)?;
    if matrix.iter().all(|&value| value == 0.0) {
        // A linear congruential generator (Knuth, MMIX); the upper bits are the good ones.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for value in matrix {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        }
    }
    Ok(())
}
