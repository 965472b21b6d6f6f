//! Atomics: the standard library's, or loom's where it checks every order in which threads can meet.

#[cfg(all(test, loom))]
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
