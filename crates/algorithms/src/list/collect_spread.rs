//! Each part is collected by one member and spread by another, or by the same: shares of both follow from what each
//! member's link can carry in and out. All others push their values of the part to the collector; it hands the sum to the
//! spreader, who sends the result to all. With equal shares it is `direct`; with one share of each, everything goes
//! through one member.
//!
//! A member that collects a share c and spreads a share s receives 1 + (n − 2) c and sends 1 + (n − 2) s of the elements,
//! so any rates whose sums suffice are used in full (the bound of Chen et al., arXiv 2606.01680, is attained where links
//! are shared as they should be). Values of fast members are added up before those of slow ones, by what they spread.
//!
//! A link that has nothing to carry for a moment is late for good, and of such moments there would be many: a value that
//! is added where it lands waits for the one before it, and is asked for through queues of both links. So what slow
//! members push or collect lands aside, as do all first segments, and slow members collect all they have at once: what
//! they spread would otherwise wait behind results, for which nobody waits.

use crate::entry::{Entry, Fits, Takes};
use crate::{Call, Group, Kind, Misfit, Weave};
use std::ops::Range;

pub const ENTRY: Entry = Entry {
    name: "collect_spread",
    title: "members that collect and members that spread",
    takes: Takes::Shares,
    measured_as: &[],
    does: &[Kind::AllReduce],
    ordered: false,
    proposed: false,
    fits,
    check,
    weave,
    even_elements,
};

/// Parts of each piece that travel one after the other: with more, results set out earlier, and messages are shorter.
const SEGMENTS: usize = 8;
/// Limit of a share, so that sums and products fit.
const SHARE_MAX: u32 = 1 << 16;

/// Shares follow from rates, which a group does not have.
fn fits(_: Kind, _: &Group<'_>) -> Fits {
    Vec::new()
}

fn check(shares: &[u32], _: Kind, n: usize) -> Result<(), Misfit> {
    let wrong = |what| Err(Misfit::Shares { what, shares: shares.to_vec(), members: n });
    if shares.len() != 2 * n {
        return wrong("it has a share to collect of each member, and then a share to spread of each");
    }
    if shares.iter().any(|&share| share > SHARE_MAX) {
        return wrong("a share is at most 65536");
    }
    let (collected, spread) = shares.split_at(n);
    if sum(collected) == 0 || sum(spread) == 0 {
        return wrong("somebody must collect, and somebody spread");
    }
    Ok(())
}

fn sum(shares: &[u32]) -> u64 {
    shares.iter().map(|&share| u64::from(share)).sum()
}

/// A collector, a spreader, and their elements.
type Piece = (usize, usize, Range<usize>);

/// As much as possible is collected and spread by the same members, which come first; the rest is matched in order.
pub fn pieces(shares: &[u32], elements: usize) -> Vec<Piece> {
    let n = shares.len() / 2;
    let (collected, spread) = shares.split_at(n);
    // In units of which both sums are the same.
    let scale =
        |side: &[u32], by: u64| -> Vec<u64> { side.iter().map(|&share| u64::from(share) * by).collect() };
    let (mut collecting, mut spreading) = (scale(collected, sum(spread)), scale(spread, sum(collected)));
    let all = u128::from(sum(collected)) * u128::from(sum(spread));
    let mut units = 0_u64;
    let mut found = Vec::new();
    let mut take = |collector: usize, spreader: usize| {
        let common = collecting[collector].min(spreading[spreader]);
        collecting[collector] -= common;
        spreading[spreader] -= common;
        let edge = |units: u64| (elements as u128 * u128::from(units) / all) as usize;
        let part = edge(units)..edge(units + common);
        units += common;
        if !part.is_empty() {
            found.push((collector, spreader, part));
        }
    };
    (0..n).for_each(|member| take(member, member));
    for collector in 0..n {
        (0..n).for_each(|spreader| take(collector, spreader));
    }
    found
}

fn weave(shares: &[u32], _: Kind, _: usize, call: &Call, weave: &mut dyn Weave) {
    let n = call.n();
    let pieces = pieces(shares, call.whole().len());
    let most = |shares: &[u32]| shares.iter().copied().max().unwrap_or(0);
    let (collected, spread) = (most(&shares[..n]), most(&shares[n..]));
    for at in 0..SEGMENTS {
        let part_of = |(collector, spreader, elements): &Piece| {
            let segments = if shares[*collector] < collected { 1 } else { SEGMENTS };
            (*collector, *spreader, segment(elements, at, segments))
        };
        let parts: Vec<Piece> = pieces.iter().map(part_of).collect();
        for (collector, spreader, part) in &parts {
            for from in pushing(shares, *collector) {
                if from == *collector || from == *spreader {
                    continue;
                }
                if at == 0 || shares[*collector] < collected || shares[n + from] < spread {
                    call.aside(from, *collector, part, weave);
                } else {
                    call.message(from, *collector, part, true, weave);
                }
            }
        }
        for (collector, spreader, part) in &parts {
            if collector != spreader {
                call.message(*collector, *spreader, part, true, weave);
            }
            call.complete(*spreader, part, weave);
        }
        for k in 1..n {
            for (_, spreader, part) in &parts {
                call.message(*spreader, (spreader + k) % n, part, false, weave);
            }
        }
    }
}

/// One of several; after the last, nothing.
fn segment(elements: &Range<usize>, at: usize, segments: usize) -> Range<usize> {
    let edge = |at: usize| elements.start + elements.len() * at.min(segments) / segments;
    edge(at)..edge(at + 1)
}

/// Members in the order in which a collector receives from them, itself among them: the slowest to send last; of equally fast ones
/// those after it first, so that no one is everybody's first.
fn pushing(shares: &[u32], collector: usize) -> Vec<usize> {
    let n = shares.len() / 2;
    let mut members: Vec<usize> = (0..n).map(|k| (collector + k) % n).collect();
    members.sort_by_key(|&member| std::cmp::Reverse(shares[n + member]));
    members
}

fn even_elements(shares: &[u32], n: usize) -> usize {
    let (collected, spread) = shares.split_at(n);
    SEGMENTS * (sum(collected) * sum(spread)).max(1) as usize
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Counts, Kind, Misfit, Owned, Via};

    fn carried(collected: &[u32], spread: &[u32]) -> Vec<(f64, f64)> {
        let algorithm = Algorithm::CollectSpread { shares: [collected, spread].concat() };
        let n = collected.len();
        let counts = Counts::of_all_reduce(&algorithm, n).expect("it fits");
        let mut carried = vec![(0.0, 0.0); n];
        for flow in &counts.flows {
            let share = flow.elements as f64 / counts.elements as f64;
            carried[flow.from].0 += share;
            carried[flow.to].1 += share;
        }
        carried
    }

    /// Broken: a slow link would carry more than its member's own values and the sum, or less than it has room for.
    #[test]
    fn a_member_carries_what_its_shares_say() {
        for (collected, spread) in [
            ([3, 3, 3, 1], [3, 3, 3, 1]),
            ([1, 1, 1, 1], [1, 1, 1, 0]),
            ([5, 0, 2, 1], [0, 1, 0, 7]),
            ([0, 0, 0, 1], [1, 0, 0, 0]),
        ] {
            let part =
                |shares: &[u32], at: usize| f64::from(shares[at]) / f64::from(shares.iter().sum::<u32>());
            for (at, (sent, received)) in carried(&collected, &spread).into_iter().enumerate() {
                assert!(
                    (sent - 1.0 - 2.0 * part(&spread, at)).abs() < 1e-9,
                    "{at} of {collected:?} {spread:?}"
                );
                assert!((received - 1.0 - 2.0 * part(&collected, at)).abs() < 1e-9);
            }
        }
    }

    /// Broken: equal shares would be another route than everybody's with everybody.
    #[test]
    fn equal_shares_send_what_owners_do() {
        let algorithm = Algorithm::CollectSpread { shares: vec![2; 10] };
        let own = Counts::of_all_reduce(&algorithm, 5).expect("it fits");
        let owned = Owned { shares: vec![1; 5], workers: 5, via: Via::Direct };
        let direct = Counts::of_owned(&owned, own.elements).expect("it fits");
        let pairs = |counts: &Counts| -> Vec<(usize, usize, usize)> {
            counts.flows.iter().map(|flow| (flow.from, flow.to, flow.elements)).collect()
        };
        assert_eq!((pairs(&own), own.depth), (pairs(&direct), direct.depth));
    }

    /// Broken: parts that nobody collects or spreads would be lost.
    #[test]
    fn shares_of_nobody_are_refused() {
        let refused = |shares: &[u32], n: usize| {
            let made = Algorithm::CollectSpread { shares: shares.to_vec() };
            matches!(made.check(Kind::AllReduce, n), Err(Misfit::Shares { .. }))
        };
        assert!(refused(&[1, 1, 1], 2) && refused(&[0; 4], 2) && refused(&[0, 0, 1, 1], 2));
        assert!(refused(&[1, 70_000, 1, 1], 2) && refused(&[], 0) && !refused(&[1, 0, 0, 1], 2));
    }
}
