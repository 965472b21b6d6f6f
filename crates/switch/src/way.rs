//! Loss, latency and jitter of packets from one host to another, before they share links with others. Each ordered pair
//! has a random seed of its own, so that traffic of other pairs changes nothing.

use crate::Nanos;
use crate::network::WayRule;
use fastrand::Rng;

/// One ordered pair of hosts.
#[derive(Debug)]
pub struct Way {
    rule: WayRule,
    draws: Rng,
    reorder: bool,
    last: Nanos,
}

impl Way {
    /// `number` distinguishes the pairs of a network.
    pub fn new(rule: WayRule, seed: u64, number: u64, reorder: bool) -> Self {
        // Neighbouring seeds of neighbouring pairs must not give similar draws: one generator seeds the other.
        let draws = Rng::with_seed(Rng::with_seed(seed).u64(..) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { rule, draws, reorder, last: 0 }
    }

    /// When a packet that arrives now has passed; `None`: it is lost.
    pub fn delay(&mut self, now: Nanos) -> Option<Nanos> {
        if self.rule.loss > 0.0 && self.draws.f64() < self.rule.loss {
            return None;
        }
        // Exponential: never early, mostly little, seldom much, as queues of other people's traffic are.
        let jitter_s =
            if self.rule.jitter_s > 0.0 { -(1.0 - self.draws.f64()).ln() * self.rule.jitter_s } else { 0.0 };
        let through = now + ((self.rule.latency_s + jitter_s) * 1e9) as Nanos;
        self.last = self.last.max(through);
        Some(if self.reorder { through } else { self.last })
    }

    /// Latency of every packet, without jitter.
    pub fn latency(&self) -> Nanos {
        (self.rule.latency_s * 1e9) as Nanos
    }

    /// Indices of the links that follow, in order.
    pub fn links(&self) -> &[usize] {
        &self.rule.links
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn way(latency_s: f64, jitter_s: f64, loss: f64, seed: u64, reorder: bool) -> Way {
        Way::new(WayRule { links: vec![], latency_s, jitter_s, loss }, seed, 3, reorder)
    }

    proptest! {
        /// Packets would come early, out of order, or otherwise in a second run with the same seed.
        #[test]
        fn latency_is_a_floor_and_order_is_kept(seed: u64, latency_us in 0..100_000_u64, jitter_us in 0..10_000_u64) {
            let (latency_s, jitter_s) = (latency_us as f64 * 1e-6, jitter_us as f64 * 1e-6);
            let mut one = way(latency_s, jitter_s, 0.0, seed, false);
            let mut same = way(latency_s, jitter_s, 0.0, seed, false);
            let mut last = 0;
            for packet in 0..100 {
                let now = packet * 1000;
                let through = one.delay(now).unwrap();
                prop_assert!(through + 1 >= now + latency_us * 1000);
                prop_assert!(through >= last);
                prop_assert_eq!(same.delay(now).unwrap(), through);
                last = through;
            }
        }

        /// A loss of 1 % would be another share of the packets.
        #[test]
        fn loss_is_the_share_that_was_asked_for(seed: u64, loss in 0.0..0.5_f64) {
            let mut lossy = way(0.0, 0.0, loss, seed, false);
            let packets = 20_000;
            let lost = (0..packets).filter(|_| lossy.delay(0).is_none()).count() as f64;
            let deviation = (f64::from(packets) * loss * (1.0 - loss)).sqrt();
            prop_assert!((lost - f64::from(packets) * loss).abs() <= 6.0 * deviation + 1.0);
        }
    }

    /// Jitter would be of another size than the file says.
    #[test]
    fn jitter_has_its_mean() {
        let mut jittery = way(1e-3, 2e-3, 0.0, 7, true);
        let packets = 50_000_u64;
        let sum: u64 = (0..packets).map(|_| jittery.delay(0).unwrap()).sum();
        let mean_ms = sum as f64 / packets as f64 / 1e6;
        assert!((mean_ms - 3.0).abs() < 0.05, "{mean_ms} ms");
    }

    /// A program that must tolerate reordering could not be tested.
    #[test]
    fn with_reorder_jitter_overtakes() {
        let mut loose = way(0.0, 1e-3, 0.0, 7, true);
        let times: Vec<_> = (0..100).map(|now| loose.delay(now).unwrap()).collect();
        assert!(!times.is_sorted());
    }
}
