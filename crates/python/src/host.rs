//! `HostGroup`: blocking collectives of one host, by the calling thread. Waits release the GIL.
//!
//! Buffers come as (address, bytes), since not every framework's element types have a buffer protocol. Each `unsafe`
//! here relies on the caller's contract: the memory is valid, and nobody else uses it, until the call
//! returns.

use crate::departed::Departed;
use crate::engine::Engine;
use crate::exceptions::{ended_by, error, error_with, raise};
use crate::kernels::{slice, slice_mut};
use crate::memory::Memory;
use crate::waits::{duration, raised_signal};
use hocket_executor::{Engine as Executor, NotedWait, Who};
use hocket_host::{AREA_BYTES, Communicator, Error, Flat, Member, Watch};
use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_protocol::limits::patience;
use hocket_wire::memory::Region;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Address and length of memory lent by the caller.
type Lent = (usize, usize);

/// Blocking collectives of ranks of one host, by the calling thread. All members call the same, in one order.
///
/// Buffers are (address, bytes), anywhere in this process; they must be there, and nobody else may use them, until the call
/// returns. Those in registered memory are reduced in place, without a copy. `op`: sum, product, min, max, and of integers and, or,
/// xor; `dtype`: as programs have it. Roots are positions in the group. `UsageError` names a rank that calls something else; the
/// `missing` of `PeerError` are the ranks that do not come in time. After either the group is broken.
#[pyclass(module = "hocket._native", frozen)]
pub struct HostGroup {
    group: Mutex<Option<Communicator>>,
    executor: Arc<Executor>,
    /// Our area, until we leave.
    area: Mutex<Option<Py<Memory>>>,
    departed: Arc<Departed>,
}

impl Drop for HostGroup {
    fn drop(&mut self) {
        self.depart();
    }
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
    /// Runs `act` without the GIL; Ctrl-C, the job's failure and the end of this process end its waits.
    fn run(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Communicator, Watch<'_>) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        let (mut signal, mut left) = (None, None);
        let mut waits: Option<(Rank, NotedWait)> = None;
        let outcome = py.detach(|| {
            let mut watch = |awaited: Option<Rank>| {
                if let Some(failure) = self.executor.failure() {
                    return Some(failure.to_string());
                }
                if self.executor.is_closing() {
                    return Some("this process leaves its job".to_owned());
                }
                left = awaited.and_then(|rank| self.executor.left(rank, ", and is waited for"));
                if let Some(failure) = &left {
                    return Some(failure.to_string());
                }
                waits = awaited.map(|rank| match waits.take() {
                    Some((before, noted)) if before == rank => (rank, noted),
                    _ => (rank, self.executor.note_wait(rank)),
                });
                signal = raised_signal();
                signal.as_ref().map(|_| "interrupted".to_owned())
            };
            match &mut *self.group.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(group) => act(group, &mut watch),
                None => Err(Error::Usage("this rank has left the group".into())),
            }
        });
        if let (Err(Error::GivenUp { .. }), Some(failure)) = (&outcome, left) {
            self.executor.fail(failure);
        }
        match (outcome, signal) {
            (_, Some(raised)) => Err(raised),
            (Err(cause), None) => Err(self.raise(py, &cause)),
            (Ok(()), None) => Ok(()),
        }
    }

    fn depart(&self) {
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).take();
        let area = self.area.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(group), Some(area)) = (group, area) {
            self.departed.hold(group.leave(), area);
        }
    }

    fn raise(&self, py: Python<'_>, cause: &Error) -> PyErr {
        let message = cause.to_string();
        match cause {
            Error::Absent { absent, timeout_s, .. } => {
                let timeout = patience(*timeout_s).unwrap_or_default();
                let what = |culprits: &[Who]| absent_because(&message, absent, culprits);
                let cause = py.detach(|| self.executor.absent(absent.clone(), timeout, what));
                raise(py, &cause)
            }
            Error::GivenUp { .. } | Error::Broken(_) => ended_by(py, &self.executor, &message),
            Error::Mismatch { other, .. } => {
                error_with(py, "UsageError", &message, |attributes| attributes.set_item("rank", other.0))
            }
            Error::Usage(_) => error(py, "UsageError", &message),
            Error::System { .. } => error(py, "Error", &message),
        }
    }
}

#[pymethods]
impl HostGroup {
    #[classattr]
    const AREA_BYTES: usize = AREA_BYTES;

    /// `area`: `AREA_BYTES` of our own; `members`: every member's rank and its area's `arena_offset`, in its order.
    ///
    /// `flat_bytes`: up to how many bytes every member reduces all by itself, in registered memory and in other: the same on all.
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
        engine.departed.sweep();
        let executor = &engine.executor;
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
        Ok(Self {
            group: Mutex::new(Some(group)),
            executor: Arc::clone(executor),
            area: Mutex::new(Some(area)),
            departed: Arc::clone(&engine.departed),
        })
    }

    /// Leave after the last call; idempotent, and what the end of this object does. `UsageError` from later calls.
    ///
    /// The area is freed once all members have left, since others may still be in the last call.
    fn leave(&self, py: Python<'_>) {
        py.detach(|| self.depart());
    }

    /// How reductions take memory that is not registered; None before one mattered.
    fn other_memory(&self) -> Option<String> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.other_memory()
    }

    /// Bounds each wait from now on.
    fn set_timeout(&self, py: Python<'_>, timeout_s: f64) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        if let Some(group) = &mut *self.group.lock().unwrap_or_else(PoisonError::into_inner) {
            group.set_timeout(timeout);
        }
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

    /// Nanoseconds of each of `calls` all-reduces in a row, without Python between them: for benchmarks.
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

/// The message of a wait for `absent`, with whom these wait for.
fn absent_because(message: &str, absent: &[Rank], culprits: &[Who]) -> String {
    if culprits.iter().all(|who| absent.contains(&who.rank)) {
        return message.to_owned();
    }
    let named: Vec<_> = culprits.iter().map(ToString::to_string).collect();
    format!("{message}; all wait for {}", named.join(", "))
}
