//! Kernels over byte slices: elementwise reduce, cast, scale, round, scan and copy; and kernels of whole slices, by
//! name. They know element types and the CPU, but no programs, ranks or threads.
//!
//! Elements are in native byte order; slices need no alignment. A kernel's scalar form (`Lanes` of one value) defines
//! its result; AVX2, AVX-512 and NEON compute the same bits, except for the payload of a NaN. All are bound by memory:
//! `python -m benches kernels` prints each as a share of `memcpy`, and docs/results.md has the measurements.
#![expect(
    clippy::inline_always,
    reason = "generic kernels take on the CPU features of the function that they are inlined into"
)]

mod cast;
mod combine;
mod copy;
mod dispatch;
mod dtype;
mod element;
mod fill;
mod half_float;
mod lanes;
mod many;
mod named;
#[cfg(target_arch = "aarch64")]
mod neon;
mod reduce;
mod scale;
mod scan;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use cast::cast;
pub use copy::copy;
pub use dtype::{DType, ReduceOp};
pub use many::{Source, reduce_many};
pub use named::{Foreign, Function};
pub use reduce::reduce;
pub use scale::{round, scale};
pub use scan::first_non_finite;
