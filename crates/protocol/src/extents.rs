//! The claimed bytes of a message: several connections bring pieces in any order, and none may come twice.

use std::fmt;

/// Limit of disjoint pieces of one message. An honest peer leaves as many holes as its slowest connection holds frames.
pub const PIECES_MAX: usize = 4096;

/// Why a piece is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentError {
    /// Some of them came before.
    Twice,
    /// There would be too many disjoint pieces.
    TooManyPieces,
}

impl fmt::Display for ExtentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice => f.write_str("some of which came before"),
            Self::TooManyPieces => write!(f, "in more than {PIECES_MAX} pieces"),
        }
    }
}

/// The claimed bytes of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// `[start, end)`, ascending; no two overlap or touch.
    claimed: Vec<(u64, u64)>,
}

impl Extents {
    /// Clears all claims.
    pub fn clear(&mut self) {
        self.claimed.clear();
    }

    /// Claims `start..end`; changes nothing when it fails.
    pub fn claim(&mut self, start: u64, end: u64) -> Result<(), ExtentError> {
        if start >= end {
            return Ok(());
        }
        let at = self.claimed.partition_point(|&(_, stop)| stop < start);
        // `at` is the first piece that ends at or after `start`: it touches the new one from the left, overlaps it, or
        // lies behind.
        let left = self.claimed.get(at).is_some_and(|&(_, stop)| stop == start);
        let next = at + usize::from(left);
        if self.claimed.get(next).is_some_and(|&(begin, _)| begin < end) {
            return Err(ExtentError::Twice);
        }
        let right = self.claimed.get(next).is_some_and(|&(begin, _)| begin == end);
        match (left, right) {
            (true, true) => {
                self.claimed[at].1 = self.claimed[next].1;
                self.claimed.remove(next);
            }
            (true, false) => self.claimed[at].1 = end,
            (false, true) => self.claimed[next].0 = start,
            (false, false) if self.claimed.len() == PIECES_MAX => return Err(ExtentError::TooManyPieces),
            (false, false) => self.claimed.insert(at, (start, end)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A piece accepted twice would be added to a gradient twice; a piece refused the first time would fail an
        /// honest job.
        #[test]
        fn every_byte_is_claimed_once(ranges in prop::collection::vec((0u64..60, 0u64..20), 0..40)) {
            let mut extents = Extents::default();
            let mut taken = [false; 80];
            for (start, len) in ranges {
                let bytes = start as usize..(start + len) as usize;
                let free = taken[bytes.clone()].iter().all(|taken| !taken);
                prop_assert_eq!(extents.claim(start, start + len).is_ok(), free);
                if free {
                    taken[bytes].fill(true);
                }
                let pieces = &extents.claimed;
                prop_assert!(pieces.windows(2).all(|pair| pair[0].1 < pair[1].0));
                let inside = |byte: u64| pieces.iter().any(|&(start, end)| (start..end).contains(&byte));
                prop_assert!((0..80).all(|byte| inside(byte) == taken[byte as usize]));
            }
        }
    }

    /// A peer that sends every second byte would fill our memory with a list.
    #[test]
    fn pieces_are_bounded() {
        let mut extents = Extents::default();
        for piece in 0..PIECES_MAX as u64 {
            assert_eq!(extents.claim(2 * piece, 2 * piece + 1), Ok(()));
        }
        assert_eq!(extents.claim(u64::MAX - 1, u64::MAX), Err(ExtentError::TooManyPieces));
        assert_eq!(extents.claim(1, 2), Ok(()));
        assert_eq!(extents.claim(u64::MAX - 1, u64::MAX), Ok(()));
    }
}
