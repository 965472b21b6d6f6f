//! Traffic of algorithms, counted once: a search asks for it thousands of times.

use hocket_algorithms::{Algorithm, Counts, Kind, Misfit};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Flows that are kept, some tens of megabytes; beyond them all are counted anew.
const FLOWS_MAX: usize = 1 << 20;

#[derive(Default)]
struct Counted {
    known: HashMap<(Algorithm, Kind, usize), Arc<Counts>>,
    flows: usize,
}

static COUNTED: LazyLock<Mutex<Counted>> = LazyLock::new(Mutex::default);

/// A collective's traffic among `n` ranks, in parts of equal length.
pub fn counts(algorithm: &Algorithm, kind: Kind, n: usize) -> Result<Arc<Counts>, Misfit> {
    // The map's contents are complete, even after a panic elsewhere.
    let mut counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (algorithm.clone(), kind, n);
    if let Some(counts) = counted.known.get(&key) {
        return Ok(Arc::clone(counts));
    }
    algorithm.check(kind, n)?;
    let counts = Arc::new(Counts::of(algorithm, kind, 0, n, algorithm.even_elements(n))?);
    if counted.flows > FLOWS_MAX {
        *counted = Counted::default();
    }
    counted.flows += counts.flows.len();
    counted.known.insert(key, Arc::clone(&counts));
    Ok(counts)
}
