//! What no plan can beat, whatever its routes: how long the bytes take that must leave sets of hosts and reach them.
//!
//! Divide the ranks into parts of which `k` have gradients, and follow one element. A part *knows* it once what its ranks hold together
//! contains the gradients of all parts; let `p` be the first part that does. Before, each other part with gradients has sent a message
//! to another part; afterwards, each of them receives one, because it did not know before. So at least `2 (k − 1)` messages of the
//! element pass between parts (as letters do in the gossip problem, Harary and Schwenk 1974), and every part with gradients sends one
//! and receives one. Each has the length of the element on the wire, since sums are no shorter than what they are of. What parts can
//! carry together therefore bounds the time of all, and what a part can carry that of its own message.
//!
//! Knows nothing of algorithms.

use hocket_network::Network;

/// Halvings of the interval of the best partition's time: to a millionth of it.
const HALVINGS: u32 = 20;

/// Seconds that each byte of all gradients takes at least; 0 on one host. The first `workers` ranks have gradients.
pub fn least_s_per_byte(network: &Network, racks: &[u32], workers: usize) -> f64 {
    let hosts = blocks(network.world(), |rank| network.host(rank));
    if hosts.len() < 2 {
        return 0.0;
    }
    let racks = blocks(network.world(), |rank| racks[rank as usize]);
    let mut least_s = 0.0_f64;
    for outward in [true, false] {
        let trains = |rank: u32| (rank as usize) < workers;
        let part = |ranks: &[u32]| Part {
            trains: ranks.iter().any(|&rank| trains(rank)),
            // A part with all gradients need not send them to anyone.
            apart: (0..workers as u32).any(|rank| !ranks.contains(&rank)),
            bit_per_s: between(network, ranks, outward),
        };
        // Each rack as one part, or its hosts.
        let choices: Vec<[Vec<Part>; 2]> = racks
            .iter()
            .map(|rack| {
                let own = hosts.iter().filter(|host| host.iter().any(|rank| rack.contains(rank)));
                let whole = if rack.len() < network.world() { vec![part(rack)] } else { Vec::new() };
                let single: Vec<Part> = own.map(|host| part(host)).collect();
                [if whole.is_empty() { single.clone() } else { whole }, single]
            })
            .collect();
        let alone = choices.iter().flatten().flatten().filter(|part| part.trains && part.apart);
        let alone = alone.map(|part| 8.0 / part.bit_per_s);
        least_s = least_s.max(alone.fold(0.0, f64::max)).max(together_s(&choices));
    }
    if trains_on_one(&hosts, workers) { 0.0 } else { least_s }
}

/// Ranks: whether some of them have gradients, and some others; and what they can carry to all others or from them.
#[derive(Clone, Copy)]
struct Part {
    trains: bool,
    apart: bool,
    bit_per_s: f64,
}

fn trains_on_one(hosts: &[Vec<u32>], workers: usize) -> bool {
    hosts.iter().filter(|host| host.iter().any(|&rank| (rank as usize) < workers)).count() < 2
}

/// The most that `2 (k − 1) / Σ rates` is over all choices, one for each rack: whether some choice has more than a time is a sum of
/// choices that do not depend on one another.
fn together_s(choices: &[[Vec<Part>; 2]]) -> f64 {
    let exceeds = |time_s: f64| {
        let gain = |parts: &Vec<Part>| -> f64 {
            let of = |part: &Part| 16.0 * f64::from(u8::from(part.trains)) - time_s * part.bit_per_s;
            parts.iter().map(of).sum()
        };
        let best = choices.iter().map(|[one, other]| gain(one).max(gain(other)));
        best.sum::<f64>() > 16.0
    };
    let (mut low, mut high) = (0.0, 1.0);
    while exceeds(high) && high < 1e6 {
        high *= 2.0;
    }
    // Rates are up to 1e12 bit/s: times of a byte are far below a second.
    while high > 1e-18 && !exceeds(high / 2.0) {
        high /= 2.0;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if exceeds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// What ranks can carry to all others, or from them: the rate of a link that all of it crosses, or what each of their hosts can carry
/// there, which is that of its own common link or of its paths together.
fn between(network: &Network, ranks: &[u32], outward: bool) -> f64 {
    let others: Vec<u32> = (0..network.world() as u32).filter(|other| !ranks.contains(other)).collect();
    let path = |rank: u32, other: u32| {
        if outward { network.path(rank, other) } else { network.path(other, rank) }
    };
    let narrowest = |rank: u32, other: u32| {
        path(rank, other).iter().map(|&link| network.bit_per_s(link)).fold(f64::INFINITY, f64::min)
    };
    let common = |ranks: &[u32]| -> f64 {
        let mut crossed = vec![0_usize; network.links().len()];
        for (&rank, &other) in ranks.iter().flat_map(|rank| others.iter().map(move |other| (rank, other))) {
            for &link in path(rank, other) {
                crossed[link as usize] += 1;
            }
        }
        let pairs = ranks.len() * others.len();
        let all = (0..crossed.len()).filter(|&link| crossed[link] == pairs);
        all.map(|link| network.bit_per_s(link as u32)).fold(f64::INFINITY, f64::min)
    };
    // Ranks of one host have the same paths.
    let first_of = |ranks: &[u32]| -> Vec<u32> {
        let mut seen = Vec::new();
        let fresh = |&rank: &u32| {
            let host = network.host(rank);
            let known = seen.contains(&host);
            seen.push(host);
            !known
        };
        ranks.iter().copied().filter(fresh).collect()
    };
    let there = first_of(&others);
    let own = first_of(ranks).into_iter().map(|rank| {
        let paths: f64 = there.iter().map(|&other| narrowest(rank, other)).sum();
        common(&[rank]).min(paths)
    });
    common(ranks).min(own.sum())
}

/// Ranks by what they have in common.
fn blocks(world: usize, of: impl Fn(u32) -> u32) -> Vec<Vec<u32>> {
    let mut blocks: Vec<(u32, Vec<u32>)> = Vec::new();
    for rank in 0..world as u32 {
        let common = of(rank);
        match blocks.iter_mut().find(|(known, _)| *known == common) {
            Some((_, block)) => block.push(rank),
            None => blocks.push((common, vec![rank])),
        }
    }
    blocks.into_iter().map(|(_, block)| block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::in_racks;

    /// Broken: plans would be said to be further from the best than they are, or nearer; or nobody could attain what is asked.
    #[test]
    fn hosts_and_racks_carry_their_own_and_what_passes_between_all() {
        let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-5, "{found} {wanted}");
        let of = |rates: &[f64], racks: &[u32], trunk, workers| {
            // A trunk of each rack there may be.
            least_s_per_byte(&in_racks(rates, racks, &vec![trunk; rates.len()], 0.0), racks, workers)
        };
        // A ring of four: 2 (n - 1) / n.
        near(of(&[1e9; 4], &[0; 4], 1e12, 4), 1.5 * 8e-9);
        // A host that is slow sends its own and receives the sum.
        near(of(&[1e8, 1e9, 1e9, 1e9], &[0; 4], 1e12, 4), 8e-8);
        // Two racks exchange their sums; four messages pass between three.
        near(of(&[1e9; 4], &[0, 0, 1, 1], 1e8, 4), 8e-8);
        near(of(&[1e9; 6], &[0, 0, 1, 1, 2, 2], 1e8, 6), 4.0 / 3.0 * 8e-8);
        // Who only helps may be behind a trunk that nobody needs.
        near(of(&[1e9; 3], &[0, 0, 1], 1e6, 2), 8e-9);
        assert_eq!(of(&[1e9; 2], &[0, 1], 1e8, 1).to_bits(), 0.0_f64.to_bits());
    }
}
