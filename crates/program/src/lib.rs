//! The intermediate representation: what every rank does to move and combine some buffers.
//!
//! Pure data and pure functions: no I/O, no clock, no threads. Everything that decides about
//! communication makes a [`Program`]; everything that moves data consumes one.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod build;
mod bytes;
mod contract;
mod gathered;
mod ops;
mod owned;
mod pack;
pub mod passes;
mod relay;
mod resize;
mod retain;
mod space;
mod stage;
pub mod text;
pub mod verify;
mod wrap;

pub use build::RankBuilder;
pub use bytes::Damaged;
pub use contract::{Contract, Share};
pub use gathered::Rows;
pub use hocket_algorithms::{Algorithm, Misfit, Owned, Via};
pub use hocket_ids::{DType, ReduceOp};
pub use ops::{
    After, Buffer, BufferKind, Collective, Kernel, KernelSpec, Node, Op, Program, RankProgram, Record, Slice,
    Slices, Source,
};
pub use owned::{Direction, Exchanged};
pub use space::Space;
