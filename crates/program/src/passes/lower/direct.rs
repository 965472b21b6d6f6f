//! Direct all-reduce: each member reduces its own part out of all the others, and all take it from there. Two rounds
//! instead of 2(n−1); where memory is shared, every byte is read once per member and never copied on the way.

use super::message::{Call, Weaver};

pub fn all_reduce(call: &Call<'_>, weaver: &mut Weaver) {
    let n = call.members.len();
    for owner in 0..n {
        for k in 1..n {
            let other = (owner + k) % n;
            weaver.message(call.members[other], call.members[owner], call.part(owner, n), Some(call.op));
        }
        weaver.scale(call.members[owner], call.part(owner, n), call.scale);
    }
    for owner in 0..n {
        for k in 1..n {
            let other = (owner + k) % n;
            weaver.message(call.members[owner], call.members[other], call.part(owner, n), None);
        }
    }
}
