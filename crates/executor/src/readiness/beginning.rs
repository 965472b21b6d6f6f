//! Whether a launch begins before the gradients of its bucket are there, and how many it waits for.

use crate::error::Error;
use crate::lock::lock;
use std::sync::Mutex;

/// Of a launch in this backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No gradient has come.
    Open,
    /// It began, and so many are not there.
    Early(usize),
    /// It did not begin early, or all are there.
    Over,
}

/// The beginning of a bucket's launches.
pub struct Beginning(Mutex<State>);

impl Beginning {
    /// Before the first gradient.
    pub fn new() -> Self {
        Self(Mutex::new(State::Open))
    }

    /// Whether a launch began, and some gradients are not there.
    pub fn is_early(&self) -> bool {
        matches!(*lock(&self.0), State::Early(_))
    }

    /// One of so many gradients has come. The first calls `begin`, which returns whether the launch begins; then each calls `tell`,
    /// with whether it is the last. Returns whether the launch began so.
    pub fn come(
        &self,
        gradients: usize,
        begin: impl FnOnce() -> Result<bool, Error>,
        tell: impl FnOnce(bool) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        // Held while others are told, so that nobody tells of the last before each was told of.
        let mut state = lock(&self.0);
        if *state == State::Open {
            *state = State::Over;
            if begin()? {
                *state = State::Early(gradients);
            }
        }
        let State::Early(missing) = *state else { return Ok(false) };
        *state = if missing > 1 { State::Early(missing - 1) } else { State::Over };
        tell(missing == 1).map(|()| true)
    }

    /// Backward has ended.
    pub fn end(&self) {
        *lock(&self.0) = State::Open;
    }
}
