//! Where a reader wants its bytes: slices that are filled one after the other.

use std::io::IoSliceMut;

/// Slices, and how far they are filled.
pub struct Room<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    filled: usize,
    left: usize,
    /// The slice that is being filled, and how far.
    slice: usize,
    at: usize,
}

impl<'a, 'b> Room<'a, 'b> {
    /// Empty.
    pub fn new(slices: &'a mut [IoSliceMut<'b>]) -> Self {
        let left = slices.iter().map(|slice| slice.len()).sum();
        Self { slices, filled: 0, left, slice: 0, at: 0 }
    }

    /// Bytes that are there.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Bytes that still fit.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The next `bytes`, if they lie in one piece. What is written there counts once [`advance`](Self::advance) says so.
    pub fn next(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.skip_full();
        self.slices.get_mut(self.slice)?.get_mut(self.at..self.at + bytes)
    }

    /// So much of what [`next`](Self::next) gave is filled.
    pub fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        self.filled += bytes;
        self.left -= bytes;
    }

    /// Copies what fits; returns how much that is.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && self.left > 0 {
            self.skip_full();
            let to = &mut self.slices[self.slice][self.at..];
            let fitted = to.len().min(bytes.len() - taken);
            to[..fitted].copy_from_slice(&bytes[taken..taken + fitted]);
            self.advance(fitted);
            taken += fitted;
        }
        taken
    }

    fn skip_full(&mut self) {
        while self.slices.get(self.slice).is_some_and(|slice| slice.len() == self.at) {
            self.slice += 1;
            self.at = 0;
        }
    }
}
