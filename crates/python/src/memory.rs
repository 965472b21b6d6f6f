//! Registered memory for Python: `Memory`, which is allocated, and `Window`, a slice that a library works on.

use crate::exceptions::error;
use hocket_executor::Engine as Executor;
use hocket_ids::BufferId;
use hocket_wire::memory::{Allocation, Region};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// Registered memory: zero-filled, page-aligned, mapped by the ranks of the same host. Writable buffer of bytes.
#[pyclass(module = "hocket._native", frozen, weakref)]
pub struct Memory {
    allocation: Allocation,
    /// Keeps the arena alive until the executor's threads have ended.
    _engine: Arc<Executor>,
}

impl Memory {
    pub fn new(allocation: Allocation, engine: &Arc<Executor>) -> Self {
        Self { allocation, _engine: Arc::clone(engine) }
    }

    pub fn region(&self) -> &Region {
        self.allocation.region()
    }

    /// It lasts as long as the arena.
    pub fn keep(&self) {
        self.allocation.keep();
    }

    /// Its first bytes.
    pub fn first(&self, py: Python<'_>, size_bytes: usize) -> PyResult<Region> {
        let region = self.region();
        if size_bytes > region.len() {
            let what = format!("{size_bytes} bytes of memory of {}", region.len());
            return Err(error(py, "UsageError", &what));
        }
        Ok(region.sub(0, size_bytes))
    }
}

#[pymethods]
impl Memory {
    fn __len__(&self) -> usize {
        self.allocation.region().len()
    }

    /// Of its first byte in this process.
    #[getter]
    fn address(&self) -> usize {
        self.allocation.region().address() as usize
    }

    /// Where it starts in this rank's arena: what the other ranks of the host find it by.
    #[getter]
    fn arena_offset(&self) -> u64 {
        self.allocation.region().arena_offset()
    }

    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: i32) -> PyResult<()> {
        // SAFETY: by the contract of the caller, which is Python.
        unsafe { fill(slf.as_any(), slf.get().allocation.region(), view, flags) }
    }
}

/// By the number of a bound buffer: memory, and where in it the buffer begins.
pub type Buffers = HashMap<u32, (Py<Memory>, usize)>;

/// The memory of each.
pub fn regions(py: Python<'_>, buffers: Buffers) -> PyResult<HashMap<BufferId, Region>> {
    let mut found = HashMap::new();
    for (buffer, (memory, offset_bytes)) in buffers {
        let region = memory.get().region();
        let len = region.len();
        if offset_bytes > len {
            let what = format!("buffer {buffer}: offset {offset_bytes} in memory of {len} bytes");
            return Err(error(py, "UsageError", &what));
        }
        found.insert(BufferId(buffer), region.sub(offset_bytes, len - offset_bytes));
    }
    Ok(found)
}

/// A slice of registered memory that a library works on. Writable buffer of bytes.
#[pyclass(module = "hocket._native", frozen)]
pub struct Window {
    region: Region,
    _engine: Arc<Executor>,
}

impl Window {
    pub fn new(region: Region, engine: &Arc<Executor>) -> Self {
        Self { region, _engine: Arc::clone(engine) }
    }
}

#[pymethods]
impl Window {
    /// Of its first byte in this process.
    #[getter]
    fn address(&self) -> usize {
        self.region.address() as usize
    }

    fn __len__(&self) -> usize {
        self.region.len()
    }

    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: i32) -> PyResult<()> {
        // SAFETY: by the contract of the caller, which is Python.
        unsafe { fill(slf.as_any(), &slf.get().region, view, flags) }
    }
}

/// Fills a view of a region that `owner` keeps mapped.
///
/// # Safety
/// `view` is null or may be written.
unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    region: &Region,
    view: *mut ffi::Py_buffer,
    flags: i32,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no view to fill"));
    }
    // SAFETY: the bytes stay mapped as long as the owner lives, which the view keeps alive; they never move.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), region.address().cast(), region.len() as isize, 0, flags)
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}
