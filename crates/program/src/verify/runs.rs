//! What a stretch of a buffer holds: runs of elements with the same expression.

use super::expression::Value;
use crate::Slice;
use smallvec::{SmallVec, smallvec};

/// The contents of elements: unknown before the first write of a scratch buffer.
pub type Held = Option<Value>;

/// Elements from a position up to another that hold one expression.
pub type Stretch = (usize, usize, Held);

/// Runs of elements that hold the same expression, in order, without gaps. Most slices hold one.
pub type Runs = SmallVec<[Stretch; 1]>;

/// The contents at a position.
pub fn at_position(runs: &Runs, position: usize) -> Held {
    runs.iter().find(|run| run.0 <= position && position < run.1).and_then(|run| run.2)
}

/// The runs between two positions, counted from the first.
pub fn within(runs: &Runs, start: usize, stop: usize) -> Runs {
    let clip = |run: &(usize, usize, Held)| {
        let (from, to) = (run.0.max(start), run.1.min(stop));
        (from < to).then(|| (from - start, to - start, moved(run.2, start as i64)))
    };
    runs.iter().filter_map(clip).collect()
}

/// Marks every element as unknown.
pub fn unknown(slice: &Slice) -> Runs {
    all_of(slice, None)
}

/// Sets all elements of a slice to the same value.
pub fn all_of(slice: &Slice, held: Held) -> Runs {
    if slice.is_empty() { Runs::new() } else { smallvec![(0, slice.len(), held)] }
}

/// The unwritten parts of a slice with these runs.
pub fn missing(runs: &Runs, slice: &Slice) -> Vec<Slice> {
    let missing = runs.iter().filter(|run| run.2.is_none());
    missing.map(|run| Slice::new(slice.buffer, slice.start + run.0, slice.start + run.1)).collect()
}

pub fn moved(held: Held, by: i64) -> Held {
    held.map(|value| Value { shift: value.shift + by, ..value })
}

/// Merges neighbouring runs of the same expression, so that two ranks compare equal however they were cut.
pub fn joined(runs: &[Stretch]) -> Vec<Stretch> {
    let mut joined: Vec<Stretch> = Vec::with_capacity(runs.len());
    for &run in runs {
        match joined.last_mut() {
            Some(last) if last.2 == run.2 => last.1 = run.1,
            _ => joined.push(run),
        }
    }
    joined
}
