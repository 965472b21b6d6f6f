//! Groups by the numbers that compiled functions have as an attribute: a function outlives plans and, at times, its group.

use crate::group::Group;
use hocket_executor::Engine;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock};

/// A model's leaves that a runtime lends.
pub type EngineGroup = Group<Engine>;

/// Why an execution may not begin.
pub struct Refusal {
    pub code: c_int,
    pub message: String,
}

/// Begins an execution, and returns its turn: for functions whose caller does not hand it to them.
pub type Begin = dyn Fn() -> Result<u32, Refusal> + Send + Sync;

/// What a function is told whose group is closed.
pub const NOT_DISTRIBUTED: &str = "the model of this function is not distributed any more\nhint: distribute it before the \
     function is compiled, and train while the job lasts";

struct Known {
    group: Arc<EngineGroup>,
    begin: Option<Arc<Begin>>,
}

struct Groups {
    next: u64,
    known: BTreeMap<u64, Known>,
}

static GROUPS: RwLock<Groups> = RwLock::new(Groups { next: 0, known: BTreeMap::new() });

/// Its number from now on; none is used twice.
pub fn register(group: Arc<EngineGroup>) -> u64 {
    let mut groups = GROUPS.write().unwrap_or_else(PoisonError::into_inner);
    let number = groups.next;
    groups.next += 1;
    groups.known.insert(number, Known { group, begin: None });
    number
}

/// From now on, [`begin`] calls it for that number, if its group is open.
pub fn answer_begin(number: u64, begin: Arc<Begin>) {
    let mut groups = GROUPS.write().unwrap_or_else(PoisonError::into_inner);
    let before = groups.known.get_mut(&number).and_then(|known| known.begin.replace(begin));
    drop(groups);
    drop(before);
}

/// Calls for that number are refused from now on.
pub fn forget(number: u64) {
    // Dropped without the lock: its loans end, and the runtime may go on computing in that call.
    let known = GROUPS.write().unwrap_or_else(PoisonError::into_inner).known.remove(&number);
    drop(known);
}

pub fn find(number: u64) -> Option<Arc<EngineGroup>> {
    let groups = GROUPS.read().unwrap_or_else(PoisonError::into_inner);
    groups.known.get(&number).map(|known| Arc::clone(&known.group))
}

/// The turn of an execution that begins.
pub fn begin(number: u64) -> Result<u32, Refusal> {
    let groups = GROUPS.read().unwrap_or_else(PoisonError::into_inner);
    let found = groups.known.get(&number).and_then(|known| known.begin.clone());
    // It may take long, and load other programs.
    drop(groups);
    match found {
        Some(begin) => begin(),
        None => Err(Refusal { code: crate::FAILED_PRECONDITION, message: NOT_DISTRIBUTED.into() }),
    }
}
