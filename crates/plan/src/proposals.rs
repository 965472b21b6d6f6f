//! The routes that a search may use: every algorithm that fits, owners of several kinds, orders and codecs.

use crate::by_links::by_links;
use crate::by_rates::{by_rates, one_way_bit_per_s};
use crate::error::PlanError;
use crate::exchange::{Exchange, Gathered, Rows};
use crate::found::found;
use crate::proposal::{Order, Proposal, Setting};
use crate::shape::greatest_common_divisor;
use hocket_algorithms::{Algorithm, Group, Kind, Owned, Via, fitting};
use hocket_network::Network;
use std::collections::BTreeSet;

/// With more ranks, messages from everyone to everyone are not considered: they take seconds to count, and longer to run.
const QUADRATIC_RANKS_MAX: usize = 256;
/// With more ranks, no single rank is considered as the only owner.
const SINGLE_OWNERS_MAX: usize = 16;
/// Shares of owners are multiples of this part of the largest one.
const SHARES: f64 = 60.0;
/// That halve an interval until its ends are neighbours.
const HALVINGS: u32 = 64;
/// Ranks whose own links differ by less are equally fast.
const EQUAL: f64 = 0.95;

/// All proposals, simplest first, none twice.
///
/// `dense`: bytes of an element, and how many elements, of most gradients that travel as they are.
pub fn proposals(
    network: &Network,
    setting: &Setting,
    sparse: bool,
    dense: (f64, f64),
) -> Result<Vec<Proposal>, PlanError> {
    if setting.racks.len() != network.world() || setting.workers > network.world() || setting.workers == 0 {
        return Err(PlanError::Network("racks or workers are not of its ranks"));
    }
    let (item_bytes, elements) = dense;
    let mut plain = all_reduces(network, setting);
    if setting.workers > 1 {
        if setting.admits("owned") {
            plain.extend(owners(network, setting));
            plain.extend(by_rates(network, setting));
        }
        if setting.admits("trees") {
            plain.extend(by_links(network, setting, &plain, item_bytes)?);
        }
        if setting.searched {
            plain.extend(found(network, setting, &plain, item_bytes, elements)?);
        }
        if sparse {
            plain.extend(gathers(setting));
        }
    }
    let mut found = Vec::new();
    for codec in std::iter::once(None).chain((0..setting.codecs.len()).map(Some)) {
        for each in &plain {
            if let Some(each) = encoded(each, codec, setting)? {
                found.push(each);
            }
        }
    }
    Ok(found)
}

/// A proposal with a codec on the pairs that it uses; none where it uses none.
fn encoded(plain: &Proposal, codec: Option<usize>, setting: &Setting) -> Result<Option<Proposal>, PlanError> {
    let Some(at) = codec else { return Ok(Some(plain.clone())) };
    if matches!(plain.exchange, Exchange::Gathered(_)) {
        // Numbers of rows must stay as they are.
        return Ok(None);
    }
    let sent = plain.exchange.sent(plain.order.len())?;
    let pairs = sent.counts.flows.iter().map(|flow| (plain.order[flow.from], plain.order[flow.to]));
    let used: BTreeSet<(u32, u32)> = pairs.filter(|pair| setting.codecs[at].links.contains(pair)).collect();
    let with = Proposal { codec, codec_links: used.into_iter().collect(), ..plain.clone() };
    Ok((!with.codec_links.is_empty()).then_some(with))
}

fn all_reduces(network: &Network, setting: &Setting) -> Vec<Proposal> {
    let mut fits = Vec::new();
    for order in &setting.orders {
        let hosts: Vec<u32> = order.ranks.iter().map(|&rank| network.host(rank)).collect();
        let racks: Vec<u32> = order.ranks.iter().map(|&rank| setting.racks[rank as usize]).collect();
        for fit in fitting(Kind::AllReduce, &Group { hosts: &hosts, racks: &racks }) {
            if setting.admits(fit.measured_as) && !fits.contains(&fit) {
                fits.push(fit);
            }
        }
    }
    let many = setting.workers > QUADRATIC_RANKS_MAX;
    let mut found: Vec<Proposal> = Vec::new();
    for fit in fits {
        if many && matches!(fit.algorithm, Algorithm::Direct | Algorithm::InPlace) {
            continue;
        }
        let in_place = fit.algorithm == Algorithm::InPlace;
        for order in &setting.orders {
            let meant = order.algorithm.as_ref().is_none_or(|algorithm| *algorithm == fit.algorithm);
            let proposal = Proposal {
                exchange: Exchange::AllReduce(fit.algorithm.clone()),
                order: order.ranks.clone(),
                rule: order.rule.clone(),
                codec: None,
                codec_links: Vec::new(),
                chunk_bytes: if in_place { setting.shared_chunk_bytes } else { setting.chunk_bytes },
                measured_as: fit.measured_as,
            };
            // Everybody with everybody is the same in any order.
            let anyhow = matches!(fit.algorithm, Algorithm::Direct | Algorithm::InPlace);
            let known = found.iter().any(|each| each.exchange == proposal.exchange && anyhow);
            if meant && !known {
                found.push(proposal);
            }
        }
    }
    found
}

/// Owners by speed, leaders of racks and of hosts, single ranks, and ranks that do not train.
fn owners(network: &Network, setting: &Setting) -> Vec<Proposal> {
    let workers = setting.workers;
    let remote = (0..workers as u32).any(|rank| network.is_remote(0, rank));
    if workers > QUADRATIC_RANKS_MAX || !remote {
        return Vec::new();
    }
    let speeds = own_speeds(network);
    let racks = blocks(workers, |rank| setting.racks[rank]);
    let hosts = blocks_of_hosts(network, workers);
    // Every rank talks to owners by itself: any order will do.
    let direct = |shares: Vec<u32>, rule: &str| {
        let order = (0..shares.len() as u32).collect();
        proposal(
            Exchange::Owned(Owned { shares, workers, via: Via::Direct }),
            order,
            rule.to_owned(),
            setting,
        )
    };
    let equal = |ranks: &[u32]| -> Vec<u32> {
        (0..workers as u32).map(|rank| u32::from(ranks.contains(&rank))).collect()
    };
    let mut sets: Vec<(&str, Vec<u32>)> = Vec::new();
    for class in speed_classes(&speeds[..workers]) {
        sets.push(("fastest hosts", equal(&class)));
    }
    sets.push(("rack leaders", equal(&racks.iter().map(|block| block[0]).collect::<Vec<u32>>())));
    if workers <= SINGLE_OWNERS_MAX {
        sets.extend((0..workers as u32).map(|rank| ("one", equal(&[rank]))));
    }
    sets.extend(filled(&speeds[..workers], workers).map(|shares| ("hosts by bandwidth", shares)));
    let mut found: Vec<Proposal> = Vec::new();
    for (rule, shares) in sets {
        let proposal = direct(shares, rule);
        let Exchange::Owned(owned) = &proposal.exchange else { continue };
        // Equal parts of all are the direct exchange.
        let all_equal = owned.shares.iter().all(|&share| share == owned.shares[0]);
        if !all_equal && found.iter().all(|each| each.exchange != proposal.exchange) {
            found.push(proposal);
        }
    }
    if workers < speeds.len() {
        let idle = (0..speeds.len()).map(|rank| u32::from(rank >= workers));
        found.push(direct(idle.collect(), "idle hosts"));
        found.extend(filled(&speeds, workers).map(|shares| direct(shares, "hosts by bandwidth")));
    }
    for (leaders, blocks) in [("rack leaders", &racks), ("host leaders", &hosts)] {
        if 1 < blocks.len() && blocks.len() < workers {
            for each in stationed(network, blocks, leaders, setting) {
                let alike = |known: &Proposal| known.exchange == each.exchange && known.order == each.order;
                if !found.iter().any(alike) {
                    found.push(each);
                }
            }
        }
    }
    found
}

/// Owners to whom the workers of a block, which is a rack or a host, push and pull through its first.
fn stationed(network: &Network, blocks: &[Vec<u32>], leaders: &str, setting: &Setting) -> Vec<Proposal> {
    let (workers, world) = (setting.workers, network.world());
    let order = blocks.concat();
    let owned = |shares: Vec<u32>, order: Vec<u32>, rule: &str| {
        let via = Via::Stations(blocks.iter().map(|block| block.len() as u32).collect());
        proposal(Exchange::Owned(Owned { shares, workers, via }), order, rule.to_owned(), setting)
    };
    let led = |shares: &[u32]| -> Vec<u32> {
        let of = |(block, &share): (&Vec<u32>, &u32)| {
            (0..block.len()).map(move |at| if at == 0 { share } else { 0 })
        };
        blocks.iter().zip(shares).flat_map(of).collect()
    };
    let equal = vec![1; blocks.len()];
    let mut found = vec![owned(led(&equal), order.clone(), leaders)];
    let speeds: Vec<f64> = blocks.iter().map(|block| own_bit_per_s(network, block)).collect();
    if let Some(shares) = filled(&speeds, blocks.len()).filter(|shares| *shares != equal) {
        found.push(owned(led(&shares), order.clone(), leaders));
    }
    found.push(owned(vec![1; workers], order.clone(), "all"));
    if workers < world {
        let order = [order, (workers as u32..world as u32).collect()].concat();
        let idle = order.iter().map(|&rank| u32::from(rank as usize >= workers)).collect();
        found.push(owned(idle, order, "idle hosts"));
    }
    found
}

/// Shares with which the traffic of all owners takes equally long, in least whole numbers; none where shares change nothing.
///
/// Of a gradient of length 1, a worker among n that owns s sends 1 − s and gets it back, and serves n − 1 others: 1 + s(n − 2) each
/// way; an owner that does not train carries s · n. So with time T a worker of rate r can own (T · r − 1) / (n − 2), and one that does
/// not train T · r / n. T is the least for which these are the whole gradient.
fn filled(speeds: &[f64], workers: usize) -> Option<Vec<u32>> {
    let fastest = speeds[..workers].iter().copied().fold(0.0, f64::max);
    if workers < 3 || !fastest.is_finite() {
        return None;
    }
    let n = workers as f64;
    let share = |time: f64, (rank, speed): (usize, &f64)| {
        if rank < workers { ((time * speed - 1.0) / (n - 2.0)).max(0.0) } else { time * speed / n }
    };
    let shares = |time: f64| speeds.iter().enumerate().map(move |each| share(time, each));
    // The fastest worker alone could own everything in that time.
    let (mut short, mut enough) = (0.0, (n - 1.0) / fastest);
    for _ in 0..HALVINGS {
        let time = f64::midpoint(short, enough);
        if shares(time).sum::<f64>() < 1.0 {
            short = time;
        } else {
            enough = time;
        }
    }
    let most = shares(enough).fold(0.0, f64::max);
    let whole: Vec<u32> = shares(enough).map(|share| (SHARES * share / most).round() as u32).collect();
    let divisor = whole.iter().copied().fold(0, greatest_common_divisor);
    Some(whole.iter().map(|share| share / divisor).collect())
}

fn gathers(setting: &Setting) -> Vec<Proposal> {
    let orders = setting.orders.iter().filter(|order| order.algorithm.is_none());
    // Of which rows, classes say.
    let any = Rows { density: 1.0, row_bytes: 1.0, table: false };
    let rows = |algorithm| Exchange::Gathered(Gathered { algorithm, rows: any });
    let ring =
        |order: &Order| proposal(rows(Algorithm::Ring), order.ranks.clone(), order.rule.clone(), setting);
    let mut found: Vec<Proposal> = orders.map(ring).collect();
    if setting.workers <= QUADRATIC_RANKS_MAX {
        let order = (0..setting.workers as u32).collect();
        found.push(proposal(rows(Algorithm::Direct), order, "given".to_owned(), setting));
    }
    found
}

fn proposal(exchange: Exchange, order: Vec<u32>, rule: String, setting: &Setting) -> Proposal {
    let chunk_bytes = setting.chunk_bytes;
    let direct = matches!(&exchange, Exchange::Owned(owned) if owned.via == Via::Direct);
    let measured_as = if direct { "direct" } else { "" };
    Proposal { exchange, order, rule, codec: None, codec_links: Vec::new(), chunk_bytes, measured_as }
}

/// The first ranks by what they have in common, as it first appears.
fn blocks(workers: usize, of: impl Fn(usize) -> u32) -> Vec<Vec<u32>> {
    let mut blocks: Vec<(u32, Vec<u32>)> = Vec::new();
    for rank in 0..workers {
        let common = of(rank);
        match blocks.iter_mut().find(|(known, _)| *known == common) {
            Some((_, block)) => block.push(rank as u32),
            None => blocks.push((common, vec![rank as u32])),
        }
    }
    blocks.into_iter().map(|(_, block)| block).collect()
}

/// Workers of each host; none where ranks are not numbered host by host: no order has them next to one another then.
fn blocks_of_hosts(network: &Network, workers: usize) -> Vec<Vec<u32>> {
    let found = blocks(workers, |rank| network.host(rank as u32));
    if found.concat().is_sorted() { found } else { Vec::new() }
}

/// Ranks that are at least about as fast as one of them, for each that is faster than the slowest; fewest first.
fn speed_classes(speeds: &[f64]) -> Vec<Vec<u32>> {
    let mut descending = speeds.to_vec();
    descending.sort_by(|one, other| other.total_cmp(one));
    let steps = descending.windows(2).filter(|two| two[1] < EQUAL * two[0]);
    let faster = |least: f64| -> Vec<u32> {
        (0..speeds.len() as u32).filter(|&rank| speeds[rank as usize] >= least).collect()
    };
    steps.map(|two| faster(two[0])).collect()
}

/// By rank: its part of what its host can carry to and from others.
fn own_speeds(network: &Network) -> Vec<f64> {
    let ranks: Vec<u32> = (0..network.world() as u32).collect();
    let speed = |&rank: &u32| {
        let host: Vec<u32> = ranks.iter().copied().filter(|&each| !network.is_remote(rank, each)).collect();
        own_bit_per_s(network, &host) / host.len() as f64
    };
    ranks.iter().map(speed).collect()
}

/// What ranks can carry together to all others and from them, whichever is less.
fn own_bit_per_s(network: &Network, ranks: &[u32]) -> f64 {
    one_way_bit_per_s(network, ranks, true).min(one_way_bit_per_s(network, ranks, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least time with owners among the `k` fastest, by hand: `Σ (T · r − 1) = n − 2` for them.
    fn least_time(speeds: &[f64]) -> f64 {
        let mut descending = speeds.to_vec();
        descending.sort_by(|one, other| other.total_cmp(one));
        let all = 1..=speeds.len();
        let among = |k: usize| (speeds.len() + k - 2) as f64 / descending[..k].iter().sum::<f64>();
        all.map(among).fold(f64::INFINITY, f64::min).max(1.0 / descending[speeds.len() - 1])
    }

    /// Broken: a fast host would wait for a slow one that owns too much, or a slow one own what the others have room for.
    #[test]
    fn owners_take_equally_long() {
        assert_eq!(filled(&[1e9, 1e9, 8e8, 8e8], 4), Some(vec![2, 2, 1, 1]));
        // Half as fast: their own gradients up and the values down are all that they have time for.
        assert_eq!(filled(&[1e9, 1e9, 5e8, 5e8], 4), Some(vec![1, 1, 0, 0]));
        assert_eq!(filled(&[1e9; 5], 5), Some(vec![1; 5]));
        // Of four workers and two helpers the helpers own 0.6.
        assert_eq!(filled(&[2e8; 6], 4), Some(vec![1, 1, 1, 1, 3, 3]));
        assert_eq!(filled(&[1e9, 1e8], 2), None);
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..500 {
            let speeds: Vec<f64> = (0..random.usize(3..12)).map(|_| 0.1 + random.f64()).collect();
            let shares = filled(&speeds, speeds.len()).expect("shares");
            let sum = f64::from(shares.iter().sum::<u32>());
            let carried = |share: &u32| 1.0 + f64::from(*share) / sum * (speeds.len() - 2) as f64;
            let times = shares.iter().zip(&speeds).map(|(share, speed)| carried(share) / speed);
            let time = times.fold(0.0, f64::max);
            assert!(time <= 1.06 * least_time(&speeds), "{speeds:?} {shares:?}");
        }
    }
}
