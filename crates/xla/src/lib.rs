//! The door to XLA: *handlers*, which the runtime calls for each gradient when the operand is there, by the C interface
//! of XLA's FFI (`xla/ffi/api/c_api.h`). Nothing of XLA is linked, and none of its headers is used: `abi.rs` mirrors the
//! structs, whose sizes the runtime tells and `call.rs` checks.
//!
//! A gradient has two calls. The first copies it for its [`Group`](hocket_adapter::Group); the second depends on the first
//! of all gradients, and its result is the mean, in memory of its own. Neither blocks: where something is awaited, the
//! answer is a *future*.

mod abi;
mod call;
mod handler;
mod operand;
mod runtime;
#[cfg(test)]
mod tests;

pub use handler::{give, take_back};
