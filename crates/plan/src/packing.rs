//! The least time of the busiest resource, over all mixes of some routes: a packing problem, min T: `Σ x_o · load_o ≤ T`, `Σ x_o = 1`.
//!
//! By its dual, `min_o weights · load_o ≤ T` for any weights of the resources whose sum is 1. The weights come from multiplicative
//! updates (Garg and Könemann 2007); the bound holds for any weights, and is as tight as they are good.

/// Change of a weight in one update.
const STEP: f64 = 0.1;
/// Updates: more change the bound by less than a percent.
const UPDATES_MAX: usize = 20_000;
/// Updates without a better bound after which it counts as the best.
const PATIENCE: usize = 2_000;

/// Weights under which even the best mix takes long, and that mix.
pub struct Packed {
    /// By resource; their sum is 1.
    pub weights: Vec<f64>,
    /// The least weighed load of a route: no mix takes less.
    pub least_s: f64,
    /// By route; their sum is 1.
    pub shares: Vec<f64>,
}

/// Packs routes whose loads are those seconds of each resource. With more operations than that, there are fewer updates.
pub fn packed(loads: &[Vec<f64>], operations_max: usize) -> Packed {
    let resources = loads.first().map_or(0, Vec::len);
    let even = 1.0 / resources.max(1) as f64;
    let (mut weights, mut best) = (vec![even; resources], vec![even; resources]);
    let (mut best_s, mut since) = (f64::NEG_INFINITY, 0);
    let mut taken = vec![0.0; loads.len()];
    let widths: Vec<f64> = loads.iter().map(|load| load.iter().copied().fold(0.0, f64::max)).collect();
    let updates = UPDATES_MAX.min(operations_max / (resources * loads.len()).max(1)).max(1);
    for _ in 0..updates {
        let priced = loads.iter().map(|load| weighed(&weights, load));
        let Some((at, cost_s)) = priced.enumerate().min_by(|one, other| one.1.total_cmp(&other.1)) else {
            break;
        };
        since += 1;
        if cost_s > best_s * (1.0 + 1e-4) || best_s <= 0.0 {
            (best_s, since) = (cost_s, 0);
            best.clone_from(&weights);
        }
        if widths[at] <= 0.0 || since > PATIENCE {
            // Nothing is sent, or the weights cycle.
            taken[at] += f64::from(u8::from(widths[at] <= 0.0));
            break;
        }
        taken[at] += 1.0 / widths[at];
        let mut sum = 0.0;
        for (weight, load) in weights.iter_mut().zip(&loads[at]) {
            *weight *= 1.0 + STEP * load / widths[at];
            sum += *weight;
        }
        for weight in &mut weights {
            *weight /= sum;
        }
    }
    let all: f64 = taken.iter().sum();
    for share in &mut taken {
        *share /= all;
    }
    Packed { weights: best, least_s: best_s, shares: taken }
}

/// A route's load by these weights.
pub fn weighed(weights: &[f64], load: &[f64]) -> f64 {
    weights.iter().zip(load).map(|(weight, load)| weight * load).sum()
}
