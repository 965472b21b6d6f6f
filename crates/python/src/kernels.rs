//! Kernels on Python's own memory: `run_kernel` for tests and the reference executor, `repeat_kernel` for benchmarks.

use crate::exceptions::error;
use hocket_executor::{Foreign, Function};
use hocket_kernels::{self as kernels, DType, ReduceOp, Source};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use std::collections::HashMap;

/// Run one kernel of whole slices on contiguous arrays; `address` of a user's, None for a built-in.
#[pyfunction]
#[pyo3(signature = (name, address, inputs: "collections.abc.Sequence[typing_extensions.Buffer]",
    outputs: "collections.abc.Sequence[typing_extensions.Buffer]", constants))]
#[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
pub fn run_kernel(
    py: Python<'_>,
    name: &str,
    address: Option<usize>,
    inputs: Vec<Bound<'_, PyAny>>,
    outputs: Vec<Bound<'_, PyAny>>,
    constants: Vec<f64>,
) -> PyResult<()> {
    let function = match address {
        // SAFETY: by the caller's contract, that of `Engine.load`.
        Some(address) => unsafe { Foreign::new(address) }.map(Function::Foreign),
        None => Function::builtin(name),
    };
    let function = function.ok_or_else(|| unknown(py, name))?;
    on_buffers(py, &inputs, &outputs, |read, written| function.call(read, written, &constants))?
        .map_err(|what| error(py, "ProgramError", &format!("kernel `{name}`: {what}")))
}

/// Run a kernel `times` times on the same arrays, for benchmarks. Names are those of `run_kernel`, or `memcpy`, `copy`, and with
/// the types of destination and source `cast.f16.f32`, `sum.f32.f16`, `max.f32`, `sum_many.f32`, `scale.f32`, `round.f32.f16`,
/// `first_non_finite.f32`. `UsageError`: there is no such kernel; `ProgramError`: it does not take these arrays.
#[pyfunction]
#[pyo3(signature = (name, inputs: "collections.abc.Sequence[typing_extensions.Buffer]",
    outputs: "collections.abc.Sequence[typing_extensions.Buffer]", constants, times))]
#[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
pub fn repeat_kernel(
    py: Python<'_>,
    name: &str,
    inputs: Vec<Bound<'_, PyAny>>,
    outputs: Vec<Bound<'_, PyAny>>,
    constants: Vec<f64>,
    times: usize,
) -> PyResult<()> {
    let kernel = kernel(name).ok_or_else(|| unknown(py, name))?;
    on_buffers(py, &inputs, &outputs, |read, written| {
        (0..times).try_for_each(|_| kernel.call(read, written, &constants))
    })?
    .map_err(|what| error(py, "ProgramError", &format!("kernel `{name}`: {what}")))
}

/// The user's kernels at addresses, by name.
pub fn functions(py: Python<'_>, addresses: HashMap<String, usize>) -> PyResult<HashMap<String, Function>> {
    let function = |(name, address): (String, usize)| {
        // SAFETY: by the contract of `Engine.load`: the function has this signature and lives as long as the engine.
        let function = unsafe { Foreign::new(address) }.map(Function::Foreign);
        let absent = || error(py, "UsageError", &format!("kernel `{name}` has no address"));
        function.ok_or_else(absent).map(|function| (name, function))
    };
    addresses.into_iter().map(function).collect()
}

fn unknown(py: Python<'_>, name: &str) -> PyErr {
    error(py, "UsageError", &format!("there is no kernel `{name}`"))
}

/// The kernel of `repeat_kernel`: its destination is the only output, its sources are the inputs.
enum Kernel {
    Memcpy,
    Copy,
    Cast(DType, DType),
    Reduce(ReduceOp, DType, DType),
    ReduceMany(ReduceOp, DType),
    Scale(DType),
    Round(DType, DType),
    FirstNonFinite(DType),
    Named(Function),
}

/// The kernel with a name of the form `what.destination` or `what.destination.source`, with element types.
fn kernel(name: &str) -> Option<Kernel> {
    if let Some(function) = Function::builtin(name) {
        return Some(Kernel::Named(function));
    }
    let (what, types) = name.split_once('.').unwrap_or((name, "u8"));
    let (dst, src) = types.split_once('.').unwrap_or((types, types));
    let (dst, src) = (DType::parse(dst)?, DType::parse(src)?);
    Some(match what {
        "memcpy" => Kernel::Memcpy,
        "copy" => Kernel::Copy,
        "cast" => Kernel::Cast(dst, src),
        "sum" => Kernel::Reduce(ReduceOp::Sum, dst, src),
        "max" => Kernel::Reduce(ReduceOp::Max, dst, src),
        "sum_many" => Kernel::ReduceMany(ReduceOp::Sum, dst),
        "scale" => Kernel::Scale(dst),
        "round" => Kernel::Round(dst, src),
        "first_non_finite" => Kernel::FirstNonFinite(dst),
        _ => return None,
    })
}

impl Kernel {
    fn call(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], constants: &[f64]) -> Result<(), String> {
        let together =
            inputs.iter().map(|input| input.len()).chain(outputs.iter().map(|output| output.len()));
        let together = together.sum();
        match (self, inputs, outputs, constants) {
            (Self::Named(function), inputs, outputs, _) => function.call(inputs, outputs, constants)?,
            (Self::Memcpy, [src], [dst], []) => dst.copy_from_slice(src),
            (Self::Copy, [src], [dst], []) => kernels::copy(dst, src, together),
            (Self::Cast(to, from), [src], [dst], []) => kernels::cast(*to, dst, *from, src),
            (Self::Reduce(op, to, from), [src], [dst], []) => kernels::reduce(*op, *to, dst, *from, src),
            (Self::ReduceMany(op, dtype), sources, [dst], []) => {
                let sources: Vec<_> = sources.iter().copied().map(Source::Bytes).collect();
                kernels::reduce_many(*op, *dtype, dst, &sources, together);
            }
            (Self::Scale(dtype), [], [dst], [factor]) => kernels::scale(*dtype, dst, *factor),
            (Self::Round(dtype, to), [], [dst], []) => kernels::round(*dtype, dst, *to),
            (Self::FirstNonFinite(dtype), [src], [], []) => {
                if let Some(element) = kernels::first_non_finite(*dtype, src) {
                    return Err(format!("element {element} is not finite"));
                }
            }
            (_, inputs, outputs, constants) => {
                let given = (inputs.len(), outputs.len(), constants.len());
                return Err(format!(
                    "does not take {} inputs, {} outputs and {} constants",
                    given.0, given.1, given.2
                ));
            }
        }
        Ok(())
    }
}

/// `work` on the bytes of arrays.
fn on_buffers<T>(
    py: Python<'_>,
    inputs: &[Bound<'_, PyAny>],
    outputs: &[Bound<'_, PyAny>],
    work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> T,
) -> PyResult<T> {
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
    Ok(work(&read, &mut written))
}

/// Bytes at a pointer, which is null when there are none.
///
/// # Safety
/// As of `slice::from_raw_parts`.
pub unsafe fn slice<'a>(start: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: the caller's.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, len) } }
}

/// The same, to write.
///
/// # Safety
/// As of `slice::from_raw_parts_mut`.
pub unsafe fn slice_mut<'a>(start: *mut u8, len: usize) -> &'a mut [u8] {
    // SAFETY: the caller's.
    if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(start, len) } }
}
