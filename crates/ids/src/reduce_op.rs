//! Reductions, which programs name and kernels compute.

/// The combination of two elements; all are commutative. Integer sums and products wrap around. `Min` and `Max` give
/// NaN if either operand is NaN, and order -0.0 below 0.0. 16-bit floats are added and multiplied in `f32` and rounded
/// to nearest even. Bitwise reductions are for integers only. Floating-point sums are taken in program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Every reduction, in the order of the enum.
    pub const ALL: [Self; 7] =
        [Self::Sum, Self::Product, Self::Min, Self::Max, Self::BitAnd, Self::BitOr, Self::BitXor];

    /// The name in the text form and in Python.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::BitAnd => "and",
            Self::BitOr => "or",
            Self::BitXor => "xor",
        }
    }

    /// The reduction of that name, if there is one.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }

    /// Whether it is one of bits.
    pub const fn is_bitwise(self) -> bool {
        matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor)
    }
}
