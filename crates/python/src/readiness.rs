//! `Readiness` and its hooks: what autograd calls when it has produced a gradient, as the executor's readiness has it.
//!
//! Budget of a hook beside that of an arrival: one attribute look-up and one identity comparison.

use crate::artefact::Told;
use crate::engine::{Engine, duration, interruptible};
use crate::exceptions::{error, raise};
use hocket_executor::Engine as Executor;
use hocket_executor::readiness::{Arrival, Place, Readiness as Counters};
use hocket_schedule::{Point, Schedule};
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// An iteration of the period, and how far each bucket's turns are: its slot, iterations summed in it, turns that were reduced and not
/// applied, and iterations of each that waits.
type DescribedPlaces = (usize, Vec<(u32, u32, u32, Vec<u32>)>);

struct Shared {
    counters: Counters<Executor>,
    on_first: Py<PyAny>,
    adopt: Py<PyAny>,
    twice: Py<PyAny>,
    refused: Py<PyAny>,
}

impl Shared {
    /// An error of a launch, unless `refused` raises a better one, or returns something true: then it is dealt with after backward,
    /// and there is no value.
    fn launched<T>(&self, py: Python<'_>, outcome: Result<T, hocket_executor::Error>) -> PyResult<Option<T>> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(cause) => {
                let cause = raise(py, &cause);
                let later = self.refused.call1(py, (cause.value(py),))?.is_truthy(py)?;
                if later { Ok(None) } else { Err(cause) }
            }
        }
    }

    fn wait(&self, py: Python<'_>, bucket: usize, timeout: Duration) -> PyResult<()> {
        interruptible(py, None, |interrupted| self.counters.wait(bucket, timeout, interrupted)).map(drop)
    }
}

/// Counts gradients and launches buckets; see `_native.pyi`.
#[pyclass(module = "hocket._native", frozen)]
pub struct Readiness(Arc<Shared>);

#[pymethods]
impl Readiness {
    #[new]
    #[pyo3(signature = (engine, buckets, on_first, adopt, twice, refused, schedule = None, places = None))]
    #[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
    #[expect(clippy::too_many_arguments, reason = "one callback per event")]
    fn new(
        py: Python<'_>,
        engine: &Engine,
        buckets: Vec<(u32, usize)>,
        on_first: Py<PyAny>,
        adopt: Py<PyAny>,
        twice: Py<PyAny>,
        refused: Py<PyAny>,
        schedule: Option<Told<Schedule>>,
        places: Option<DescribedPlaces>,
    ) -> PyResult<Self> {
        let schedule = schedule.map(|told| told.0).unwrap_or_default();
        let launcher = Arc::clone(engine.executor());
        let counters = match places {
            None => Counters::new(launcher, &buckets, schedule),
            Some((phase, described)) => {
                let place = |(slot, summed, reduced, waiting)| Place { slot, summed, reduced, waiting };
                let places: Vec<_> = described.into_iter().map(place).collect();
                Counters::resumed(launcher, &buckets, schedule, phase, &places)
            }
        };
        let counters = counters.map_err(|cause| raise(py, &cause))?;
        Ok(Self(Arc::new(Shared { counters, on_first, adopt, twice, refused })))
    }

    #[getter]
    fn enabled(&self) -> bool {
        self.0.counters.is_enabled()
    }

    #[setter]
    fn set_enabled(&self, enabled: bool) {
        self.0.counters.set_enabled(enabled);
    }

    #[setter]
    fn set_timed(&self, timed: bool) {
        self.0.counters.set_timed(timed);
    }

    fn times(&self) -> Vec<((usize, usize), u64)> {
        self.0.counters.times()
    }

    #[pyo3(signature = (places, view, others = Vec::new()))]
    fn hook(
        &self,
        py: Python<'_>,
        places: Vec<(usize, usize)>,
        view: Py<PyAny>,
        others: Vec<Py<PyAny>>,
    ) -> PyResult<ReadyHook> {
        let counters = &self.0.counters;
        if places.is_empty() {
            return Err(error(py, "UsageError", "a gradient is in one bucket at least"));
        }
        let wrong = places
            .iter()
            .find(|(bucket, index)| counters.gradients(*bucket).is_none_or(|gradients| *index >= gradients));
        if let Some((bucket, index)) = wrong {
            let what = format!("there is no gradient {index} in bucket {bucket}");
            return Err(error(py, "UsageError", &what));
        }
        let views: Vec<_> = std::iter::once(view).chain(others).collect();
        let few = places.iter().find(|(bucket, _)| counters.slots(*bucket) > views.len() as u32);
        if let Some((bucket, _)) = few {
            let what = format!("{} views for the slots of bucket {bucket}", views.len());
            return Err(error(py, "UsageError", &what));
        }
        Ok(ReadyHook { shared: Arc::clone(&self.0), places, views })
    }

    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        self.0.launched(py, self.0.counters.begin(Point::Begin)).map(drop)
    }

    fn hold(&self) {
        self.0.counters.hold();
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.0.launched(py, self.0.counters.flush()).map(drop)
    }

    fn slot(&self, py: Python<'_>, bucket: usize) -> PyResult<u32> {
        self.0.counters.slot(bucket).map_err(|cause| raise(py, &cause))
    }

    fn missing(&self) -> Vec<(usize, usize)> {
        self.0.counters.missing()
    }

    fn order(&self) -> Vec<(usize, usize)> {
        self.0.counters.order()
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.0.launched(py, self.0.counters.finish()).map(drop)
    }

    fn wait(&self, py: Python<'_>, bucket: usize, timeout_s: f64) -> PyResult<()> {
        self.0.wait(py, bucket, duration(py, timeout_s)?)
    }

    fn applied(&self, py: Python<'_>, bucket: usize) -> PyResult<()> {
        self.0.counters.applied(bucket).map_err(|cause| raise(py, &cause))
    }

    fn progress(&self, py: Python<'_>, bucket: usize) -> PyResult<(u32, u32, u32)> {
        let progress = self.0.counters.progress(bucket).map_err(|cause| raise(py, &cause))?;
        Ok((progress.ready, progress.launched, progress.applied))
    }
}

/// The callable of one gradient, whose parts may be in several buckets.
#[pyclass(module = "hocket._native", frozen)]
pub struct ReadyHook {
    shared: Arc<Shared>,
    places: Vec<(usize, usize)>,
    views: Vec<Py<PyAny>>,
}

impl ReadyHook {
    /// Where the gradient belongs now.
    fn view(&self, py: Python<'_>) -> PyResult<&Py<PyAny>> {
        // Buckets that have parts of the same gradient have the same turns.
        match self.views.as_slice() {
            [only] => Ok(only),
            views => {
                let slot = self.shared.counters.slot(self.places[0].0).map_err(|cause| raise(py, &cause))?;
                Ok(&views[slot as usize])
            }
        }
    }
}

#[pymethods]
impl ReadyHook {
    fn __call__(&self, py: Python<'_>, parameter: &Bound<'_, PyAny>) -> PyResult<()> {
        let shared = &*self.shared;
        let gradient = parameter.getattr(intern!(py, "grad"))?;
        if !gradient.is(self.view(py)?) {
            // Whichever part it is counted by: all are of one view.
            let (bucket, index) = self.places[0];
            shared.adopt.call1(py, (bucket, index, parameter))?;
        }
        if !shared.counters.is_enabled() {
            return Ok(());
        }
        if shared.counters.open() {
            shared.on_first.call0(py)?;
            shared.launched(py, shared.counters.check())?;
        }
        for &(bucket, index) in &self.places {
            if shared.launched(py, shared.counters.arrive(bucket, index))? == Some(Arrival::Late) {
                // More of a gradient is added to what is there, and would be lost.
                shared.twice.call1(py, (bucket, index))?;
            }
        }
        Ok(())
    }
}

/// Adds this file's names to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Readiness>()?;
    module.add_class::<ReadyHook>()
}
