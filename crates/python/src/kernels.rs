//! `run_kernel`: one kernel of whole slices on Python's own memory, for tests and the reference executor.

use crate::exceptions::error;
use hocket_executor::{Foreign, Function};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;

#[pyfunction]
#[pyo3(signature = (name, address, inputs, outputs, constants))]
#[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
fn run_kernel(
    py: Python<'_>,
    name: &str,
    address: Option<usize>,
    inputs: Vec<Bound<'_, PyAny>>,
    outputs: Vec<Bound<'_, PyAny>>,
    constants: Vec<f64>,
) -> PyResult<()> {
    let function = match address {
        // SAFETY: the caller's, as `_native.pyi` says of `Engine.load`.
        Some(address) => unsafe { Foreign::new(address) }.map(Function::Foreign),
        None => Function::builtin(name),
    };
    let function =
        function.ok_or_else(|| error(py, "UsageError", &format!("there is no kernel `{name}`")))?;
    let inputs = inputs.iter().map(PyUntypedBuffer::get).collect::<PyResult<Vec<_>>>()?;
    let outputs = outputs.iter().map(PyUntypedBuffer::get).collect::<PyResult<Vec<_>>>()?;
    if inputs.iter().chain(&outputs).any(|buffer| !buffer.is_c_contiguous())
        || outputs.iter().any(PyUntypedBuffer::readonly)
    {
        return Err(error(py, "UsageError", "kernels work on contiguous arrays, and write their outputs"));
    }
    let read: Vec<&[u8]> = inputs
        .iter()
        // SAFETY: contiguous and held by the buffer; nothing writes while the GIL is held.
        .map(|buffer| unsafe { slice(buffer.buf_ptr().cast(), buffer.len_bytes()) })
        .collect();
    let mut written: Vec<&mut [u8]> = outputs
        .iter()
        // SAFETY: as above; writable, and the caller gives no array twice.
        .map(|buffer| unsafe { slice_mut(buffer.buf_ptr().cast(), buffer.len_bytes()) })
        .collect();
    let done = function.call(&read, &mut written, &constants);
    done.map_err(|what| error(py, "ProgramError", &format!("kernel `{name}`: {what}")))
}

/// Bytes at a pointer, which is null when there are none.
///
/// # Safety
/// As of `slice::from_raw_parts`.
unsafe fn slice<'a>(start: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: the caller's.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, len) } }
}

/// The same, to write.
///
/// # Safety
/// As of `slice::from_raw_parts_mut`.
unsafe fn slice_mut<'a>(start: *mut u8, len: usize) -> &'a mut [u8] {
    // SAFETY: the caller's.
    if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(start, len) } }
}

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(run_kernel, module)?)
}
