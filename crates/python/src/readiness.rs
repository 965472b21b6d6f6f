//! `Readiness` and its hooks: what autograd calls when it has produced a gradient, as the executor's readiness has it.
//!
//! Budget of a hook beside that of an arrival: one attribute look-up and one identity comparison.

use crate::artefact::Told;
use crate::engine::Engine;
use crate::exceptions::{error, raise};
use crate::waits::{duration, interruptible};
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

/// Counts gradients of one backward and launches each bucket's program when its last gradient is there.
#[pyclass(module = "hocket._native", frozen)]
pub struct Readiness(Arc<Shared>);

#[pymethods]
impl Readiness {
    /// `buckets[b]`: the program of bucket `b`, and how many gradients it waits for. `on_first()` is called by the first hook of
    /// each backward, `adopt(bucket, index, parameter)` when a parameter's gradient is not the bucket's view (it copies and puts
    /// the view back), `twice(bucket, index)` when a gradient comes again after its bucket was launched, `refused(error)` when a
    /// bucket cannot be launched: it may raise a better error, else that one is raised, unless it returns True. Then whoever trains
    /// sees to it after backward.
    ///
    /// `schedule`: of turns of these buckets; None: every bucket is launched in every iteration. A program was loaded with as many
    /// sets of memory as a bucket has slots, which its turns take one after the other; `begin` and `finish` launch turns that are
    /// sent at those points. A launch's factor is 1 over the iterations that it sums, and what is due earlier goes first. `places`:
    /// where training goes on, the iteration of the period, and of each bucket the slot that is open, how many iterations it has
    /// summed, how many turns before it were reduced and not applied, and how many iterations each turn between these has summed,
    /// which is still to be launched. `UsageError`: no such schedule can be kept.
    #[new]
    #[pyo3(signature = (engine, buckets, on_first: "collections.abc.Callable[[], None]",
        adopt: "collections.abc.Callable[[int, int, typing.Any], None]", twice: "collections.abc.Callable[[int, int], None]",
        refused: "collections.abc.Callable[[Exception], bool | None]", schedule = None, places = None))]
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

    /// False: hooks do nothing (gradient accumulation).
    #[getter]
    fn enabled(&self) -> bool {
        self.0.counters.is_enabled()
    }

    #[setter]
    fn set_enabled(&self, enabled: bool) {
        self.0.counters.set_enabled(enabled);
    }

    /// Whether `times` are kept.
    fn set_timed(&self, timed: bool) {
        self.0.counters.set_timed(timed);
    }

    /// (bucket, index) of the gradients that have come in this backward, and when, as `now_ns`; 0 where times were not kept.
    fn times(&self) -> Vec<((usize, usize), u64)> {
        self.0.counters.times()
    }

    /// The native callable for `parameter.register_post_accumulate_grad_hook`. `places`: (bucket, index) of each part of the
    /// gradient; `view` is its place in memory, `others` those in the slots after the first. `adopt` is called with the first of
    /// `places`.
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

    /// The next iteration has begun: what the schedule launches then leaves.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        self.0.launched(py, self.0.counters.begin(Point::Begin)).map(drop)
    }

    /// From now on no turn ends: gradients are summed until `flush`.
    fn hold(&self) {
        self.0.counters.hold();
    }

    /// End all turns that have gradients, and launch whatever was not. Not within a backward.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.0.launched(py, self.0.counters.flush()).map(drop)
    }

    /// The slot that the bucket's gradients are added to.
    fn slot(&self, py: Python<'_>, bucket: usize) -> PyResult<u32> {
        self.0.counters.slot(bucket).map_err(|cause| raise(py, &cause))
    }

    /// (bucket, index) of gradients that have not come in this backward.
    fn missing(&self) -> Vec<(usize, usize)> {
        self.0.counters.missing()
    }

    /// (bucket, index) of the gradients that have come in this backward, in the order in which they came.
    fn order(&self) -> Vec<(usize, usize)> {
        self.0.counters.order()
    }

    /// Backward has ended: launch the buckets that still wait for gradients, as they are. What comes next is the next backward's;
    /// its first gradient raises `UsageError` when a bucket was not applied.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.0.launched(py, self.0.counters.finish()).map(drop)
    }

    /// Until the bucket's oldest launch that was not applied is complete, if there is one.
    fn wait(&self, py: Python<'_>, bucket: usize, timeout_s: f64) -> PyResult<()> {
        self.0.wait(py, bucket, duration(py, timeout_s)?)
    }

    /// What the bucket's launch reduced was used: its memory may fill again. `UsageError` when nothing was launched.
    fn applied(&self, py: Python<'_>, bucket: usize) -> PyResult<()> {
        self.0.counters.applied(bucket).map_err(|cause| raise(py, &cause))
    }

    /// How often the bucket was ready, launched and applied.
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
