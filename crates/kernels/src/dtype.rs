//! What elements are and how two become one.

/// Element type of a slice of bytes.
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
    /// Every element type, in the order of the enum.
    pub const ALL: [Self; 8] =
        [Self::F64, Self::F32, Self::F16, Self::BF16, Self::I64, Self::I32, Self::I8, Self::U8];

    /// What it is called: the name in the enum, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I8 => "i8",
            Self::U8 => "u8",
        }
    }

    /// The type of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.name() == name)
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }

    /// Whether elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::BF16)
    }

    /// Whether every value of this type is also one of `other`.
    pub(crate) const fn fits(self, other: Self) -> bool {
        match (self, other) {
            (Self::F16 | Self::BF16, Self::F32)
            | (Self::F16 | Self::BF16 | Self::F32, Self::F64)
            | (Self::I8 | Self::U8, Self::I32)
            | (Self::I8 | Self::U8 | Self::I32, Self::I64) => true,
            _ => self as u8 == other as u8,
        }
    }
}

/// How two elements become one; all are commutative. Integer sums and products wrap around. `Min` and `Max` give NaN when
/// either is NaN, and order -0.0 below 0.0. 16-bit floats are added and multiplied in `f32` and rounded to nearest even.
/// Bits are those of integers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the definition")]
pub enum ReduceOp {
    Sum,
    Product,
    Min,
    Max,
    BitAnd,
    BitOr,
    BitXor,
}

impl ReduceOp {
    /// Whether it is one of bits.
    pub const fn is_bitwise(self) -> bool {
        matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor)
    }
}

/// Elements of type `dtype` in `bytes` bytes.
///
/// # Panics
/// When they are not a whole number: the caller computed the slice.
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
