//! What runs the programs of buckets, as readiness asks it.

use crate::engine::Engine;
use crate::error::Error;
use std::time::Duration;

/// What runs programs.
pub trait Launcher {
    /// How many places a program has for what it reduces.
    fn slots(&self, program: u32) -> Result<u32, Error>;

    /// How often it was launched.
    fn launched(&self, program: u32) -> Result<u32, Error>;

    /// Starts an instance of `program` on `slot`, whose elements it multiplies with `factor` first, when those before
    /// are complete; returns at once. Not while an instance on that slot runs. What is `due` in an earlier iteration goes first.
    fn launch(&self, program: u32, slot: u32, factor: f64, due: u32) -> Result<(), Error>;

    /// Waits for the first `launches` instances of `program`, as [`Engine::wait`].
    fn wait(
        &self,
        program: u32,
        launches: u32,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error>;

    /// Why nothing can be launched any more.
    fn failure(&self) -> Option<Error>;

    /// How many gradients a program works on before all are there; `None`: on none, which is the default of these four.
    fn early(&self, _program: u32) -> Result<Option<usize>, Error> {
        Ok(None)
    }

    /// Starts an instance as [`Self::launch`] before its gradients are there, and says so, unless one runs.
    fn launch_early(&self, _program: u32, _slot: u32, _due: u32) -> Result<bool, Error> {
        Ok(false)
    }

    /// A gradient of that instance is there; each is told once, before [`Self::all_are_there`].
    fn gradient_is_there(&self, _program: u32, _gradient: u32) {}

    /// All gradients of that instance are there.
    fn all_are_there(&self, _program: u32) -> Result<(), Error> {
        Ok(())
    }
}

impl Launcher for Engine {
    fn slots(&self, program: u32) -> Result<u32, Error> {
        Ok(self.loaded(program)?.sets())
    }

    fn launched(&self, program: u32) -> Result<u32, Error> {
        Ok(self.loaded(program)?.asked())
    }

    fn launch(&self, program: u32, slot: u32, factor: f64, due: u32) -> Result<(), Error> {
        self.launch_on(program, slot, factor, due)
    }

    fn wait(
        &self,
        program: u32,
        launches: u32,
        timeout: Duration,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        self.wait_for(program, launches, timeout, interrupted)
    }

    fn failure(&self) -> Option<Error> {
        Self::failure(self)
    }

    fn early(&self, program: u32) -> Result<Option<usize>, Error> {
        Ok(self.loaded(program)?.early_gradients())
    }

    fn launch_early(&self, program: u32, slot: u32, due: u32) -> Result<bool, Error> {
        Self::launch_early(self, program, slot, due)
    }

    fn gradient_is_there(&self, program: u32, gradient: u32) {
        Self::gradient_is_there(self, program, gradient);
    }

    fn all_are_there(&self, program: u32) -> Result<(), Error> {
        Self::all_are_there(self, program)
    }
}
