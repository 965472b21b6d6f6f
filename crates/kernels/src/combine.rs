//! Combines two operands: each op once for vectors of f32 and once for scalars.

use crate::dtype::ReduceOp;
use crate::element::Element;
use crate::lanes::Lanes;

/// An op on floats in vectors.
pub trait Combine {
    /// # Safety
    /// The CPU has the features of `L`.
    unsafe fn lanes<L: Lanes>(one: L, two: L) -> L;
}

/// An op on numbers of one type.
pub trait CombineElements<E> {
    fn elements(one: E, two: E) -> E;
}

macro_rules! arithmetic {
    ($name:ident, $lanes:ident, $elements:ident) => {
        pub struct $name;

        impl Combine for $name {
            #[inline(always)]
            unsafe fn lanes<L: Lanes>(one: L, two: L) -> L {
                // SAFETY: the caller's.
                unsafe { one.$lanes(two) }
            }
        }

        impl<E: Element> CombineElements<E> for $name {
            #[inline(always)]
            fn elements(one: E, two: E) -> E {
                one.$elements(two)
            }
        }
    };
}

arithmetic!(Sum, add, add);
arithmetic!(Product, mul, product);
arithmetic!(Min, min, min);
arithmetic!(Max, max, max);

/// Bits are the same bits in bytes, so one type does for all integers.
macro_rules! bitwise {
    ($name:ident, $operator:tt) => {
        pub struct $name;

        impl CombineElements<u8> for $name {
            #[inline(always)]
            fn elements(one: u8, two: u8) -> u8 {
                one $operator two
            }
        }
    };
}

bitwise!(BitAnd, &);
bitwise!(BitOr, |);
bitwise!(BitXor, ^);

/// Calls `$function` for an arithmetic op, by its type, which comes before the other types given.
macro_rules! for_arithmetic {
    ($op:expr, $function:ident :: <$($kind:ty),*> ($($argument:expr),*)) => {
        match $op {
            crate::dtype::ReduceOp::Sum => $function::<crate::combine::Sum, $($kind),*>($($argument),*),
            crate::dtype::ReduceOp::Product => $function::<crate::combine::Product, $($kind),*>($($argument),*),
            crate::dtype::ReduceOp::Min => $function::<crate::combine::Min, $($kind),*>($($argument),*),
            crate::dtype::ReduceOp::Max => $function::<crate::combine::Max, $($kind),*>($($argument),*),
            bitwise => crate::combine::refuse_floats(bitwise),
        }
    };
}
pub(crate) use for_arithmetic;

/// # Panics
/// Always: a program with such an op is refused long before.
pub fn refuse_floats(op: ReduceOp) -> ! {
    panic!("{op:?} of floats: only of integers")
}
