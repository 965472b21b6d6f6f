//! Atomics: those of the standard library, or loom's when it explores every interleaving of threads.

#[cfg(all(test, loom))]
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
