//! Reductions and casts over bytes: what the executor computes with. Knows no programs, no ranks.
//!
//! Buffers are `&[u8]` of whole little-endian elements, at any alignment. Lengths that do not fit are the caller's mistake
//! and panic with both. Each kernel is one loop, compiled for AVX-512, AVX2 and the baseline and chosen at run time, so that
//! all versions round alike: they are the same arithmetic in the same order.

mod cast;
mod convert;
mod copy;
mod dispatch;
mod dtype;
mod reduce;
mod scan;

pub use cast::{cast, round, scale};
pub use copy::copy_streaming;
pub use dtype::{DType, ReduceOp};
pub use reduce::{reduce, reduce_many};
pub use scan::first_non_finite;
