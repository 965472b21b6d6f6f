//! Two-level all-reduce: each group reduces along a chain to its first member, the leaders run a ring, and each result
//! returns along the chain. Only leaders communicate between groups, so a slow link between racks carries the minimum.

use super::ring;
use crate::entry::{Entry, Fits, Takes};
use crate::group::runs;
use crate::{Call, Group, Kind, Misfit, Stage, Weave, segments};

pub const ENTRY: Entry = Entry {
    name: "two_level",
    title: "two levels",
    takes: Takes::Sizes,
    measured_as: &["two_level.host", "two_level.rack"],
    does: &[Kind::AllReduce],
    ordered: true,
    proposed: true,
    fits,
    check,
    weave,
    even_elements: |sizes, _| sizes.len(),
};

/// Over the blocks of hosts, or of racks: their members are next to one another in the group.
fn fits(_: Kind, group: &Group<'_>) -> Fits {
    let levels = [("two_level.host", group.hosts), ("two_level.rack", group.racks)];
    let several = |sizes: &Vec<u32>| 1 < sizes.len() && sizes.len() < group.n();
    levels
        .into_iter()
        .filter_map(|(measured_as, names)| {
            let sizes = runs(names).filter(several)?;
            Some((measured_as, sizes))
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
    let segments = segments::of(call, leaders.len());
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
