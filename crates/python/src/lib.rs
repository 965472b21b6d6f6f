//! The extension module `hocket._native`: conversions only. No algorithm, no logging, no environment here.
//!
//! One file per concept; each has a `register` that adds its names to the module.

mod algorithms;
mod artefact;
mod at_exit;
mod builder;
mod clock;
mod departed;
mod digest;
mod dlc;
mod engine;
mod exceptions;
mod fabric;
mod group;
mod host;
mod kernels;
mod membership;
mod memory;
mod network;
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
    module.add("TIMEOUT_MAX_S", hocket_protocol::limits::TIMEOUT_MAX_S)?;
    module.add("FAR_S", hocket_protocol::congestion::ROUND_TRIP_MIN.as_secs_f64())?;
    algorithms::register(module)?;
    builder::register(module)?;
    clock::register(module)?;
    digest::register(module)?;
    fabric::register(module)?;
    dlc::register(module)?;
    program::register(module)?;
    engine::register(module)?;
    memory::register(module)?;
    group::register(module)?;
    host::register(module)?;
    kernels::register(module)?;
    membership::register(module)?;
    network::register(module)?;
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
