//! The vocabulary of algorithms: a call, and the trait that receives its messages.

use std::ops::Range;

/// Receives an algorithm's messages. Members are numbered by their position in the group; elements are counted from the
/// start of each member's slice. No part is empty. Messages come in an order in which a sender already has what it
/// sends.
pub trait Weave {
    /// Moves a part from one member to the same place of another, which overwrites its own or reduces into it.
    fn message(&mut self, from: usize, to: usize, part: &Range<usize>, reduces: bool);
    /// As a message that reduces, but its receiver takes it before what it adds up earlier is there, into memory of its own.
    fn aside(&mut self, from: usize, to: usize, part: &Range<usize>) {
        self.message(from, to, part, true);
    }
    /// The reduction of a part is complete on that member, the first to have it: its factor is applied here, once.
    fn complete(&mut self, member: usize, part: &Range<usize>);
    /// Moves `part` of one member's source to `landed` of another's destination, or of its own, for an all-to-all.
    fn exchange(&mut self, from: usize, part: &Range<usize>, to: usize, landed: &Range<usize>);
    /// The stage of the messages from here on; [`Stage::Cycle`] by default.
    fn stage(&mut self, stage: Stage) {
        let _ = stage;
    }
}

/// How messages overlap in time, once they are cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// A chain to the member with that number in the cycle, which starts when the first chunk has arrived.
    Rise(u32),
    /// Messages that run together, each waiting for others of the cycle.
    Cycle,
    /// A chain from that member of the cycle.
    Fall(u32),
}

/// One collective among some members, of some elements of each member's slice.
#[derive(Clone, Debug)]
pub struct Call {
    /// Positions in the group, in the order that the algorithm uses.
    members: Vec<usize>,
    start: usize,
    len: usize,
}

impl Call {
    /// A call on all of `elements` elements, among `n` members in their order.
    pub fn new(n: usize, elements: usize) -> Self {
        Self { members: (0..n).collect(), start: 0, len: elements }
    }

    pub fn n(&self) -> usize {
        self.members.len()
    }

    /// All elements, counted from the call's first.
    pub fn whole(&self) -> Range<usize> {
        0..self.len
    }

    /// Part `at` when the elements are split into `parts` as evenly as they allow.
    pub fn part(&self, at: usize, parts: usize) -> Range<usize> {
        self.parts(at..at + 1, parts)
    }

    pub fn parts(&self, at: Range<usize>, parts: usize) -> Range<usize> {
        self.len * at.start / parts..self.len * at.end / parts
    }

    /// The same call among some members only.
    #[must_use]
    pub fn among(&self, members: &[usize]) -> Self {
        Self { members: members.iter().map(|&member| self.members[member]).collect(), ..*self }
    }

    /// The same call of a part of the elements.
    #[must_use]
    pub fn within(&self, part: &Range<usize>) -> Self {
        Self { members: self.members.clone(), start: self.start + part.start, len: part.len() }
    }

    /// A message between members of this call.
    pub fn message(&self, from: usize, to: usize, part: &Range<usize>, reduces: bool, weave: &mut dyn Weave) {
        if !part.is_empty() {
            weave.message(self.members[from], self.members[to], &self.placed(part), reduces);
        }
    }

    /// A message that reduces, as `Weave::aside`.
    pub fn aside(&self, from: usize, to: usize, part: &Range<usize>, weave: &mut dyn Weave) {
        if !part.is_empty() {
            weave.aside(self.members[from], self.members[to], &self.placed(part));
        }
    }

    pub fn complete(&self, member: usize, part: &Range<usize>, weave: &mut dyn Weave) {
        if !part.is_empty() {
            weave.complete(self.members[member], &self.placed(part));
        }
    }

    /// An all-to-all's move between members of this call.
    pub fn exchange(
        &self,
        from: usize,
        part: &Range<usize>,
        to: usize,
        landed: &Range<usize>,
        weave: &mut dyn Weave,
    ) {
        if !part.is_empty() {
            let (part, landed) = (self.placed(part), self.placed(landed));
            weave.exchange(self.members[from], &part, self.members[to], &landed);
        }
    }

    fn placed(&self, part: &Range<usize>) -> Range<usize> {
        self.start + part.start..self.start + part.end
    }
}
