//! How many trees out of each rank, and in which time: rates become the number of trees that each edge can carry.

use super::graph::{Graph, Ratio, divisor};

/// Numbers of trees that are tried, if the optimum takes more.
const TREES_MAX: u64 = 24;
/// Part of the optimum that is as good as it.
const LOSS: f64 = 0.005;
/// With fewer trees from each rank, few of its links carry much and others nothing; links are shared better if loads are alike.
const TREES_MIN: u64 = 4;
/// That halve an interval of times until rates are the same whole numbers.
const HALVINGS: u32 = 30;

/// Capacities in trees, and how many of them go out of each rank in that time.
#[derive(Clone, Debug)]
pub struct Scaled {
    pub graph: Graph,
    pub trees: u64,
    /// Of one unit of the graph's rates, for all trees.
    pub time: f64,
}

impl Scaled {
    /// Time in which every rank sends one unit to all others.
    pub fn taken(&self) -> f64 {
        self.time / self.trees as f64
    }
}

/// With the fewest trees that are as good as the optimum; with the best number of those allowed, if it takes more.
pub fn scaled(graph: &Graph, optimum: Ratio) -> Scaled {
    let common = graph.capacities.values().fold(optimum.under, |common, &capacity| divisor(common, capacity));
    let times = TREES_MIN.div_ceil(optimum.under / common);
    let exact = Scaled {
        graph: graph.scaled(|capacity| capacity / common * optimum.over * times),
        trees: optimum.under / common * times,
        time: (optimum.over * times) as f64 / common as f64,
    };
    if exact.trees < 2 * TREES_MIN {
        return exact;
    }
    let (mut best, mut least) = (None, f64::INFINITY);
    for trees in TREES_MIN..=TREES_MAX.min(exact.trees - 1) {
        let least_time = optimum.value() * trees as f64;
        if let Some(found) =
            within(graph, trees, least_time, (least * (1.0 - LOSS)).min(2.0 * optimum.value()))
        {
            least = found.taken();
            best = Some(found);
        }
        if least <= optimum.value() * (1.0 + LOSS) {
            break;
        }
    }
    match best {
        Some(best) if exact.trees > TREES_MAX || best.taken() <= optimum.value() * (1.0 + LOSS) => best,
        _ => exact,
    }
}

/// The least time from the optimum's on in which so many trees fit; none if each takes `most` or more.
fn within(graph: &Graph, trees: u64, least_time: f64, most: f64) -> Option<Scaled> {
    let at = |time: f64| graph.scaled(|capacity| (capacity as f64 * time * (1.0 + 1e-12)) as u64);
    let (mut short, mut enough) = (least_time, most * trees as f64);
    if !at(enough).admits(trees) {
        return None;
    }
    if at(short).admits(trees) {
        enough = short;
    }
    for _ in 0..HALVINGS {
        if enough - short <= short * LOSS / 8.0 {
            break;
        }
        let time = f64::midpoint(short, enough);
        if at(time).admits(trees) {
            enough = time;
        } else {
            short = time;
        }
    }
    Some(Scaled { graph: at(enough), trees, time: enough })
}
