//! The best order of few hosts, by dynamic programming or by enumeration.

use crate::cost::Evaluator;

/// Limit for exact rings: a millisecond or two.
pub const RING_MAX: usize = 13;
/// Limit for other algorithms: 362,880 orders, a fraction of a second.
pub const ALL_MAX: usize = 9;

/// The shortest tour through all nodes (Held and Karp 1962), node 0 first; None if all are infinitely long.
pub fn shortest_tour(n: usize, lengths: &[f64]) -> Option<Vec<u32>> {
    if n < 3 {
        return Some((0..n as u32).collect());
    }
    // By set of visited nodes (without node 0) and its last one: the shortest path from node 0, and the predecessor.
    let m = n - 1;
    let mut paths = vec![(f64::INFINITY, 0_u8); m << m];
    for last in 0..m {
        paths[(1 << last) * m + last] = (lengths[last + 1], 0);
    }
    for set in 1_usize..1 << m {
        for last in (0..m).filter(|last| set >> last & 1 == 1) {
            let (length, _) = paths[set * m + last];
            for next in (0..m).filter(|next| set >> next & 1 == 0) {
                let longer = length + lengths[(last + 1) * n + next + 1];
                let path = &mut paths[(set | 1 << next) * m + next];
                if longer < path.0 {
                    *path = (longer, last as u8);
                }
            }
        }
    }
    let mut set = (1_usize << m) - 1;
    let closed = |last: usize| paths[set * m + last].0 + lengths[(last + 1) * n];
    let mut last = (0..m).min_by(|&a, &b| closed(a).total_cmp(&closed(b)))?;
    if closed(last).is_infinite() {
        return None;
    }
    let mut order = vec![0];
    for _ in 0..m {
        order.push(last as u32 + 1);
        let before = paths[set * m + last].1 as usize;
        set &= !(1 << last);
        last = before;
    }
    Some(order)
}

/// The cheapest of all orders (Heap 1963: each differs from the last by one exchange).
pub fn cheapest(n: usize, evaluator: &mut Evaluator<'_>) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    evaluator.rebuild(&order);
    let mut best = (evaluator.rank(), order.clone());
    let mut counts = vec![0; n];
    let mut at = 1;
    while at < n {
        if counts[at] == at {
            counts[at] = 0;
            at += 1;
            continue;
        }
        let with = if at % 2 == 0 { 0 } else { counts[at] };
        order.swap(with, at);
        evaluator.update(&order, &[with as u32, at as u32]);
        if evaluator.rank().beats(best.0) {
            best = (evaluator.rank(), order.clone());
        }
        counts[at] += 1;
        at = 1;
    }
    best.1
}
