//! Two-level all-reduce: each group reduces along a chain to its first member, the leaders run a ring, and each result
//! goes back along the chain. Between groups only leaders talk, so a slow link between racks carries the least.

use super::ring;
use crate::entry::{Entry, Takes};
use crate::group::runs;
use crate::{Algorithm, Call, Fit, Group, Kind, Misfit, Stage, Weave};

/// The leaders' first message is of the last part: with all of the slice in one piece it would wait until the chain has brought
/// nearly all of it, with the slow link idle.
const SEGMENTS_MAX: usize = 16;
/// Segments of all members together: the programs of large jobs are verified in as little time as before.
const MEMBER_SEGMENTS_MAX: usize = 100;
/// Of each leader's part of a segment: below, messages cost more than the wait.
const SEGMENT_ELEMENTS_MIN: usize = 65_536;

pub const ENTRY: Entry = Entry {
    name: "two_level",
    title: "two levels",
    takes: Takes::Sizes,
    measured_as: &["two_level.host", "two_level.rack"],
    does: &[Kind::AllReduce],
    ordered: true,
    proposed: true,
    make: |numbers| Algorithm::TwoLevel { sizes: numbers },
    fits,
    check,
    weave,
    even_elements: |sizes, _| sizes.len(),
};

/// Over the blocks of hosts, or of racks: their members are next to one another in the group.
fn fits(_: Kind, group: &Group<'_>) -> Vec<Fit> {
    let levels = [("two_level.host", group.hosts), ("two_level.rack", group.racks)];
    let several = |sizes: &Vec<u32>| 1 < sizes.len() && sizes.len() < group.n();
    levels
        .into_iter()
        .filter_map(|(measured_as, names)| {
            let sizes = runs(names).filter(several)?;
            Some(Fit { measured_as, algorithm: Algorithm::TwoLevel { sizes } })
        })
        .collect()
}

fn check(sizes: &[u32], _: Kind, n: usize) -> Result<(), Misfit> {
    let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
    if total == n as u64 && sizes.iter().all(|&size| size > 0) {
        return Ok(());
    }
    Err(Misfit::Sizes { sizes: sizes.to_vec(), members: n })
}

fn weave(sizes: &[u32], _: Kind, _: usize, call: &Call, weave: &mut dyn Weave) {
    let mut groups: Vec<Vec<usize>> = Vec::with_capacity(sizes.len());
    let mut first = 0;
    for &size in sizes {
        groups.push((first..first + size as usize).collect());
        first += size as usize;
    }
    let leaders: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let most = (MEMBER_SEGMENTS_MAX / call.n()).clamp(1, SEGMENTS_MAX);
    let segments = (call.whole().len() / leaders.len() / SEGMENT_ELEMENTS_MIN).clamp(1, most);
    for segment in 0..segments {
        let call = call.within(&call.part(segment, segments));
        for (at, group) in groups.iter().enumerate() {
            weave.stage(Stage::Rise(at as u32));
            for link in group.windows(2).rev() {
                call.message(link[1], link[0], &call.whole(), true, weave);
            }
        }
        weave.stage(Stage::Cycle);
        ring::all_reduce(&call.among(&leaders), weave);
        for (at, group) in groups.iter().enumerate() {
            weave.stage(Stage::Fall(at as u32));
            for link in group.windows(2) {
                call.message(link[0], link[1], &call.whole(), false, weave);
            }
        }
    }
}
