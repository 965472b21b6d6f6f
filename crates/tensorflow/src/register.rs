//! What TensorFlow is told of, once in a process.

use crate::{kernels, library, ops};
use std::sync::{Mutex, PoisonError};

static REGISTERED: Mutex<bool> = Mutex::new(false);

/// Registers ops and kernels with the TensorFlow that is loaded, unless that was done before. `version`: its own, for people.
/// Err: a sentence why not.
pub fn register(version: &str) -> Result<(), String> {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if *registered {
        return Ok(());
    }
    let library = library::load(version)?;
    ops::register(library)?;
    kernels::register(library)?;
    *registered = true;
    Ok(())
}
