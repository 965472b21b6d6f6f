//! Ring all-reduce: reduce-scatter, then all-gather, around the members in order (Patarasuk and Yuan 2009, section 3).
//! Every member sends 2(n−1)/n of the bytes to the next one.

use super::message::{Call, Weaver};

pub fn all_reduce(call: &Call<'_>, weaver: &mut Weaver) {
    let n = call.members.len();
    let next = |i: usize| (i + 1) % n;
    for step in 0..n - 1 {
        for i in 0..n {
            let part = call.part((i + n - step) % n, n);
            weaver.message(call.members[i], call.members[next(i)], part, Some(call.op));
        }
    }
    for i in 0..n {
        weaver.scale(call.members[i], call.part(next(i), n), call.scale);
    }
    for step in 0..n - 1 {
        for i in 0..n {
            let part = call.part((next(i) + n - step) % n, n);
            weaver.message(call.members[i], call.members[next(i)], part, None);
        }
    }
}
