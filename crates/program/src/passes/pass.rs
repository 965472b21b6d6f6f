//! The definition of a pass: a title, a function and a *spec*, which says what no op may be once the pass has run.

use super::PassError;
use crate::{DType, Op, Program, RankProgram};
use hocket_ids::Rank;
use std::collections::HashSet;

/// The element type of f32 on some links.
#[derive(Clone, Debug)]
pub struct Codec {
    /// f16 or bf16.
    pub dtype: DType,
    /// Source and destination: ranks after `relabel`.
    pub links: HashSet<(Rank, Rank)>,
}

/// Options of the passes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The physical rank that plays each logical rank; `None`: ranks stay as they are.
    pub order: Option<Vec<Rank>>,
    /// Limit of an op's size in bytes of its own element type.
    pub chunk_bytes: usize,
    /// The codec of f32 on some links, if any.
    pub codec: Option<Codec>,
}

/// A step of the pipeline.
pub struct Pass {
    /// Its name in `hocket verify --after`.
    pub title: &'static str,
    /// The transformed program; `None` if there is nothing to do.
    pub run: fn(&Program, &Options) -> Result<Option<Program>, PassError>,
    /// The violation by an op that remains after the pass; `None` for an allowed op.
    pub spec: fn(&Site<'_>, &Options) -> Option<String>,
}

/// An op with its surroundings.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The whole program.
    pub program: &'a Program,
    /// The op's rank.
    pub rank: Rank,
    /// The rank's part.
    pub ops: &'a RankProgram,
    /// The op.
    pub op: &'a Op,
}
