//! The door to TensorFlow: ops and their *kernels*, which its runtime calls, registered by its C interface
//! (`tensorflow/c/ops.h`, `kernels.h`). Nothing of TensorFlow is linked and none of its headers is used: `functions.rs`
//! finds the functions in the library that the process has loaded.
//!
//! Three ops make the means of a step, in one graph: `HocketBegin` asks for the turn; `HocketGive` copies a gradient for its
//! [`Group`](hocket_adapter::Group) as soon as backward has made it, and returns at once; `HocketTakeBack` depends on all
//! of these, and blocks until the means are there. A thread that blocks there has launched everything that others wait
//! for, so ranks never wait in a circle, however few threads the runtime has. TensorFlow's asynchronous kernels would
//! need no thread, but in C they call back by the address of a local variable that is gone (`CAsyncOpKernel`, 2.21).
//!
//! `HocketGive` is stateless: TensorFlow chains the stateful ops of a function in the order of the script's calls, which
//! is not the order of backward. What it returns keeps it from being pruned, and the turn from being merged.

mod functions;
mod kernels;
mod library;
mod ops;
mod register;
mod results;
mod tensor;
#[cfg(test)]
mod tests;

pub use register::register;
