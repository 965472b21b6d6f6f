//! `run_switch`: moves frames between the TAP devices of an emulated cluster, with the GIL released, until it is told to end.

use crate::exceptions::error;
use hocket_switch::{Network, Switch, WayRule, run};
use pyo3::prelude::*;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Frames under way take no more than this: half a second of 4 Gbit/s.
const HELD_BYTES_MAX: usize = 256 << 20;

/// Links that are crossed, latency, jitter in seconds, share that is lost.
type Way = (Vec<usize>, f64, f64, f64);

/// See `_native.pyi`.
#[pyfunction]
#[pyo3(signature = (taps, *, links, ways, queue_s, reorder, seed, control, answers))]
#[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
fn run_switch(
    py: Python<'_>,
    taps: Vec<i32>,
    links: Vec<Option<f64>>,
    ways: Vec<Way>,
    queue_s: f64,
    reorder: bool,
    seed: u64,
    control: i32,
    answers: i32,
) -> PyResult<()> {
    let rule = |(links, latency_s, jitter_s, loss)| WayRule { links, latency_s, jitter_s, loss };
    let ways = ways.into_iter().map(rule).collect();
    let ports = taps.len();
    let network = Network { ports, links, ways, queue_s, reorder, seed, held_bytes_max: HELD_BYTES_MAX };
    let switch = Switch::new(&network).map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
    let taps = taps.into_iter().map(own).collect::<io::Result<Vec<_>>>()?;
    let (control, answers) = (own(control)?, own(answers)?);
    py.detach(|| run(switch, &taps, &control, &answers))
        .map_err(|cause| error(py, "TestbedError", &cause.to_string()))
}

/// A duplicate, which is closed when we are done.
fn own(descriptor: i32) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::from_raw_os_error(9));
    }
    // SAFETY: not the -1 that is no descriptor; borrowed for this line alone, and the system refuses to duplicate one that
    // is not open, which `test_wrong_descriptors_are_refused` shows.
    unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()
}

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(run_switch, module)?)
}
