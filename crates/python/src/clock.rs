//! The clock of trace records, and how long cores take to notice each other.

use pyo3::prelude::*;

/// The clock of trace records: `CLOCK_MONOTONIC`, nanoseconds.
#[pyfunction]
pub fn now_ns() -> u64 {
    hocket_executor::now_ns()
}

/// Nanoseconds for a cache line to go from one core to another; None with one core.
#[pyfunction]
pub fn cache_line_ns(py: Python<'_>) -> Option<f64> {
    py.detach(hocket_wire::shm::ping_pong::one_way).map(|time| time.as_secs_f64() * 1e9)
}
