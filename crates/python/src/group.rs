//! `Group`: a model's leaves that a framework's runtime lends. What it calls is native; this is what the session calls.

use crate::engine::{Engine, duration, interruptible};
use crate::exceptions::{error, raise, refusal};
use crate::memory::Memory;
use hocket_adapter::{
    EngineGroup, FAILED_PRECONDITION, Group as Adapter, Placed, Refusal, answer_begin, forget,
    register as number,
};
use hocket_xla::{give, take_back};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::sync::Arc;

/// Memory, the leaf's first byte there, and (bucket, index) of its parts.
type Place = (Py<Memory>, usize, Vec<(usize, usize)>);

/// See `_native.pyi`.
#[pyclass(module = "hocket._native", frozen)]
pub struct Group {
    inner: Arc<EngineGroup>,
    sizes: Vec<usize>,
    #[pyo3(get)]
    number: u64,
}

#[pymethods]
impl Group {
    #[new]
    fn new(py: Python<'_>, engine: &Engine, leaves: Vec<(String, usize)>, timeout_s: f64) -> PyResult<Self> {
        let sizes = leaves.iter().map(|leaf| leaf.1).collect();
        let made = Adapter::new(Arc::clone(engine.executor()), leaves, duration(py, timeout_s)?);
        let made = made.map_err(|cause| error(py, "Error", &format!("cannot start a thread: {cause}")))?;
        let inner = Arc::new(made);
        Ok(Self { number: number(Arc::clone(&inner)), inner, sizes })
    }

    #[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
    fn load(&self, py: Python<'_>, buckets: Vec<(u32, usize)>, places: Vec<Place>) -> PyResult<()> {
        if places.len() != self.sizes.len() {
            let what = format!("{} places for {} leaves", places.len(), self.sizes.len());
            return Err(error(py, "UsageError", &what));
        }
        let mut leaves = Vec::with_capacity(places.len());
        for ((memory, start, parts), &bytes) in places.into_iter().zip(&self.sizes) {
            let region = memory.get().region();
            if start.checked_add(bytes).is_none_or(|end| end > region.len()) {
                let what = format!("{bytes} bytes at {start} in memory of {}", region.len());
                return Err(error(py, "UsageError", &what));
            }
            leaves.push(Placed { region: region.sub(start, bytes), parts });
        }
        self.inner.load(&buckets, leaves).map_err(|cause| raise(py, &cause))
    }

    fn begin(&self, turn: u32) {
        self.inner.begin(turn);
    }

    fn answer_begin(&self, execution: Py<PyAny>) {
        let begin = move || {
            let turn = Python::try_attach(|py| {
                let turn = execution.call0(py).and_then(|turn| turn.extract(py));
                turn.map_err(|raised| refusal(py, &raised))
            });
            turn.unwrap_or_else(|| {
                Err(Refusal { code: FAILED_PRECONDITION, message: "Python has ended".into() })
            })
        };
        answer_begin(self.number, Arc::new(begin));
    }

    fn wait(&self, py: Python<'_>, turn: u32, timeout_s: f64) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        interruptible(py, None, |interrupted| self.inner.wait(turn, timeout, interrupted)).map(drop)
    }

    fn order(&self) -> Vec<usize> {
        self.inner.order()
    }

    fn close(&self, py: Python<'_>) {
        // The framework may need the GIL for what it goes on with.
        py.detach(|| {
            forget(self.number);
            self.inner.close();
        });
    }
}

/// The capsules that `jax.ffi.register_ffi_target` takes.
#[pyfunction]
fn xla_handlers(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    let capsule = |function: *mut c_void| {
        // SAFETY: a pointer to a function, never null and valid as long as the process; a capsule without a destructor.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(function, std::ptr::null(), None)) }
    };
    Ok((capsule(give as *mut c_void)?, capsule(take_back as *mut c_void)?))
}

/// See `_native.pyi`.
#[pyfunction]
fn tensorflow_register(py: Python<'_>, version: &str) -> PyResult<()> {
    // TensorFlow's own locks are taken under the GIL by other threads.
    py.detach(|| hocket_tensorflow::register(version)).map_err(|what| error(py, "UsageError", &what))
}

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Group>()?;
    module.add_function(wrap_pyfunction!(xla_handlers, module)?)?;
    module.add_function(wrap_pyfunction!(tensorflow_register, module)?)
}
