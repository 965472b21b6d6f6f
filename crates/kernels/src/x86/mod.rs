//! Vectors of x86-64.

mod avx2;
mod avx512;
pub mod stream;

pub use avx2::Avx2;
pub use avx512::Avx512;
