//! `Readiness` and its hooks: what autograd calls when it has produced a gradient, as the executor's readiness has it.
//!
//! Budget of a hook beside that of an arrival: one attribute look-up and one identity comparison.

use crate::artefact::Told;
use crate::engine::Engine;
use crate::exceptions::{Raised, error, raise};
use crate::waits::{duration, interruptible};
use hocket_executor::Engine as Executor;
use hocket_executor::readiness::{Arrival, Readiness as Counters};
use hocket_schedule::{At, LiveTurn as Turn, Point, SavedTurns, Schedule, Turns};
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// A turn of an arena in training, until it is applied.
#[pyclass(module = "hocket._native", frozen, get_all)]
pub struct LiveTurn {
    arena: usize,
    /// The slot in which its gradients are summed.
    slot: u32,
    /// Number of iterations that it has summed.
    iterations: u32,
    /// Its last iteration, from the first of all on. None: it is open.
    last: Option<u64>,
    /// The iteration at whose end it is applied, or at the gates of the forward after it.
    due: Option<u64>,
    /// Which of the two: "end" or "gate".
    at: &'static str,
}

impl From<Turn> for LiveTurn {
    fn from(Turn { arena, slot, iterations, last, due, at }: Turn) -> Self {
        let at = if at == At::Gate { "gate" } else { "end" };
        Self { arena, slot, iterations, last, due, at }
    }
}

fn described(turns: Vec<Turn>) -> Vec<LiveTurn> {
    turns.into_iter().map(LiveTurn::from).collect()
}

struct Shared {
    counters: Counters<Executor>,
    on_first: Py<PyAny>,
    adopt: Py<PyAny>,
    twice: Py<PyAny>,
    refused: Py<PyAny>,
    made: Option<Py<PyAny>>,
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
    /// `buckets[b]`: the program of bucket `b`, how many gradients it waits for, and its arena: buckets that share memory have the
    /// same turns. `on_first()` is called by the first hook of each backward, `adopt(bucket, index, parameter)` when a parameter's
    /// gradient is not the bucket's view (it copies and puts the view back), `twice(bucket, index)` when a gradient comes again
    /// after its bucket was launched, `refused(error)` when a bucket cannot be launched: it may raise a better error, else that one
    /// is raised, unless it returns True. Then whoever trains sees to it after backward.
    ///
    /// `schedule`: of turns of these buckets; None: every bucket is launched in every iteration. A program was loaded with as many
    /// sets of memory as a bucket has slots, which its turns take one after the other; `begin` and `finish` launch turns that are
    /// sent at those points. A launch's factor is 1 over the iterations that it sums, and what is due earlier goes first. `after`:
    /// the turns go on that it had, by its schedule, and none was launched by these programs. `saved`: turns go on as a checkpoint
    /// has them, of which so many by bucket were launched and not applied. `made(bucket)` is called
    /// when a gradient of the bucket has come, before a launch. `UsageError`: no such schedule can be kept.
    #[new]
    #[pyo3(signature = (engine, buckets, on_first: "collections.abc.Callable[[], None]",
        adopt: "collections.abc.Callable[[int, int, typing.Any], None]", twice: "collections.abc.Callable[[int, int], None]",
        refused: "collections.abc.Callable[[Exception], bool | None]", schedule = None, after = None, saved = None,
        made: "collections.abc.Callable[[int], None] | None" = None))]
    #[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
    #[expect(clippy::too_many_arguments, reason = "one callback per event")]
    fn new(
        py: Python<'_>,
        engine: &Engine,
        buckets: Vec<(u32, usize, usize)>,
        on_first: Py<PyAny>,
        adopt: Py<PyAny>,
        twice: Py<PyAny>,
        refused: Py<PyAny>,
        schedule: Option<Told<Schedule>>,
        after: Option<PyRef<'_, Self>>,
        saved: Option<(Told<SavedTurns>, Vec<u32>)>,
        made: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let usage = |what: String| error(py, "UsageError", &what);
        let arena_of: Vec<_> = buckets.iter().map(|bucket| bucket.2).collect();
        let turns = match after {
            Some(after) => after.0.counters.turns().clone(),
            None => Turns::new(schedule.map(|told| told.0).unwrap_or_default(), &arena_of)
                .map_err(|fault| usage(format!("schedule: {fault}")))?,
        };
        let (turns, reduced) = match saved {
            None => (turns, Vec::new()),
            Some((_, reduced)) if reduced.len() != buckets.len() => {
                let (found, buckets) = (reduced.len(), buckets.len());
                let what = format!("load_state_dict: turns of {found} buckets, and there are {buckets}");
                return Err(usage(what));
            }
            Some((Told(saved), reduced)) => {
                (turns.restored(saved).map_err(|fault| usage(fault.to_string()))?, reduced)
            }
        };
        let counters = Counters::over(Arc::clone(&engine.executor), &buckets, turns, &reduced);
        let counters = counters.raised(py)?;
        Ok(Self(Arc::new(Shared { counters, on_first, adopt, twice, refused, made })))
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

    /// Whether no turn ends.
    #[getter]
    fn held(&self) -> bool {
        self.0.counters.turns().held
    }

    /// End all turns that have gradients, and launch whatever was not. Not within a backward. Returns the turns that were not
    /// applied, in the order of application: each list has at most one of an arena.
    fn flush(&self, py: Python<'_>) -> PyResult<Vec<Vec<LiveTurn>>> {
        let (rounds, outcome) = self.0.counters.flush();
        self.0.launched(py, outcome)?;
        Ok(rounds.into_iter().map(described).collect())
    }

    /// Launch all turns that have ended and were not, whatever the schedule says.
    fn launch_all(&self, py: Python<'_>) -> PyResult<()> {
        self.0.launched(py, self.0.counters.launch_all()).map(drop)
    }

    /// Number of iterations whose gradients were summed.
    #[getter]
    fn made(&self) -> u64 {
        self.0.counters.turns().made
    }

    /// Number of iterations whose gradients were handed out to be applied; the least of all arenas.
    #[getter]
    fn handed_out(&self) -> u64 {
        self.0.counters.turns().handed_out()
    }

    /// By arena, the turns that are not applied, the oldest first; the last one is open.
    #[getter]
    fn turns(&self) -> Vec<Vec<LiveTurn>> {
        self.0.counters.turns().unapplied().into_iter().map(described).collect()
    }

    /// Whether turns of an arena have ended that are not due yet.
    fn waits(&self, arena: usize) -> bool {
        self.0.counters.turns().waits(arena)
    }

    /// The turn that the bucket's gradients are added to.
    fn open(&self, py: Python<'_>, bucket: usize) -> PyResult<LiveTurn> {
        self.0.counters.open_turn(bucket).map(LiveTurn::from).raised(py)
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
    /// its first gradient raises `UsageError` when a bucket was not applied. Returns the turns that are due now, at most one of
    /// each arena.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<LiveTurn>> {
        let (due, outcome) = self.0.counters.finish();
        self.0.launched(py, outcome)?;
        Ok(described(due))
    }

    /// Until the bucket's oldest launch that was not applied is complete, if there is one.
    fn wait(&self, py: Python<'_>, bucket: usize, timeout_s: f64) -> PyResult<()> {
        self.0.wait(py, bucket, duration(py, timeout_s)?)
    }

    /// What the oldest launches of an arena reduced was used: its memory may fill again. `UsageError` when nothing was launched.
    fn applied(&self, py: Python<'_>, arena: usize) -> PyResult<()> {
        self.0.counters.applied(arena).raised(py)
    }

    /// How often the bucket was ready, launched and applied.
    fn progress(&self, py: Python<'_>, bucket: usize) -> PyResult<(u32, u32, u32)> {
        let progress = self.0.counters.progress(bucket).raised(py)?;
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
                let open = self.shared.counters.open_turn(self.places[0].0).raised(py)?;
                Ok(&views[open.slot as usize])
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
            if let Some(made) = &shared.made {
                made.call1(py, (bucket,))?;
            }
            if shared.launched(py, shared.counters.arrive(bucket, index))? == Some(Arrival::Late) {
                // More of a gradient is added to what is there, and would be lost.
                shared.twice.call1(py, (bucket, index))?;
            }
        }
        Ok(())
    }
}
