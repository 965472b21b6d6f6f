//! A vector of f32, as wide as the CPU has it: kernels over f32, f16 and bf16 are written once against this.
//!
//! `f32` itself is the vector of one: the scalar form of every kernel, and what handles the rest after whole vectors.

use crate::half_float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// `COUNT` values that are loaded, combined and stored together.
///
/// All functions are unsafe for the same two reasons: the CPU must have the features of the implementation, and
/// pointers must be good for `COUNT` elements of the named type (at any alignment).
pub trait Lanes: Copy {
    const COUNT: usize;

    unsafe fn splat(value: f32) -> Self;
    unsafe fn load_f32(from: *const u8) -> Self;
    unsafe fn load_f16(from: *const u8) -> Self;
    unsafe fn load_bf16(from: *const u8) -> Self;
    unsafe fn store_f32(self, to: *mut u8);
    unsafe fn store_f16(self, to: *mut u8);
    unsafe fn store_bf16(self, to: *mut u8);
    /// Rounded to the nearest f16.
    unsafe fn round_f16(self) -> Self;
    /// Rounded to the nearest bf16.
    unsafe fn round_bf16(self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;

    /// Whether lines are stored past the caches.
    const PAST_CACHES: bool = false;

    /// Copies 64 bytes, both aligned to as many; past the caches where the CPU can, then in no order with other stores.
    #[inline(always)]
    unsafe fn store_line(to: *mut u8, from: *const u8) {
        // SAFETY: 64 bytes are at both.
        unsafe { to.copy_from_nonoverlapping(from, 64) }
    }

    /// Asks for the line at `from` to be brought into the second-level cache; any address will do.
    #[inline(always)]
    unsafe fn fetch(_from: *const u8) {}

    /// Orders all lines before with all stores after.
    #[inline(always)]
    unsafe fn fence() {}
}

/// `Lanes` of a vector. All its functions are unsafe and inlined, and their bodies are intrinsics.
macro_rules! lanes {
    ($vector:ty:
     $(const $constant:ident: $type:ty = $value:literal;)*
     $(fn $name:ident($($argument:tt)*) $(-> $result:ty)? $body:block)*) => {
        impl $crate::lanes::Lanes for $vector {
            $(const $constant: $type = $value;)*
            $(
                #[inline(always)]
                unsafe fn $name($($argument)*) $(-> $result)? {
                    // SAFETY: the trait's conditions, CPU features and room for `COUNT` elements.
                    unsafe { $body }
                }
            )*
        }
    };
}
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
pub(crate) use lanes;

impl Lanes for f32 {
    const COUNT: usize = 1;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        value
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> Self {
        // SAFETY: the trait's condition.
        unsafe { from.cast::<f32>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> Self {
        // SAFETY: the trait's condition.
        f16_to_f32(unsafe { from.cast::<u16>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> Self {
        // SAFETY: the trait's condition.
        bf16_to_f32(unsafe { from.cast::<u16>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store_f32(self, to: *mut u8) {
        // SAFETY: the trait's condition.
        unsafe { to.cast::<f32>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u8) {
        // SAFETY: the trait's condition.
        unsafe { to.cast::<u16>().write_unaligned(f32_to_f16(self)) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u8) {
        // SAFETY: the trait's condition.
        unsafe { to.cast::<u16>().write_unaligned(f32_to_bf16(self)) }
    }

    #[inline(always)]
    unsafe fn round_f16(self) -> Self {
        f16_to_f32(f32_to_f16(self))
    }

    #[inline(always)]
    unsafe fn round_bf16(self) -> Self {
        bf16_to_f32(f32_to_bf16(self))
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self * other
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        crate::element::Element::min(self, other)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        crate::element::Element::max(self, other)
    }
}

/// The memory format of a vector's values.
///
/// The functions are unsafe as those of [`Lanes`].
pub trait Format {
    const BYTES: usize;

    unsafe fn load<L: Lanes>(from: *const u8) -> L;
    unsafe fn store<L: Lanes>(values: L, to: *mut u8);
    unsafe fn round<L: Lanes>(values: L) -> L;
}

macro_rules! format {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $load:ident, $store:ident, |$values:ident| $round:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl Format for $name {
            const BYTES: usize = $bytes;

            #[inline(always)]
            unsafe fn load<L: Lanes>(from: *const u8) -> L {
                // SAFETY: the trait's condition.
                unsafe { L::$load(from) }
            }

            #[inline(always)]
            unsafe fn store<L: Lanes>(values: L, to: *mut u8) {
                // SAFETY: the trait's condition.
                unsafe { values.$store(to) }
            }

            #[inline(always)]
            unsafe fn round<L: Lanes>($values: L) -> L {
                $round
            }
        }
    };
}

format!(
    /// 32-bit floats.
    F32, 4, load_f32, store_f32, |values| values
);
format!(
    /// IEEE 754 half precision.
    F16, 2, load_f16, store_f16, |values| {
        // SAFETY: the trait's condition.
        unsafe { values.round_f16() }
    }
);
format!(
    /// The upper half of an f32.
    BF16, 2, load_bf16, store_bf16, |values| {
        // SAFETY: the trait's condition.
        unsafe { values.round_bf16() }
    }
);
