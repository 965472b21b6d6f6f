//! What is asked of a loaded program when it is launched, and what becomes of that.

/// How an instance is launched.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The set of bound memory.
    pub set: u32,
    /// Each element of the set is multiplied with it first.
    pub factor: f64,
    /// The iteration that needs it: what is due earlier goes first.
    pub due: u32,
    /// Whether it is recorded, with all its ops.
    pub traced: bool,
    /// When it was asked for.
    pub asked_ns: u64,
}

impl Launch {
    /// Whether its factor changes anything.
    #[expect(clippy::float_cmp, reason = "any other factor is applied, however near it is to 1")]
    pub fn scales(&self) -> bool {
        self.factor != 1.0
    }
}

/// What became of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It may start.
    Now,
    /// It starts when those before are complete.
    Later,
    /// Its set is in use.
    Refused,
}
