//! A rank that dies at a chosen edge of an op, as by SIGKILL: it says nothing and does nothing afterwards. For tests
//! alone.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// When a rank dies.
#[derive(Debug)]
pub struct Death {
    /// Edges until then; negative: never.
    edges: AtomicI64,
    come: AtomicBool,
}

impl Default for Death {
    fn default() -> Self {
        Self { edges: AtomicI64::new(-1), come: AtomicBool::new(false) }
    }
}

impl Death {
    /// It comes after this many edges: an op has two, at which it may start and at which it is done.
    pub fn after(&self, edges: u32) {
        self.edges.store(edges.into(), Ordering::SeqCst);
    }

    /// Whether it has come.
    pub fn has_come(&self) -> bool {
        self.come.load(Ordering::SeqCst)
    }

    /// An edge of an op; whether the rank dies at it.
    pub fn note_edge(&self) -> bool {
        let waits = |left| (left >= 0).then_some(left - 1);
        let last = self.edges.fetch_update(Ordering::SeqCst, Ordering::SeqCst, waits) == Ok(0);
        if last {
            self.come.store(true, Ordering::SeqCst);
        }
        last
    }
}
