//! The sets of bound memory that a program is loaded with: complete, and apart from one another.

use crate::compile::is_staged;
use hocket_ids::{DType, Rank};
use hocket_program::{Buffer, BufferKind, Program};
use hocket_wire::memory::Region;

/// The memory of a bound buffer.
pub fn bound(buffer: &Buffer, given: Option<&Region>) -> Result<Region, String> {
    debug_assert_eq!(buffer.kind, BufferKind::Bound);
    let region = given.ok_or_else(|| format!("no memory is given for `{}`", buffer.name))?;
    let wanted = buffer.len * buffer.dtype.bytes();
    if region.len() < wanted {
        return Err(format!("`{}` needs {wanted} bytes, got {}", buffer.name, region.len()));
    }
    Ok(region.sub(0, wanted))
}

/// Which of a rank's regions are bound, with their element types.
pub fn bound_of(program: &Program, rank: Rank, regions: &[Option<Region>]) -> Vec<(Region, DType)> {
    let buffers = &program.ranks[rank.index()].buffers;
    let bound = buffers.iter().zip(regions).filter(|(buffer, _)| buffer.kind == BufferKind::Bound);
    bound.filter_map(|(buffer, region)| Some((region.clone()?, buffer.dtype))).collect()
}

/// Of these, those that a launch's factor is applied to before its first op: all but those that are only copied, and those that
/// they fill. Of twins of a device's memory it is applied to what has come down.
pub fn scaled_of(program: &Program, rank: Rank, regions: &[Option<Region>]) -> Vec<(Region, DType)> {
    let own = &program.ranks[rank.index()];
    if is_staged(own) {
        return Vec::new();
    }
    let given = own.given();
    let apart = |at: usize| given.iter().any(|(from, to)| from.index() == at || to.index() == at);
    let buffers = own.buffers.iter().zip(regions).enumerate();
    let scaled = buffers.filter(|(at, (buffer, _))| buffer.kind == BufferKind::Bound && !apart(*at));
    scaled.filter_map(|(_, (buffer, region))| Some((region.clone()?, buffer.dtype))).collect()
}

/// No two sets share a byte: one fills while the other is under way.
pub fn apart(sets: &[Vec<(Region, DType)>]) -> Result<(), String> {
    let mut all: Vec<(u64, u64, usize)> = Vec::new();
    for (set, regions) in sets.iter().enumerate() {
        let filled = regions.iter().map(|(region, _)| region).filter(|region| !region.is_empty());
        all.extend(
            filled.map(|region| (region.arena_offset(), region.arena_offset() + region.len() as u64, set)),
        );
    }
    all.sort_unstable();
    match all.windows(2).find(|pair| pair[0].1 > pair[1].0 && pair[0].2 != pair[1].2) {
        Some(pair) => Err(format!("sets {} and {} of its memory overlap", pair[0].2, pair[1].2)),
        None => Ok(()),
    }
}
