//! Areas of groups of a host that this rank has left.

use crate::memory::Memory;
use hocket_host::Departure;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Areas of groups that this rank has left, while other members may still be in the last call and read them.
#[derive(Default)]
pub struct Departed(Mutex<Vec<(Departure, Py<Memory>)>>);

impl Departed {
    /// Takes an area until nobody looks at it.
    pub fn hold(&self, departure: Departure, area: Py<Memory>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((departure, area));
    }

    /// Frees what all members have left.
    pub fn sweep(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(departure, _)| !departure.is_over());
    }
}

impl Drop for Departed {
    fn drop(&mut self) {
        self.sweep();
        for (_, area) in self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            area.get().keep();
        }
    }
}
