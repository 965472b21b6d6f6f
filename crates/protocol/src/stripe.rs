//! Divides a message over several connections to the same rank.
//!
//! Each connection takes the next piece when it can send, so a faster one takes more of them. The last pieces decide
//! when the message is complete: there, each connection takes no more than its rate's share of the rest, so that all
//! end at about the same time (guided self-scheduling: Polychronopoulos and Kuck, 1987, with weights).

use std::time::Duration;

/// Smallest piece: below it, a frame costs more than it gains.
pub const PIECE_BYTES_MIN: usize = 16 * 1024;
/// Pieces end at multiples of it: whole elements of every type, whole cache lines.
const ALIGN_BYTES: usize = 64;
/// Weight of the past in the running mean of a rate.
const KEPT: f64 = 0.75;
/// A shorter interval gives a poor estimate of the rate.
const MEASURED_MIN: Duration = Duration::from_millis(1);

/// How many of `left` bytes connection `own` takes, at most `max_bytes`. `rates` has those of all connections, in any
/// unit; 0 marks an unknown rate, which counts like the fastest. `sharing`: the connections that carry these bytes.
pub fn piece_bytes(rates: &[f64], sharing: &[usize], own: usize, left: usize, max_bytes: usize) -> usize {
    let most = left.min(max_bytes);
    if sharing.len() == 1 || left <= PIECE_BYTES_MIN {
        return most;
    }
    let fastest = sharing.iter().map(|&each| rates[each]).fold(0.0, f64::max);
    let known = |rate: f64| if rate > 0.0 { rate } else { fastest.max(1.0) };
    let all: f64 = sharing.iter().map(|&each| known(rates[each])).sum();
    let share = (left as f64 * known(rates[own]) / all) as usize;
    share.max(PIECE_BYTES_MIN).next_multiple_of(ALIGN_BYTES).min(most)
}

/// The rate of one connection, measured while it has more to send than it can.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    byte_per_s: f64,
    /// When it was last full, and what it had sent by then.
    full: Option<(Duration, u64)>,
}

impl Rate {
    /// 0 while unknown.
    pub fn byte_per_s(&self) -> f64 {
        self.byte_per_s
    }

    /// The connection is full for now; it has sent `sent_bytes` in all.
    pub fn handle_full(&mut self, now: Duration, sent_bytes: u64) {
        let Some((then, before)) = self.full else {
            self.full = Some((now, sent_bytes));
            return;
        };
        let elapsed = now.saturating_sub(then);
        if elapsed < MEASURED_MIN {
            return;
        }
        let found = (sent_bytes - before) as f64 / elapsed.as_secs_f64();
        let known = self.byte_per_s > 0.0;
        self.byte_per_s = if known { KEPT * self.byte_per_s + (1.0 - KEPT) * found } else { found };
        self.full = Some((now, sent_bytes));
    }

    /// Nothing is left to send: from here on, time does not count against the connection's rate.
    pub fn handle_idle(&mut self) {
        self.full = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// When the last of `left` bytes has left, if every connection takes pieces as it becomes free.
    fn finish_s(rates: &[f64], mut left: usize, divide: impl Fn(usize, usize) -> usize) -> f64 {
        let mut free_s = vec![0.0f64; rates.len()];
        while left > 0 {
            let own = (0..rates.len()).min_by(|a, b| free_s[*a].total_cmp(&free_s[*b])).unwrap();
            let piece = divide(own, left);
            left -= piece;
            free_s[own] += piece as f64 / rates[own];
        }
        free_s.into_iter().fold(0.0, f64::max)
    }

    proptest! {
        /// A slow card would hold the last quarter megabyte of every bucket while the fast one idles.
        #[test]
        fn all_connections_end_at_about_the_same_time(rates in prop::collection::vec(1e7f64..1e9, 1..5), kib in 1usize..40_000) {
            let bytes = kib * 1024;
            let all: Vec<usize> = (0..rates.len()).collect();
            let piece = |own, left| piece_bytes(&rates, &all, own, left, 256 * 1024);
            let ideal_s = bytes as f64 / rates.iter().sum::<f64>();
            let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let last_s = if rates.len() == 1 { 0.0 } else { 3.0 * PIECE_BYTES_MIN as f64 / slowest };
            prop_assert!(finish_s(&rates, bytes, piece) <= ideal_s * 1.001 + last_s);
        }

        /// An empty piece would send empty frames for ever; a piece beyond the end would read other memory.
        #[test]
        fn a_piece_is_some_of_what_is_left(rates in prop::collection::vec(0f64..1e9, 1..5), own in 0usize..5, left in 1usize..1 << 22) {
            let all: Vec<usize> = (0..rates.len()).collect();
            let piece = piece_bytes(&rates, &all, own % rates.len(), left, 256 * 1024);
            prop_assert!(0 < piece && piece <= left.min(256 * 1024));
            prop_assert!(piece == left || piece.is_multiple_of(ALIGN_BYTES));
        }
    }

    /// Connections on other cards would keep a card's last bytes for themselves, which they never send.
    #[test]
    fn connections_that_do_not_share_take_no_part() {
        let rates = [3e8, 1e8, 1e8];
        assert_eq!(piece_bytes(&rates, &[1], 1, 1 << 17, 1 << 18), 1 << 17);
        assert_eq!(piece_bytes(&rates, &[1, 2], 1, 1 << 17, 1 << 18), 1 << 16);
        assert!(piece_bytes(&rates, &[0, 1, 2], 1, 1 << 17, 1 << 18) < 1 << 15);
    }

    /// A rate that counted idle time would call every connection of a job that mostly computes slow.
    #[test]
    fn rates_are_of_busy_times() {
        let mut rate = Rate::default();
        let at = Duration::from_millis;
        rate.handle_full(at(0), 0);
        let is = |rate: &Rate, byte_per_s: f64| (rate.byte_per_s() - byte_per_s).abs() < 1e5;
        assert!(is(&rate, 0.0));
        rate.handle_full(at(10), 1_000_000);
        assert!(is(&rate, 1e8));
        rate.handle_idle();
        rate.handle_full(at(5000), 1_100_000);
        rate.handle_full(at(5010), 2_100_000);
        assert!(is(&rate, 1e8));
        for step in 1..40 {
            rate.handle_full(at(5010 + 10 * step), 2_100_000 + 500_000 * step);
        }
        assert!(is(&rate, 5e7));
    }
}
