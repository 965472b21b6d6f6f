//! How gradients are put into buckets, by a rule that is data.

use serde::Deserialize;

/// When a bucket closes, in bytes, elements or gradients: whatever sizes are given in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Size that a bucket has reached when it closes; none: it never does; 0: each gradient is alone.
    pub size: Option<f64>,
    /// Size at which the first bucket closes, if that is less.
    pub first: Option<f64>,
}

/// Buckets of gradients, given in their order by kind and size, as their indices. One bucket of each kind is open at a time. Closed
/// ones come first, the others in the order in which they were opened.
pub fn partition<K: PartialEq>(gradients: impl IntoIterator<Item = (K, f64)>, rule: Rule) -> Vec<Vec<usize>> {
    let mut closed = Vec::new();
    let mut opened: Vec<(K, f64, Vec<usize>)> = Vec::new();
    for (index, (kind, size)) in gradients.into_iter().enumerate() {
        let at = opened.iter().position(|(open, ..)| *open == kind).unwrap_or_else(|| {
            opened.push((kind, 0.0, Vec::new()));
            opened.len() - 1
        });
        let (_, held, bucket) = &mut opened[at];
        bucket.push(index);
        *held += size;
        let first = rule.first.filter(|_| closed.is_empty()).unwrap_or(f64::INFINITY);
        if rule.size.is_some_and(|size| *held >= size.min(first)) {
            closed.push(opened.remove(at).2);
        }
    }
    closed.extend(opened.into_iter().map(|(_, _, bucket)| bucket));
    closed
}
