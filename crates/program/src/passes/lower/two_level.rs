//! Two-level all-reduce: each group reduces along a chain to its first member, the leaders run a ring, and each result
//! goes back along the chain. Between groups only leaders talk, so a slow link between racks carries the least.

use super::all_reduce_ring;
use super::message::{Call, Weaver};
use crate::passes::PassError;

/// The leaders' first message is of the last part: with all of the slice in one piece it would wait until the chain has brought
/// nearly all of it, with the slow link idle.
const SEGMENTS_MAX: usize = 16;
/// Segments of all members together: the programs of large jobs are verified in as little time as before.
const MEMBER_SEGMENTS_MAX: usize = 100;
/// Of each leader's part of a segment: below, messages cost more than the wait.
const SEGMENT_ELEMENTS_MIN: usize = 65_536;

pub fn all_reduce(call: &Call, sizes: &[u32], weaver: &mut Weaver) -> Result<(), PassError> {
    let wrong = || PassError::Sizes { sizes: sizes.to_vec(), members: call.n() };
    let all: Vec<usize> = (0..call.n()).collect();
    let mut groups: Vec<&[usize]> = Vec::with_capacity(sizes.len());
    let mut rest = &all[..];
    for &size in sizes {
        let (group, after) = rest.split_at_checked(size as usize).ok_or_else(wrong)?;
        if group.is_empty() {
            return Err(wrong());
        }
        groups.push(group);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(wrong());
    }
    let leaders: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let most = (MEMBER_SEGMENTS_MAX / call.n()).clamp(1, SEGMENTS_MAX);
    let segments = (call.whole().len() / leaders.len() / SEGMENT_ELEMENTS_MIN).clamp(1, most);
    for segment in 0..segments {
        let call = call.within(&call.part(segment, segments));
        for group in &groups {
            for link in group.windows(2).rev() {
                weaver.message(&call, link[1], link[0], &call.whole(), true);
            }
        }
        all_reduce_ring(&call.among(&leaders), weaver);
        for group in &groups {
            for link in group.windows(2) {
                weaver.message(&call, link[0], link[1], &call.whole(), false);
            }
        }
    }
    Ok(())
}
