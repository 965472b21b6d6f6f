//! The extension module `hocket._native`: conversions only. No algorithm, no logging, no environment here.
//!
//! One file per concept; each has a `register` that adds its names to the module.

mod algorithms;
mod builder;
mod clock;
mod dlc;
mod engine;
mod exceptions;
mod fabric;
mod group;
mod host;
mod kernels;
mod membership;
mod notifier;
mod order;
mod owned;
mod plan;
mod program;
mod readiness;
mod sampler;
mod schedules;
mod simulate;
mod tls;
mod trace;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    algorithms::register(module)?;
    builder::register(module)?;
    clock::register(module)?;
    fabric::register(module)?;
    dlc::register(module)?;
    program::register(module)?;
    engine::register(module)?;
    group::register(module)?;
    host::register(module)?;
    kernels::register(module)?;
    membership::register(module)?;
    order::register(module)?;
    owned::register(module)?;
    plan::register(module)?;
    readiness::register(module)?;
    sampler::register(module)?;
    schedules::register(module)?;
    simulate::register(module)?;
    tls::register(module)?;
    trace::register(module)
}
