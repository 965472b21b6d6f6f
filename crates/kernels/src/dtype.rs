//! Relations between element types.

pub use hocket_ids::{DType, ReduceOp};

/// Whether every value of `dtype` is also one of `other`.
pub(crate) const fn fits(dtype: DType, other: DType) -> bool {
    match (dtype, other) {
        (DType::F16 | DType::BF16, DType::F32)
        | (DType::F16 | DType::BF16 | DType::F32, DType::F64)
        | (DType::I8 | DType::U8, DType::I32)
        | (DType::I8 | DType::U8 | DType::I32, DType::I64) => true,
        _ => dtype as u8 == other as u8,
    }
}

/// Elements of type `dtype` in `bytes` bytes.
///
/// # Panics
/// When the number is not whole: the caller computed the slice.
pub(crate) fn count(dtype: DType, bytes: usize) -> usize {
    assert!(bytes.is_multiple_of(dtype.bytes()), "{bytes} bytes are no whole number of {dtype:?} elements");
    bytes / dtype.bytes()
}

/// Elements in both of two slices.
///
/// # Panics
/// When they differ.
pub(crate) fn common_count(dst_dtype: DType, dst: &[u8], src_dtype: DType, src: &[u8]) -> usize {
    let elements = count(dst_dtype, dst.len());
    let given = count(src_dtype, src.len());
    assert_eq!(
        elements, given,
        "destination has {elements} elements of {dst_dtype:?}, source {given} of {src_dtype:?}"
    );
    elements
}
