//! The number of parts of a bucket, so that each fits into the smallest window (DeFT's section III-D).

use crate::network::PlanError;

/// Maximum number of elements of a part, as in the paper.
pub const PARTITION_ELEMENTS: u64 = 6_500_000;

/// The fewest parts that are shorter than `gap_s`, where a part takes `fixed_s` and `each_s` for each of its elements.
///
/// More parts would pay their latency for nothing. [`PlanError::Window`]: the latency alone is as long as the gap.
pub fn parts(elements: u64, fixed_s: f64, each_s: f64, gap_s: f64) -> Result<u64, PlanError> {
    if fixed_s.is_nan() || each_s.is_nan() || fixed_s >= gap_s {
        return Err(PlanError::Window("latency is as long as the window: no part of a bucket fits into it"));
    }
    let fitting = if each_s > 0.0 { (gap_s - fixed_s) / each_s } else { f64::INFINITY };
    // Shorter than the gap, not as long.
    let fitting = (fitting.ceil() - 1.0).clamp(0.0, PARTITION_ELEMENTS as f64) as u64;
    if fitting == 0 {
        return Err(PlanError::Window("smallest part, one element, is as long as the window"));
    }
    Ok(elements.div_ceil(fitting).max(1))
}
