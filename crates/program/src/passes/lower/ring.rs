//! Around the members in order (Patarasuk and Yuan 2009, section 3): every member sends (n−1)/n of the bytes to the next one,
//! once for each half of an all-reduce. Broadcast and reduce are chains, which chunking turns into pipelines.

use super::message::{Call, Weaver};

/// Member `i` ends with the reduction of part `i`.
pub fn reduce_scatter(call: &Call, weaver: &mut Weaver) {
    let n = call.n();
    for step in 1..n {
        for i in 0..n {
            weaver.message(call, i, (i + 1) % n, &call.part((i + n - step) % n, n), true);
        }
    }
}

/// Each member's own part travels around.
pub fn all_gather(call: &Call, weaver: &mut Weaver) {
    let n = call.n();
    for step in 0..n.saturating_sub(1) {
        for i in 0..n {
            weaver.message(call, i, (i + 1) % n, &call.part((i + n - step) % n, n), false);
        }
    }
}

/// From the root along the ring.
pub fn broadcast(call: &Call, root: usize, weaver: &mut Weaver) {
    let n = call.n();
    for step in 1..n {
        weaver.message(call, (root + step - 1) % n, (root + step) % n, &call.whole(), false);
    }
}

/// Along the ring to the root.
pub fn reduce(call: &Call, root: usize, weaver: &mut Weaver) {
    let n = call.n();
    for step in (1..n).rev() {
        weaver.message(call, (root + step) % n, (root + step - 1) % n, &call.whole(), true);
    }
}
