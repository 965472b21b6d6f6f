//! Memory of sums, in which a block holds not numbers but whose contributions its sum has: so a wrong mean is a wrong set.

use hocket_ids::Member;
use hocket_protocol::sampler::mixed;

/// Members of one run, joiners with it.
pub const MEMBERS_MAX: usize = 24;

/// A block: how often each member's contribution is in it, and of which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    counts: [u8; MEMBERS_MAX],
    step: u64,
    /// Contributions of several steps came together, which is always wrong.
    mixed: bool,
    /// The smallest vote, where it is a vote.
    pub vote: u64,
}

impl Sum {
    pub fn of(member: usize, step: u64, vote: u64) -> Self {
        let mut counts = [0; MEMBERS_MAX];
        counts[member] = 1;
        Self { counts, step, mixed: false, vote }
    }

    /// Of each of these once.
    pub fn each_once(members: &[Member], step: u64) -> Self {
        let mut sum = Self { counts: [0; MEMBERS_MAX], step, mixed: false, vote: 0 };
        for member in members {
            sum.counts[member.0 as usize] += 1;
        }
        sum
    }

    /// Reduces another into this one; of two votes the one that `smaller` says counts.
    pub fn add(&mut self, other: &Self, smaller: impl Fn(u64, u64) -> u64) {
        self.mixed |= other.mixed || self.step != other.step;
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self.vote = smaller(self.vote, other.vote);
    }

    /// Whether both have the same contributions.
    pub fn same(&self, other: &Self) -> bool {
        (self.counts, self.step, self.mixed) == (other.counts, other.step, other.mixed)
    }

    /// A number that depends on all of it.
    pub fn digest(&self) -> u64 {
        let fold = |hash, &count: &u8| mixed(hash ^ u64::from(count));
        self.counts.iter().fold(mixed(self.step ^ u64::from(self.mixed) << 63), fold)
    }
}

/// Names a piece.
pub type Region = usize;

/// Memory of a bucket's sums in one process, which its neighbours map.
#[derive(Clone, Debug)]
pub struct Piece {
    pub owner: usize,
    pub blocks: Vec<Sum>,
}

/// All buckets' memory of all processes, by region.
#[derive(Debug, Default)]
pub struct Memory {
    pieces: Vec<Piece>,
}

impl Memory {
    pub fn allocate(&mut self, owner: usize, blocks: Vec<Sum>) -> Region {
        self.pieces.push(Piece { owner, blocks });
        self.pieces.len() - 1
    }

    pub fn piece(&self, region: Region) -> &Piece {
        &self.pieces[region]
    }

    pub fn piece_mut(&mut self, region: Region) -> &mut Piece {
        &mut self.pieces[region]
    }
}
