//! One element as a Rust number: the operations of types that need no conversion (f64 and integers, and f32 in the
//! scalar form). Plain loops over these are vectorised by the compiler at each dispatch level.

/// A number that lies in memory as it is.
pub trait Element: Copy {
    /// The sum; integers wrap around.
    fn add(self, other: Self) -> Self;
    /// The product; integers wrap around.
    fn product(self, other: Self) -> Self;
    /// The smaller; NaN if either is, -0.0 below 0.0.
    fn min(self, other: Self) -> Self;
    /// The larger; NaN if either is, 0.0 above -0.0.
    fn max(self, other: Self) -> Self;
    /// Times a constant, computed in the type if it is a float; integers in f64, rounded to nearest even, saturating.
    fn times(self, factor: f64) -> Self;
}

macro_rules! float {
    ($float:ident) => {
        impl Element for $float {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }

            // Of two equal numbers or a NaN, each comparison below takes the other side, so the bits are joined: equal
            // numbers differ in nothing but the sign of zero, and a NaN joined with anything is a NaN.
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                let one = if self < other { self } else { other };
                let two = if other < self { other } else { self };
                Self::from_bits(one.to_bits() | two.to_bits())
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let one = if self > other { self } else { other };
                let two = if other > self { other } else { self };
                let unordered = self.is_nan() || other.is_nan();
                let (one, two) = (one.to_bits(), two.to_bits());
                Self::from_bits(if unordered { one | two } else { one & two })
            }

            #[inline(always)]
            fn times(self, factor: f64) -> Self {
                self * factor as $float
            }
        }
    };
}

macro_rules! integer {
    ($integer:ident) => {
        impl Element for $integer {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }

            #[inline(always)]
            fn times(self, factor: f64) -> Self {
                (self as f64 * factor).round_ties_even() as $integer
            }
        }
    };
}

float!(f64);
float!(f32);
integer!(i64);
integer!(i32);
integer!(i8);
integer!(u8);
