//! Everybody with everybody: each owner's part goes to it, or from it, in one round. Where memory is shared, every byte is read
//! once per member and never copied on the way. A parameter server is the same with fewer owners.

use super::message::{Call, Weaver};
use crate::Slice;

/// The first `owners` members end with the reduction of their part of as many.
pub fn reduce_scatter(call: &Call, owners: usize, weaver: &mut Weaver) {
    let n = call.n();
    for owner in 0..owners {
        for k in 1..n {
            weaver.message(call, (owner + k) % n, owner, &call.part(owner, owners), true);
        }
    }
}

/// Each owner's part to all.
pub fn all_gather(call: &Call, owners: usize, weaver: &mut Weaver) {
    let n = call.n();
    for owner in 0..owners {
        for k in 1..n {
            weaver.message(call, owner, (owner + k) % n, &call.part(owner, owners), false);
        }
    }
}

/// From the root to each.
pub fn broadcast(call: &Call, root: usize, weaver: &mut Weaver) {
    for to in (0..call.n()).filter(|&to| to != root) {
        weaver.message(call, root, to, &call.whole(), false);
    }
}

/// From each to the root.
pub fn reduce(call: &Call, root: usize, weaver: &mut Weaver) {
    for from in (0..call.n()).filter(|&from| from != root) {
        weaver.message(call, from, root, &call.whole(), true);
    }
}

/// Each member's own part to the root.
pub fn gather(call: &Call, root: usize, weaver: &mut Weaver) {
    for from in (0..call.n()).filter(|&from| from != root) {
        weaver.message(call, from, root, &call.part(from, call.n()), false);
    }
}

/// The root's parts to their members.
pub fn scatter(call: &Call, root: usize, weaver: &mut Weaver) {
    for to in (0..call.n()).filter(|&to| to != root) {
        weaver.message(call, root, to, &call.part(to, call.n()), false);
    }
}

/// Part `j` of member `i` to part `i` of `dsts[j]`. In round `k` each member sends to the `k`-th after it.
pub fn all_to_all(call: &Call, dsts: &[Slice], weaver: &mut Weaver) {
    let n = call.n();
    for (i, dst) in dsts.iter().enumerate() {
        let part = call.part(i, n);
        if !part.is_empty() {
            let dst = Slice::new(dst.buffer, dst.start + part.start, dst.start + part.end);
            weaver.push(call.members[i], crate::Op::Copy { src: call.slice(i, &part), dst });
        }
    }
    for k in 1..n {
        for i in 0..n {
            let j = (i + k) % n;
            let (sent, landed) = (call.part(j, n), call.part(i, n));
            let dst = Slice::new(dsts[j].buffer, dsts[j].start + landed.start, dsts[j].start + landed.end);
            weaver.transfer(call.members[i], call.slice(i, &sent), call.members[j], dst, None);
        }
    }
}
