//! Rank orders: a collective's cost in one, and the search for a cheap one, which Python may watch and stop.

use crate::exceptions::error;
use crate::network::Network;
use hocket_order::{Algorithm, Budget, First, Model, Pairs, Watch, amount, evaluate, lower_bound, solve};
use hocket_protocol::limits::patience;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// One collective between hosts, of which the order is looked for. Matrices are symmetric, C-contiguous f64, row by row, and their
/// diagonals are not looked at. `network`: its ranks are the hosts; pairs share its links. `UsageError` says what does not fit.
///
/// `algorithm`: one whose entry is `ordered`, with its `numbers`. `far_first`: the rounds of halving-doubling and BCube begin
/// between ranks far apart.
#[pyclass(frozen, module = "hocket._native")]
pub struct OrderProblem {
    pairs: Pairs,
    model: Model,
    progress: Arc<Progress>,
}

/// State shared by a search and its watchers.
#[derive(Default)]
struct Progress {
    stopped: AtomicBool,
    done: AtomicU64,
}

struct Limited<'a> {
    progress: &'a Progress,
    end: Option<Instant>,
}

impl Watch for Limited<'_> {
    fn stops(&self) -> bool {
        self.progress.stopped.load(Ordering::Relaxed) || self.end.is_some_and(|end| Instant::now() >= end)
    }

    fn advances(&self, steps: u64) {
        self.progress.done.fetch_add(steps, Ordering::Relaxed);
    }
}

/// Order, its seconds, those of the given order, the bound; proven, complete.
type Found = (Vec<u32>, f64, f64, f64, bool, bool);

#[pymethods]
impl OrderProblem {
    #[new]
    #[pyo3(signature = (*, hosts, latency_s, s_per_byte, network, algorithm, numbers, size_bytes, chunk_bytes, far_first))]
    #[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        hosts: usize,
        latency_s: PyBuffer<f64>,
        s_per_byte: Option<PyBuffer<f64>>,
        network: Option<&Network>,
        algorithm: &str,
        numbers: Vec<u32>,
        size_bytes: f64,
        chunk_bytes: f64,
        far_first: bool,
    ) -> PyResult<Self> {
        let wrong = |what: &dyn std::fmt::Display| error(py, "UsageError", &format!("order: {what}"));
        let s_per_byte = s_per_byte.map_or(Ok(Vec::new()), |matrix| matrix.to_vec(py))?;
        let mut pairs = Pairs::new(hosts, latency_s.to_vec(py)?, s_per_byte).map_err(|what| wrong(&what))?;
        if let Some(network) = network {
            pairs = pairs.sharing(&network.0).map_err(|what| wrong(&what))?;
        }
        let algorithm = Algorithm::new(algorithm, numbers).map_err(|what| wrong(&what))?;
        let first = if far_first { First::Far } else { First::Near };
        let model = Model { algorithm, bytes: size_bytes, chunk_bytes, first };
        model.check(hosts).map_err(|what| wrong(&what))?;
        Ok(Self { pairs, model, progress: Arc::default() })
    }

    /// Seconds that the collective takes; `order[rank] = host`.
    #[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
    fn cost_s(&self, py: Python<'_>, order: Vec<u32>) -> PyResult<f64> {
        evaluate(&self.pairs, &self.model, &order).map_err(|what| usage(py, &what))
    }

    /// Seconds that no order can beat, given what a good one takes.
    fn bound_s(&self, py: Python<'_>, cost_s: f64) -> PyResult<f64> {
        py.detach(|| lower_bound(&self.pairs, &self.model, cost_s)).map_err(|what| usage(py, &what))
    }

    /// The best order found: itself, seconds in it, in the given one, and at least; whether no other can be better, and whether the
    /// search came to its end. Releases the GIL.
    #[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
    fn solve(
        &self,
        py: Python<'_>,
        given: Vec<u32>,
        seed: u64,
        restarts: u32,
        effort: f64,
        time_limit_s: Option<f64>,
    ) -> PyResult<Found> {
        let budget = Budget { seed, restarts, effort };
        let limit = time_limit_s.and_then(patience);
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let watch = Limited { progress: &self.progress, end };
        let found = py.detach(|| solve(&self.pairs, &self.model, &given, &budget, &watch));
        let found = found.map_err(|what| usage(py, &what))?;
        Ok((found.order, found.cost_s, found.given_s, found.bound_s, found.proven, found.complete))
    }

    /// Steps that `solve` takes, about.
    fn amount(&self, restarts: u32, effort: f64) -> u64 {
        amount(&self.pairs, &self.model, &Budget { seed: 0, restarts, effort })
    }

    /// Steps done so far.
    fn done(&self) -> u64 {
        self.progress.done.load(Ordering::Relaxed)
    }

    /// Ends `solve` in another thread, which returns the best so far.
    fn stop(&self) {
        self.progress.stopped.store(true, Ordering::Relaxed);
    }
}

fn usage(py: Python<'_>, what: &hocket_order::ModelError) -> PyErr {
    error(py, "UsageError", &format!("order: {what}"))
}
