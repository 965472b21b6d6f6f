//! Groups by the numbers that compiled functions have as an attribute: a function outlives plans and, at times, its group.

use crate::operand::Operand;
use hocket_adapter::Group;
use hocket_executor::Engine;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// A model's leaves that XLA lends.
pub type XlaGroup = Group<Engine, Operand>;

struct Groups {
    next: u64,
    known: BTreeMap<u64, Arc<XlaGroup>>,
}

static GROUPS: RwLock<Groups> = RwLock::new(Groups { next: 0, known: BTreeMap::new() });

/// Its number from now on; none is used twice.
pub fn register(group: Arc<XlaGroup>) -> u64 {
    let mut groups = GROUPS.write().unwrap_or_else(PoisonError::into_inner);
    let number = groups.next;
    groups.next += 1;
    groups.known.insert(number, group);
    number
}

/// Calls for that number are refused from now on.
pub fn forget(number: u64) {
    // Dropped without the lock: its loans end, and the runtime may go on computing in that call.
    let group = GROUPS.write().unwrap_or_else(PoisonError::into_inner).known.remove(&number);
    drop(group);
}

/// The group of that number, if it is open.
pub fn find(number: u64) -> Option<Arc<XlaGroup>> {
    GROUPS.read().unwrap_or_else(PoisonError::into_inner).known.get(&number).map(Arc::clone)
}
