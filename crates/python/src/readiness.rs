//! `Readiness` and its hooks: what runs when autograd has produced a gradient.
//!
//! Budget of a hook: one attribute look-up, one identity comparison, one bit and two counters; the last gradient of a
//! bucket adds a queue push and, when the I/O thread sleeps, a wake-up.

use crate::engine::{Engine, duration, wait};
use crate::exceptions::{error, raise};
use hocket_executor::Engine as Executor;
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

struct Bucket {
    program: u32,
    /// By gradient: whether it came in this backward.
    came: Vec<AtomicBool>,
    /// By gradient that came: how many came before it.
    turns: Vec<AtomicU32>,
    missing: AtomicU32,
    launched: AtomicBool,
}

struct Shared {
    executor: Arc<Executor>,
    buckets: Vec<Bucket>,
    /// Hooks count.
    enabled: AtomicBool,
    /// A backward has begun and was not waited for.
    under_way: AtomicBool,
    /// Gradients that came in this backward.
    arrivals: AtomicU32,
    on_first: Py<PyAny>,
    adopt: Py<PyAny>,
    twice: Py<PyAny>,
    refused: Py<PyAny>,
}

impl Shared {
    fn launch(&self, py: Python<'_>, bucket: &Bucket) -> PyResult<()> {
        if bucket.launched.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let Err(cause) = self.executor.launch(bucket.program) else { return Ok(()) };
        let cause = raise(py, &cause);
        self.refused.call1(py, (cause.value(py),))?;
        Err(cause)
    }
}

/// Counts gradients and launches buckets; see `_native.pyi`.
#[pyclass(module = "hocket._native", frozen)]
pub struct Readiness(Arc<Shared>);

#[pymethods]
impl Readiness {
    #[new]
    fn new(
        py: Python<'_>,
        engine: &Engine,
        buckets: Vec<(u32, u32)>,
        on_first: Py<PyAny>,
        adopt: Py<PyAny>,
        twice: Py<PyAny>,
        refused: Py<PyAny>,
    ) -> PyResult<Self> {
        if buckets.iter().any(|&(_, gradients)| gradients == 0) {
            return Err(error(py, "UsageError", "each bucket has at least one gradient"));
        }
        let bucket = |(program, gradients): (u32, u32)| Bucket {
            program,
            came: (0..gradients).map(|_| AtomicBool::new(false)).collect(),
            turns: (0..gradients).map(|_| AtomicU32::new(0)).collect(),
            missing: AtomicU32::new(gradients),
            launched: AtomicBool::new(false),
        };
        Ok(Self(Arc::new(Shared {
            executor: Arc::clone(engine.executor()),
            buckets: buckets.into_iter().map(bucket).collect(),
            enabled: AtomicBool::new(true),
            under_way: AtomicBool::new(false),
            arrivals: AtomicU32::new(0),
            on_first,
            adopt,
            twice,
            refused,
        })))
    }

    #[getter]
    fn enabled(&self) -> bool {
        self.0.enabled.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_enabled(&self, enabled: bool) {
        self.0.enabled.store(enabled, Ordering::Relaxed);
    }

    fn hook(&self, py: Python<'_>, bucket: usize, index: usize, view: Py<PyAny>) -> PyResult<ReadyHook> {
        match self.0.buckets.get(bucket) {
            Some(known) if index < known.came.len() => {
                Ok(ReadyHook { shared: Arc::clone(&self.0), bucket, index, view })
            }
            _ => Err(error(py, "UsageError", &format!("there is no gradient {index} in bucket {bucket}"))),
        }
    }

    fn missing(&self) -> Vec<(usize, usize)> {
        let mut missing = Vec::new();
        for (bucket, known) in self.0.buckets.iter().enumerate() {
            let came = known.came.iter().enumerate();
            missing
                .extend(came.filter(|(_, came)| !came.load(Ordering::Acquire)).map(|(at, _)| (bucket, at)));
        }
        missing
    }

    fn order(&self) -> Vec<(usize, usize)> {
        let mut order = Vec::new();
        for (bucket, known) in self.0.buckets.iter().enumerate() {
            for (index, (came, turn)) in known.came.iter().zip(&known.turns).enumerate() {
                if came.load(Ordering::Acquire) {
                    order.push((turn.load(Ordering::Relaxed), (bucket, index)));
                }
            }
        }
        order.sort_unstable();
        order.into_iter().map(|(_, place)| place).collect()
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.0.buckets.iter().try_for_each(|bucket| self.0.launch(py, bucket))
    }

    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        for bucket in self.0.buckets.iter().filter(|bucket| bucket.launched.load(Ordering::Acquire)) {
            wait(py, &self.0.executor, bucket.program, timeout)?;
        }
        self.reset();
        Ok(())
    }

    fn wait_bucket(&self, py: Python<'_>, bucket: usize, timeout_s: f64) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        match self.0.buckets.get(bucket) {
            Some(bucket) if bucket.launched.load(Ordering::Acquire) => {
                wait(py, &self.0.executor, bucket.program, timeout)
            }
            _ => Ok(()),
        }
    }

    fn reset(&self) {
        for bucket in &self.0.buckets {
            bucket.missing.store(bucket.came.len() as u32, Ordering::Release);
            for came in &bucket.came {
                came.store(false, Ordering::Release);
            }
            bucket.launched.store(false, Ordering::Release);
        }
        self.0.arrivals.store(0, Ordering::Relaxed);
        self.0.under_way.store(false, Ordering::Release);
    }
}

/// The callable of one gradient.
#[pyclass(module = "hocket._native", frozen)]
pub struct ReadyHook {
    shared: Arc<Shared>,
    bucket: usize,
    index: usize,
    view: Py<PyAny>,
}

#[pymethods]
impl ReadyHook {
    fn __call__(&self, py: Python<'_>, parameter: &Bound<'_, PyAny>) -> PyResult<()> {
        let gradient = parameter.getattr(intern!(py, "grad"))?;
        if !gradient.is(&self.view) {
            self.shared.adopt.call1(py, (self.bucket, self.index, parameter))?;
        }
        if !self.shared.enabled.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !self.shared.under_way.swap(true, Ordering::AcqRel) {
            self.shared.on_first.call0(py)?;
        }
        let bucket = &self.shared.buckets[self.bucket];
        if bucket.came[self.index].swap(true, Ordering::AcqRel) {
            // More of a gradient is added to what is there; once its bucket is on its way, that would be lost.
            if bucket.launched.load(Ordering::Acquire) {
                self.shared.twice.call1(py, (self.bucket, self.index))?;
            }
            return Ok(());
        }
        let turn = self.shared.arrivals.fetch_add(1, Ordering::Relaxed);
        bucket.turns[self.index].store(turn, Ordering::Relaxed);
        if bucket.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.launch(py, bucket)?;
        }
        Ok(())
    }
}

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Readiness>()?;
    module.add_class::<ReadyHook>()
}
