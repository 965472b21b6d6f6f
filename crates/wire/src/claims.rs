//! Dynamic scheduling of a reduction among the ranks of one host: a free rank claims the next block.
//!
//! With equal parts, all ranks wait for the one that the scheduler serves last. With 4 ranks on 2 cores, three ranks
//! share a core now and then, and an all-reduce of 25 MB then took 1.4 times as long as with two on each.
//! (Self-scheduling of loops: Polychronopoulos and Kuck, 1987.)

use crate::memory::Region;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Memory for the claims of one reduction: a cache line of its own.
pub const CLAIMS_BYTES: usize = 64;

/// Claims per member if all are equally fast; members wait for the last ones.
const CLAIMS_PER_MEMBER: usize = 8;
/// Blocks are multiples of this, so that they start at cache lines and rarely share a page.
const GRAIN_BYTES: usize = 64 * 1024;
/// A claim moves a cache line between cores, which costs about 0.5 µs; this many bytes take 50 µs.
const BLOCK_BYTES_MAX: usize = 256 * 1024;

/// Iterates over the blocks that this rank claims. Members agree on `bytes` and on their number.
#[derive(Debug)]
pub struct Claims {
    word: Region,
    bytes: usize,
    block: usize,
}

impl Claims {
    /// Claims on `bytes` among `members`, through the word at the start of `memory`; `None` where no word can lie
    /// there.
    pub fn new(memory: Region, bytes: usize, members: usize) -> Option<Self> {
        let fits = memory.len() >= CLAIMS_BYTES && memory.arena_offset().is_multiple_of(8);
        let each = bytes / (members.max(1) * CLAIMS_PER_MEMBER);
        let block = each.clamp(GRAIN_BYTES, BLOCK_BYTES_MAX) / GRAIN_BYTES * GRAIN_BYTES;
        fits.then_some(Self { word: memory, bytes, block })
    }

    /// Resets the claims. Call before any member can claim, and after all are done with the previous claims.
    pub fn reset(&self) {
        self.word.atomic_u64(0).store(0, Ordering::Relaxed);
    }

    /// This rank's claims in pieces of at most `most` bytes, as start and length: short enough to stay in a core's
    /// cache.
    pub fn pieces(self, most: usize) -> impl Iterator<Item = (usize, usize)> {
        self.flat_map(move |block| {
            let end = block.end;
            block.step_by(most).map(move |start| (start, most.min(end - start)))
        })
    }
}

impl Iterator for Claims {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        // The meetings before and after order the bytes; the word only hands out numbers. Other processes write it, so
        // it may hold any value.
        let claimed = self.word.atomic_u64(0).fetch_add(1, Ordering::Relaxed);
        let start = usize::try_from(claimed).ok()?.checked_mul(self.block)?;
        (start < self.bytes).then(|| start..self.bytes.min(start.saturating_add(self.block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Arena;
    use std::thread;

    /// A byte that is reduced twice or never is a wrong gradient.
    #[test]
    fn every_byte_is_claimed_once() {
        let arena = Arena::new(4096).unwrap();
        for (bytes, members) in [(0, 2), (1, 4), (GRAIN_BYTES, 3), (25_000_000, 4), (7 * GRAIN_BYTES + 5, 1)]
        {
            let word = Region::new(arena.mapping(), 1024, CLAIMS_BYTES as u64).unwrap();
            let claims = || Claims::new(word.clone(), bytes, members).unwrap();
            claims().reset();
            let mut all: Vec<Range<usize>> = thread::scope(|scope| {
                let ranks: Vec<_> =
                    (0..members).map(|_| scope.spawn(|| claims().collect::<Vec<_>>())).collect();
                ranks.into_iter().flat_map(|rank| rank.join().unwrap()).collect()
            });
            all.sort_by_key(|block| block.start);
            let end = all.iter().fold(0, |end, block| {
                assert_eq!(block.start, end);
                block.end
            });
            assert_eq!(end, bytes);
        }
    }

    /// The word and its place come from other processes.
    #[test]
    fn a_damaged_word_ends_the_claims() {
        let arena = Arena::new(4096).unwrap();
        let place = |offset, len| Region::new(arena.mapping(), offset, len).unwrap();
        assert!(Claims::new(place(4, 64), 100, 2).is_none());
        assert!(Claims::new(place(8, 8), 100, 2).is_none());
        let mut claims = Claims::new(place(64, 64), 100, 2).unwrap();
        for damaged in [u64::MAX, u64::MAX / GRAIN_BYTES as u64, 1] {
            place(64, 64).atomic_u64(0).store(damaged, Ordering::Relaxed);
            assert_eq!(claims.next(), None);
        }
    }
}
