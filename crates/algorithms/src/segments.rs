//! In how many segments two levels play one after the other. With all of a slice in one piece, those who talk between groups
//! would wait until the chain has brought nearly all of it, with the slow link idle.

use crate::Call;

const SEGMENTS_MAX: usize = 16;
/// Segments of all members together: the programs of large jobs are verified in as little time as before.
const MEMBER_SEGMENTS_MAX: usize = 100;
/// Of each part of a segment: below, messages cost more than the wait.
const SEGMENT_ELEMENTS_MIN: usize = 65_536;

/// Of a call whose elements `parts` members pass on between groups.
pub fn of(call: &Call, parts: usize) -> usize {
    let most = (MEMBER_SEGMENTS_MAX / call.n()).clamp(1, SEGMENTS_MAX);
    (call.whole().len() / parts / SEGMENT_ELEMENTS_MIN).clamp(1, most)
}
