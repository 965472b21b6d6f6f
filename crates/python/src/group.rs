//! `Group`: a model's leaves that a framework's runtime lends. What it calls is native; this is what the session calls.

use crate::engine::Engine;
use crate::exceptions::{Raised, error, refusal};
use crate::memory::Memory;
use crate::waits::{duration, interruptible};
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

/// A model's leaves that a framework's runtime lends, turn by turn, on threads of its own; each bucket is launched by its last
/// leaf. No Python runs between.
#[pyclass(module = "hocket._native", frozen)]
pub struct Group {
    inner: Arc<EngineGroup>,
    sizes: Vec<usize>,
    /// What compiled functions know it by; none is used twice in a process.
    #[pyo3(get)]
    number: u64,
}

#[pymethods]
impl Group {
    /// `leaves`: names and sizes in bytes. `timeout_s`: for each launch, and for leaves that a turn lacks.
    #[new]
    fn new(py: Python<'_>, engine: &Engine, leaves: Vec<(String, usize)>, timeout_s: f64) -> PyResult<Self> {
        let sizes = leaves.iter().map(|leaf| leaf.1).collect();
        let made = Adapter::new(Arc::clone(&engine.executor), leaves, duration(py, timeout_s)?);
        let made = made.map_err(|cause| error(py, "Error", &format!("cannot start a thread: {cause}")))?;
        let inner = Arc::new(made);
        Ok(Self { number: number(Arc::clone(&inner)), inner, sizes })
    }

    /// `buckets[b]`: the program of bucket `b`, and of how many parts of leaves it is. `places`: by leaf, the memory, the byte
    /// there at which it begins, (bucket, index) of its parts. `UsageError`: a turn is not over, or leaves do not fit.
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
        self.inner.load(&buckets, leaves).raised(py)
    }

    /// An execution begins whose leaves are of this turn, for the trace. Turns are numbered from 0 on.
    fn begin(&self, turn: u32) {
        self.inner.begin(turn);
    }

    /// For functions whose caller does not hand the turn to them: each execution calls `execution()` for it, on a thread of the
    /// runtime's. What that raises, the execution raises, in the runtime's words.
    #[pyo3(signature = (execution: "collections.abc.Callable[[], int]"))]
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

    /// Until all turns before this one are over. `PeerError`: the group has failed, or the time is up.
    fn wait(&self, py: Python<'_>, turn: u32, timeout_s: f64) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        interruptible(py, None, |interrupted| self.inner.wait(turn, timeout, interrupted)).map(drop)
    }

    /// Leaves of the last turn that is over, in the order in which they came.
    fn order(&self) -> Vec<usize> {
        self.inner.order()
    }

    /// Whatever is lent ends with an error, and functions that know its number are refused. Idempotent.
    fn close(&self, py: Python<'_>) {
        // The framework may need the GIL for what it goes on with.
        py.detach(|| {
            forget(self.number);
            self.inner.close();
        });
    }
}

/// The capsules of the handlers for `jax.ffi.register_ffi_target`. Attributes of both: `group` (its number) and `leaf`.
///
/// The first copies a gradient: operands gradient and turn (a scalar of uint32); its result is a scalar of uint32. The second gives
/// the mean, which may be in the gradient's memory: operands gradient, turn, and a scalar of uint32 that depends on the results of
/// the first of all gradients.
#[pyfunction]
pub fn xla_handlers(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    let capsule = |function: *mut c_void| {
        // SAFETY: a pointer to a function, never null and valid as long as the process; a capsule without a destructor.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(function, std::ptr::null(), None)) }
    };
    Ok((capsule(give as *mut c_void)?, capsule(take_back as *mut c_void)?))
}

/// Registers the ops `HocketBegin`, `HocketGive` and `HocketTakeBack` with the TensorFlow that the process has loaded, once.
/// `UsageError`: it is another than Hocket knows; `version`: its own, for the message.
#[pyfunction]
pub fn tensorflow_register(py: Python<'_>, version: &str) -> PyResult<()> {
    // TensorFlow's own locks are taken under the GIL by other threads.
    py.detach(|| hocket_tensorflow::register(version)).map_err(|what| error(py, "UsageError", &what))
}
