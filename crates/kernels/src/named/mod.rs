//! Kernels of whole slices, which programs call by name; and those of users, by address. `BUILTINS` is the
//! table.
//!
//! A built-in gets inputs, outputs and constants. The verifier has compared the lengths of slices; a kernel itself
//! checks what the verifier cannot know (a block size, the extents of a matrix).

mod elementwise;
mod foreign;
mod int2;
mod low_rank;
mod quantised;
mod rows;
mod sparse;

pub use foreign::Foreign;

/// Inputs, outputs, constants; `Err` has the reason for a refusal.
pub type Builtin = fn(&[&[u8]], &mut [&mut [u8]], &[f64]) -> Result<(), String>;

#[derive(Clone, Copy, Debug)]
pub enum Function {
    Builtin(Builtin),
    Foreign(Foreign),
}

impl Function {
    /// The built-in of that name: `name.dtype`.
    pub fn builtin(name: &str) -> Option<Self> {
        BUILTINS.iter().find(|(known, _)| *known == name).map(|(_, builtin)| Self::Builtin(*builtin))
    }

    pub fn call(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], constants: &[f64]) -> Result<(), String> {
        match self {
            Self::Builtin(builtin) => builtin(inputs, outputs, constants),
            Self::Foreign(foreign) => {
                foreign.call(inputs, outputs, constants);
                Ok(())
            }
        }
    }
}

const BUILTINS: &[(&str, Builtin)] = &[
    ("sub.f32", elementwise::sub::<f32>),
    ("sub.f64", elementwise::sub::<f64>),
    ("mul.f32", elementwise::mul::<f32>),
    ("mul.f64", elementwise::mul::<f64>),
    ("clamp.f32", elementwise::clamp::<f32>),
    ("clamp.f64", elementwise::clamp::<f64>),
    ("fill.f32", elementwise::fill::<f32>),
    ("fill.f64", elementwise::fill::<f64>),
    ("fill.f16", elementwise::fill_f16),
    ("fill.bf16", elementwise::fill_bf16),
    ("top_k.f32", sparse::top_k),
    ("scatter_add.f32", sparse::scatter_add),
    ("clear_at.f32", sparse::clear_at),
    ("scatter_add_rows.f64", rows::scatter_add_f64),
    ("scatter_add_rows.f32", rows::scatter_add_f32),
    ("scatter_add_rows.f16", rows::scatter_add_f16),
    ("scatter_add_rows.bf16", rows::scatter_add_bf16),
    ("quantise.int8", quantised::quantise::<quantised::Int8>),
    ("dequantise.int8", quantised::dequantise::<quantised::Int8>),
    ("dequantise_add.int8", quantised::dequantise_add::<quantised::Int8>),
    ("quantise.int4", quantised::quantise::<quantised::Int4>),
    ("dequantise.int4", quantised::dequantise::<quantised::Int4>),
    ("dequantise_add.int4", quantised::dequantise_add::<quantised::Int4>),
    ("top_k.int2", int2::top_k),
    ("scatter_add.int2", int2::scatter_add),
    ("matmul.f32", low_rank::matmul),
    ("orthogonalise.f32", low_rank::orthogonalise),
    ("seed.f32", low_rank::seed),
];

/// A float's bits without its sign grow with its magnitude; NaN is the largest, so that it is noticed.
#[inline(always)]
fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// The largest magnitude; NaN if there is one.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |max, &value| max.max(magnitude(value))))
}

/// Slices of a call, as many as its kernel takes.
type Operands<'a, 'b, const I: usize, const O: usize> = ([&'a [u8]; I], [&'b mut [u8]; O]);

/// The slices of a call, or how many it should have.
fn operands<'a, 'b, const I: usize, const O: usize>(
    inputs: &[&'a [u8]],
    outputs: &'b mut [&mut [u8]],
) -> Result<Operands<'a, 'b, I, O>, String> {
    let (given, wanted) = ((inputs.len(), outputs.len()), (I, O));
    let wrong =
        || format!("takes {} inputs and {} outputs, given {} and {}", wanted.0, wanted.1, given.0, given.1);
    let inputs: [&[u8]; I] = inputs.try_into().map_err(|_| wrong())?;
    let outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut **output).collect();
    Ok((inputs, outputs.try_into().map_err(|_| wrong())?))
}

/// The constants of a call, or how many it should have.
fn constants<const N: usize>(constants: &[f64]) -> Result<[f64; N], String> {
    let given = constants.len();
    constants.try_into().map_err(|_| format!("takes {N} constants, given {given}"))
}

/// A number that lies in memory as it is.
trait Number: Copy + PartialOrd + std::ops::Sub<Output = Self> + std::ops::Mul<Output = Self> {
    fn from_f64(value: f64) -> Self;
}

impl Number for f32 {
    fn from_f64(value: f64) -> Self {
        value as Self
    }
}

impl Number for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
}

/// Types all of whose bit patterns are values.
trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for u16 {}
impl Plain for i8 {}
impl Plain for i32 {}
impl Plain for i64 {}

/// Bytes as elements; `Err` when they are not whole or not aligned, which slices of buffers always are.
fn view<T: Plain>(bytes: &[u8]) -> Result<&[T], String> {
    // SAFETY: every bit pattern of a `Plain` type is a value.
    let (before, elements, after) = unsafe { bytes.align_to::<T>() };
    if before.is_empty() && after.is_empty() { Ok(elements) } else { Err("unaligned elements".into()) }
}

fn view_mut<T: Plain>(bytes: &mut [u8]) -> Result<&mut [T], String> {
    // SAFETY: as above; and every value of a `Plain` type is bytes without padding.
    let (before, elements, after) = unsafe { bytes.align_to_mut::<T>() };
    if before.is_empty() && after.is_empty() { Ok(elements) } else { Err("unaligned elements".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<T: Plain>(values: &[T]) -> Vec<u8> {
        // SAFETY: `Plain` types have no padding.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
    }

    fn call(
        name: &str,
        inputs: &[Vec<u8>],
        outputs: &mut [Vec<u8>],
        constants: &[f64],
    ) -> Result<(), String> {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        Function::builtin(name).expect("a name of the table").call(&inputs, &mut outputs, constants)
    }

    /// A wrong selection would lose the largest gradients.
    #[test]
    fn top_k_takes_the_largest_and_counts_what_is_not_zero() {
        let mut out = [bytes(&[0f32; 3]), bytes(&[0i32; 3]), bytes(&[0i64])];
        call("top_k.f32", &[bytes(&[0.5f32, -3.0, 0.0, 2.0, -0.1])], &mut out, &[]).unwrap();
        assert_eq!(view::<f32>(&out[0]).unwrap(), [0.5, -3.0, 2.0]);
        assert_eq!(view::<i32>(&out[1]).unwrap(), [0, 1, 3]);
        call("top_k.f32", &[bytes(&[0f32, 0.0, 7.0, 0.0])], &mut out, &[]).unwrap();
        assert_eq!(view::<i64>(&out[2]).unwrap(), [1]);
        assert_eq!(view::<i32>(&out[1]).unwrap()[0], 2);
    }

    /// An index from a peer's memory may be out of range: it must not write elsewhere.
    #[test]
    fn scatter_refuses_indices_out_of_range() {
        let mut out = [bytes(&[0f32; 2])];
        let inputs = [bytes(&[1f32]), bytes(&[5i32]), bytes(&[1i64])];
        assert!(call("scatter_add.f32", &inputs, &mut out, &[]).is_err());
    }

    /// The error of a block is at most half a step of its own scale.
    #[test]
    fn int8_rounds_to_the_nearest_step() {
        let values: Vec<f32> = (0..100).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.01).collect();
        let mut coded = [bytes(&[0i8; 100]), bytes(&[0f32; 4])];
        call("quantise.int8", &[bytes(&values)], &mut coded, &[32.0]).unwrap();
        let mut back = [bytes(&[0f32; 100])];
        call("dequantise.int8", &coded, &mut back, &[32.0]).unwrap();
        for (at, (value, back)) in values.iter().zip(view::<f32>(&back[0]).unwrap()).enumerate() {
            let step = view::<f32>(&coded[1]).unwrap()[at / 32];
            assert!((value - back).abs() <= step * 0.5001, "{value} became {back}");
        }
    }

    /// Columns that are not orthonormal would scale the gradient.
    #[test]
    fn orthogonalise_gives_orthonormal_columns() {
        let mut matrix = [bytes(&[0f32; 12])];
        call("seed.f32", &[], &mut matrix, &[]).unwrap();
        call("orthogonalise.f32", &[], &mut matrix, &[6.0, 2.0]).unwrap();
        let mut product = [bytes(&[0f32; 4])];
        let inputs = [matrix[0].clone(), matrix[0].clone()];
        call("matmul.f32", &inputs, &mut product, &[2.0, 6.0, 2.0, 1.0, 0.0]).unwrap();
        for (value, expected) in view::<f32>(&product[0]).unwrap().iter().zip([1.0, 0.0, 0.0, 1.0]) {
            assert!((value - expected).abs() < 1e-5);
        }
    }
}
