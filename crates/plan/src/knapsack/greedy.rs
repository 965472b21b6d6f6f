//! DeFT's greedy for several knapsacks (its section III-C, Problem 2).

use super::Item;

/// Fills links from the one that carries least in the window, the longest bucket first, each where it fits; O(items ·
/// links).
///
/// A bucket's length is its profit. Release dates are ignored, as in the paper. By item: its link.
pub fn greedy(items: &[Item], capacity: &[u32]) -> Vec<Option<usize>> {
    // In buckets: a link twice as slow holds half as many in the same time.
    let total = |link: usize| items.iter().map(|item| f64::from(item.busy[link])).sum::<f64>().max(1.0);
    let mut links: Vec<(f64, usize)> =
        capacity.iter().enumerate().map(|(link, &ticks)| (f64::from(ticks) / total(link), link)).collect();
    links.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
    let mut longest: Vec<usize> = (0..items.len()).collect();
    longest.sort_by_key(|&at| (std::cmp::Reverse(items[at].profit), at));
    let mut chosen = vec![None; items.len()];
    for (_, link) in links {
        let mut left = capacity[link];
        for &at in &longest {
            if chosen[at].is_none() && items[at].busy[link] <= left {
                left -= items[at].busy[link];
                chosen[at] = Some(link);
            }
        }
    }
    chosen
}
