//! Looks for values that no gradient should have.

use crate::convert::to_f64;
use crate::dtype::DType;

/// Position of the first NaN or infinity; `None` for integers and for finite floats.
pub fn first_non_finite(dtype: DType, src: &[u8]) -> Option<usize> {
    const BLOCK_BYTES: usize = 16 * 1024;
    if !matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16) {
        return None;
    }
    let finite = |element: &[u8]| to_f64(dtype, element).is_finite();
    for (at, block) in src.chunks(BLOCK_BYTES).enumerate() {
        // Whole blocks first, without branches; the position is looked up only where there is one.
        if (dtype == DType::F32 && all_finite_f32(block))
            || (dtype != DType::F32 && block.chunks_exact(dtype.bytes()).all(finite))
        {
            continue;
        }
        let within = block.chunks_exact(dtype.bytes()).position(|element| !finite(element))?;
        return Some(at * BLOCK_BYTES / dtype.bytes() + within);
    }
    None
}

/// An exponent of all ones is NaN or infinity; the maximum over a block needs no branch.
fn all_finite_f32(block: &[u8]) -> bool {
    let mut largest = 0;
    exponents(block, &mut largest);
    largest < 0x7f80_0000
}

crate::dispatch::dispatched! {
    fn exponents(block: &[u8], largest: &mut u32) {
        let (elements, _) = block.as_chunks::<4>();
        *largest = elements.iter().fold(0, |most, bytes| most.max(u32::from_le_bytes(*bytes) & 0x7f80_0000));
    }
}
