//! Element types and reductions.

/// Element type of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the definition")]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I8,
    U8,
}

impl DType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }
}

/// How two elements become one. Integer sums wrap; floating minima and maxima follow IEEE 754 `minNum` and `maxNum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the definition")]
pub enum ReduceOp {
    Sum,
    Min,
    Max,
}
