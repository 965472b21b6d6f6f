//! `HostGroup`: blocking collectives of one host, by the calling thread. Waits release the GIL.
//!
//! Buffers come as (address, bytes), since not every framework's element types have a buffer protocol. Each `unsafe`
//! here relies on the caller's contract in `_native.pyi`: the memory is valid, and nobody else uses it, until the call
//! returns.

use crate::engine::{Engine, Memory, duration, raised_signal};
use crate::exceptions::{ended_by, error, timed_out};
use crate::kernels::{slice, slice_mut};
use hocket_executor::{Engine as Executor, Who};
use hocket_host::{AREA_BYTES, Communicator, Error, Flat, Member};
use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_wire::memory::Region;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Address and length of memory lent by the caller.
type Lent = (usize, usize);

/// A group of ranks of this host; see `_native.pyi`.
#[pyclass(module = "hocket._native", frozen)]
pub struct HostGroup {
    group: Mutex<Communicator>,
    executor: Arc<Executor>,
    /// Keeps our area alive for others as long as they may call.
    _area: Py<Memory>,
}

fn bytes<'a>((address, len): Lent) -> &'a [u8] {
    // SAFETY: the module's invariant.
    unsafe { slice(address as *const u8, len) }
}

fn bytes_mut<'a>((address, len): Lent) -> &'a mut [u8] {
    // SAFETY: the module's invariant.
    unsafe { slice_mut(address as *mut u8, len) }
}

fn all<'a>(lent: Vec<Lent>) -> Vec<&'a [u8]> {
    lent.into_iter().map(bytes).collect()
}

fn all_mut<'a>(lent: Vec<Lent>) -> Vec<&'a mut [u8]> {
    lent.into_iter().map(bytes_mut).collect()
}

fn reduction(py: Python<'_>, op: &str, dtype: &str) -> PyResult<(ReduceOp, DType)> {
    let dtype = DType::parse(dtype)
        .ok_or_else(|| error(py, "UsageError", &format!("there is no element type `{dtype}`")))?;
    let known = ReduceOp::parse(op);
    let known = known.ok_or_else(|| error(py, "UsageError", &format!("there is no reduction `{op}`")))?;
    if known.is_bitwise() && dtype.is_float() {
        return Err(error(py, "UsageError", &format!("`{op}` is of integers, not of {dtype:?}")));
    }
    Ok((known, dtype))
}

impl HostGroup {
    /// Runs `act` without the GIL; Ctrl-C and the job's failure end its waits.
    fn run(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Communicator, &mut dyn FnMut() -> Option<String>) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        let mut signal = None;
        let outcome = py.detach(|| {
            let mut watch = || {
                if let Some(failure) = self.executor.failure() {
                    return Some(failure.to_string());
                }
                signal = raised_signal();
                signal.as_ref().map(|_| "interrupted".to_owned())
            };
            act(&mut self.group.lock().unwrap_or_else(PoisonError::into_inner), &mut watch)
        });
        match (outcome, signal) {
            (_, Some(raised)) => Err(raised),
            (Err(cause), None) => Err(self.raise(py, &cause)),
            (Ok(()), None) => Ok(()),
        }
    }

    fn raise(&self, py: Python<'_>, cause: &Error) -> PyErr {
        let message = cause.to_string();
        match cause {
            Error::Absent { absent, .. } => {
                // Of one group of one host.
                let who = |&rank: &Rank| Who { rank, host: self.executor.host().to_owned() };
                timed_out(py, &message, None, &absent.iter().map(who).collect::<Vec<_>>())
            }
            Error::GivenUp { .. } | Error::Broken(_) => ended_by(py, &self.executor, &message),
            Error::Mismatch { .. } | Error::Usage(_) => error(py, "UsageError", &message),
            Error::System { .. } => error(py, "Error", &message),
        }
    }
}

#[pymethods]
impl HostGroup {
    #[classattr]
    const AREA_BYTES: usize = AREA_BYTES;

    #[new]
    #[pyo3(signature = (engine, area, *, members, timeout_s, flat_bytes))]
    fn new(
        py: Python<'_>,
        engine: &Engine,
        area: Py<Memory>,
        members: Vec<(u32, u64)>,
        timeout_s: f64,
        flat_bytes: (usize, usize),
    ) -> PyResult<Self> {
        let executor = engine.executor();
        let mut known = Vec::with_capacity(members.len());
        let mut own = None;
        for (at, (rank, offset)) in members.into_iter().enumerate() {
            let rank = Rank(rank);
            if rank == executor.rank() {
                own = Some(at);
            }
            let wrong = |what| error(py, "UsageError", &format!("rank {rank} {what}"));
            let memory = executor.arena(rank).ok_or_else(|| wrong("is not on this host"))?;
            let place = Region::new(&memory, offset, AREA_BYTES as u64);
            let place = place.ok_or_else(|| wrong("has no such area"))?;
            known.push(Member { rank, area: place, arena: memory });
        }
        let own = own.ok_or_else(|| error(py, "UsageError", "this rank is not a member"))?;
        let flat = Flat { registered_bytes: flat_bytes.0, other_bytes: flat_bytes.1 };
        let group = Communicator::new(known, own, duration(py, timeout_s)?, flat)
            .map_err(|cause| error(py, "UsageError", &cause.to_string()))?;
        Ok(Self { group: Mutex::new(group), executor: Arc::clone(executor), _area: area })
    }

    fn other_memory(&self) -> Option<String> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner).other_memory()
    }

    fn set_timeout(&self, py: Python<'_>, timeout_s: f64) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        self.group.lock().unwrap_or_else(PoisonError::into_inner).set_timeout(timeout);
        Ok(())
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |group, watch| group.barrier(watch))
    }

    fn broadcast(&self, py: Python<'_>, buffer: Lent, root: usize) -> PyResult<()> {
        self.run(py, |group, watch| group.broadcast(bytes_mut(buffer), root, watch))
    }

    fn all_gather(&self, py: Python<'_>, own: Lent, outputs: Vec<Lent>) -> PyResult<()> {
        self.run(py, |group, watch| group.all_gather(bytes(own), &mut all_mut(outputs), watch))
    }

    fn gather(&self, py: Python<'_>, own: Lent, outputs: Vec<Lent>, root: usize) -> PyResult<()> {
        self.run(py, |group, watch| group.gather(bytes(own), &mut all_mut(outputs), root, watch))
    }

    fn scatter(&self, py: Python<'_>, inputs: Vec<Lent>, output: Lent, root: usize) -> PyResult<()> {
        self.run(py, |group, watch| group.scatter(&all(inputs), bytes_mut(output), root, watch))
    }

    fn all_to_all(&self, py: Python<'_>, inputs: Vec<Lent>, outputs: Vec<Lent>) -> PyResult<()> {
        self.run(py, |group, watch| group.all_to_all(&all(inputs), &mut all_mut(outputs), watch))
    }

    fn all_reduce(&self, py: Python<'_>, buffer: Lent, op: &str, dtype: &str) -> PyResult<()> {
        let reduction = reduction(py, op, dtype)?;
        self.run(py, |group, watch| group.all_reduce(bytes_mut(buffer), reduction, watch))
    }

    fn reduce(&self, py: Python<'_>, buffer: Lent, op: &str, dtype: &str, root: usize) -> PyResult<()> {
        let reduction = reduction(py, op, dtype)?;
        self.run(py, |group, watch| group.reduce(bytes_mut(buffer), reduction, root, watch))
    }

    fn reduce_scatter(
        &self,
        py: Python<'_>,
        inputs: Vec<Lent>,
        output: Lent,
        op: &str,
        dtype: &str,
    ) -> PyResult<()> {
        let reduction = reduction(py, op, dtype)?;
        self.run(py, |group, watch| group.reduce_scatter(&all(inputs), bytes_mut(output), reduction, watch))
    }

    fn time_all_reduce(
        &self,
        py: Python<'_>,
        buffer: Lent,
        op: &str,
        dtype: &str,
        calls: usize,
    ) -> PyResult<Vec<u64>> {
        let reduction = reduction(py, op, dtype)?;
        let mut times_ns = Vec::with_capacity(calls);
        self.run(py, |group, watch| {
            for _ in 0..calls {
                let began = Instant::now();
                group.all_reduce(bytes_mut(buffer), reduction, watch)?;
                times_ns.push(began.elapsed().as_nanos() as u64);
            }
            Ok(())
        })?;
        Ok(times_ns)
    }
}

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<HostGroup>()
}
