//! The number of segments that two levels play one after the other. With all of a slice in one piece, the members that
//! communicate between groups would wait until the chain has delivered nearly all of it, with the slow link idle.

use crate::Call;

const SEGMENTS_MAX: usize = 16;
/// Limit of segments of all members together, so that verifying large jobs' programs takes no longer.
const MEMBER_SEGMENTS_MAX: usize = 100;
/// Minimum size of each part of a segment: below, messages cost more than the wait.
const SEGMENT_ELEMENTS_MIN: usize = 65_536;

/// For a call whose elements `parts` members pass on between groups.
pub fn of(call: &Call, parts: usize) -> usize {
    let most = (MEMBER_SEGMENTS_MAX / call.n()).clamp(1, SEGMENTS_MAX);
    (call.whole().len() / parts / SEGMENT_ELEMENTS_MIN).clamp(1, most)
}
