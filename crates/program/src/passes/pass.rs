//! What a pass is: a title, a function and a *spec*, which says what no op may be once the pass has run.

use super::{Codec, PassError};
use crate::{Op, Program, RankProgram};
use hocket_ids::Rank;

/// What passes decide by.
#[derive(Clone, Debug)]
pub struct Options {
    /// The physical rank that plays each logical rank; `None`: ranks stay as they are.
    pub order: Option<Vec<Rank>>,
    /// No op is larger, in bytes of its own element type.
    pub chunk_bytes: usize,
    /// What f32 travels as, where it does not travel as it is.
    pub codec: Option<Codec>,
}

/// A step of the pipeline.
pub struct Pass {
    /// As `hocket verify --after` has it.
    pub title: &'static str,
    /// The program after it; `None` where it has nothing to do.
    pub run: fn(&Program, &Options) -> Result<Option<Program>, PassError>,
    /// What is wrong with an op that is still there after the pass; `None` for an op that may be.
    pub spec: fn(&Site<'_>, &Options) -> Option<String>,
}

/// An op where it stands.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The whole.
    pub program: &'a Program,
    /// Whose op it is.
    pub rank: Rank,
    /// The rank's part.
    pub ops: &'a RankProgram,
    /// The op.
    pub op: &'a Op,
}
