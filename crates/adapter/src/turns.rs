//! Where each leaf of each turn is: a state machine without threads, clock or memory.
//!
//! A leaf of the open turn is *taken* (its caller copies it into its bucket), *given* (it is there), *reduced* (its buckets
//! are) and, when it is wanted back and copied, *ended*. When all have, the next turn opens. Leaves of later turns wait in
//! order of arrival.

use std::collections::VecDeque;
use std::time::Instant;

/// What becomes of a leaf that was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its place in the bucket is free: copy it there, then [`Turns::given`].
    Now,
    /// An earlier turn holds the place: [`Turns::queue`].
    Later,
}

/// The leaves without which a turn is not over.
pub enum Lack {
    Given(Vec<usize>),
    /// Were given, and are not wanted back.
    Wanted(Vec<usize>),
}

/// Turns of a group. `L`: memory that was lent, for a leaf that waits for its turn, or for a result.
pub struct Turns<L> {
    /// By leaf: the buckets that have parts of it.
    buckets: Vec<Vec<usize>>,
    leaves: Vec<Vec<usize>>,
    open: u32,
    /// Leaves of the open turn, in the order in which they came.
    came: Vec<usize>,
    /// Of the last turn that is over.
    came_before: Vec<usize>,
    taken: Vec<bool>,
    /// By leaf: whether its result was asked for, and where it is to go while it is not there.
    wanted: Vec<bool>,
    held: Vec<Option<L>>,
    /// By leaf: its buckets that are not reduced.
    awaited: Vec<usize>,
    /// Leaves of the open turn that are not in their buckets.
    missing: usize,
    /// Buckets of the open turn that are not reduced.
    running: usize,
    /// Leaves that have not ended.
    left: usize,
    later: VecDeque<(u32, usize, L)>,
    /// When the open turn last got a leaf, or when a later one began to wait for it.
    moved: Option<Instant>,
}

impl<L> Turns<L> {
    /// `buckets`: by leaf, those that have parts of it, of `count`. Turns begin with `open`.
    pub fn new(buckets: Vec<Vec<usize>>, count: usize, open: u32) -> Self {
        let mut leaves = vec![Vec::new(); count];
        for (leaf, own) in buckets.iter().enumerate() {
            for &bucket in own {
                leaves[bucket].push(leaf);
            }
        }
        let mut made = Self {
            open,
            came: Vec::new(),
            came_before: Vec::new(),
            taken: Vec::new(),
            wanted: Vec::new(),
            held: Vec::new(),
            awaited: Vec::new(),
            missing: 0,
            running: 0,
            left: 0,
            later: VecDeque::new(),
            moved: None,
            buckets,
            leaves,
        };
        made.begin();
        made
    }

    /// The turn whose leaves have their places free.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Whether nothing of any turn is there.
    pub fn is_idle(&self) -> bool {
        self.came.is_empty() && self.later.is_empty()
    }

    /// Leaves of the last turn that is over, in the order in which they came.
    pub fn order(&self) -> &[usize] {
        &self.came_before
    }

    /// Leaf of `turn` is lent. Err: a sentence about what is wrong with it.
    pub fn take(&mut self, turn: u32, leaf: usize, now: Instant) -> Result<Taken, String> {
        // The counter may wrap around: half of all numbers are later.
        let ahead = turn.wrapping_sub(self.open);
        if ahead > u32::MAX / 2 {
            return Err(format!("turn {turn} is over: turn {} is open", self.open));
        }
        if ahead > 0 {
            if self.later.iter().any(|&(its, known, _)| (its, known) == (turn, leaf)) {
                return Err("it comes twice in one turn".into());
            }
            self.moved.get_or_insert(now);
            return Ok(Taken::Later);
        }
        if self.taken[leaf] {
            return Err("it comes twice in one turn".into());
        }
        self.taken[leaf] = true;
        self.came.push(leaf);
        self.moved = Some(now);
        Ok(Taken::Now)
    }

    pub fn queue(&mut self, turn: u32, leaf: usize, lent: L) {
        self.later.push_back((turn, leaf, lent));
    }

    /// A leaf that was taken is in its bucket. Whether it was the last of the turn.
    pub fn given(&mut self) -> bool {
        self.missing -= 1;
        self.missing == 0
    }

    /// The result of a leaf is wanted: where it is to go, if it is there, until [`Self::ended`]; else that is kept. Err: a
    /// sentence about what is wrong, and what was lent.
    pub fn want(&mut self, turn: u32, leaf: usize, lent: L, now: Instant) -> Result<Option<L>, (String, L)> {
        if turn != self.open || !self.taken[leaf] {
            return Err((format!("its mean is wanted of turn {turn}, in which it was not given"), lent));
        }
        if self.wanted[leaf] {
            return Err(("its mean is wanted twice in one turn".into(), lent));
        }
        self.wanted[leaf] = true;
        self.moved = Some(now);
        if self.awaited[leaf] == 0 {
            return Ok(Some(lent));
        }
        self.held[leaf] = Some(lent);
        Ok(None)
    }

    /// A bucket is reduced: the leaves that have their whole result now and are wanted, until [`Self::ended`].
    pub fn reduced(&mut self, bucket: usize) -> Vec<(usize, L)> {
        self.running -= 1;
        let mut whole = Vec::new();
        for &leaf in &self.leaves[bucket] {
            self.awaited[leaf] -= 1;
            if self.awaited[leaf] == 0
                && let Some(lent) = self.held[leaf].take()
            {
                whole.push((leaf, lent));
            }
        }
        whole
    }

    /// That many leaves have their results. Whether the turn is over: then [`Self::advance`].
    pub fn ended(&mut self, leaves: usize) -> bool {
        self.left -= leaves;
        self.left + self.missing + self.running == 0
    }

    /// The next turn is open: its leaves that waited, which are taken now.
    pub fn advance(&mut self, now: Instant) -> Vec<(usize, L)> {
        self.open = self.open.wrapping_add(1);
        self.begin();
        let mut ready = Vec::new();
        let mut rest = VecDeque::with_capacity(self.later.len());
        for (turn, leaf, lent) in self.later.drain(..) {
            if turn == self.open {
                self.taken[leaf] = true;
                self.came.push(leaf);
                ready.push((leaf, lent));
            } else {
                rest.push_back((turn, leaf, lent));
            }
        }
        self.later = rest;
        if !self.is_idle() {
            self.moved = Some(now);
        }
        ready
    }

    /// Since when nothing came of the open turn, if it has leaves or a later one waits for it, and what it lacks.
    pub fn lacks(&self) -> Option<(Instant, Lack)> {
        let without = |had: &[bool]| (0..had.len()).filter(|&leaf| !had[leaf]).collect::<Vec<_>>();
        let (given, wanted) = (without(&self.taken), without(&self.wanted));
        let lack = if given.is_empty() { Lack::Wanted(wanted) } else { Lack::Given(given) };
        let complete = matches!(&lack, Lack::Wanted(leaves) if leaves.is_empty());
        self.moved.filter(|_| !complete).map(|since| (since, lack))
    }

    /// Everything that was lent and not ended, of all turns.
    pub fn drain(&mut self) -> Vec<L> {
        let held = self.held.iter_mut().filter_map(Option::take);
        held.chain(self.later.drain(..).map(|(_, _, lent)| lent)).collect()
    }

    fn begin(&mut self) {
        let leaves = self.buckets.len();
        self.came_before = std::mem::take(&mut self.came);
        self.taken = vec![false; leaves];
        self.wanted = vec![false; leaves];
        self.held = (0..leaves).map(|_| None).collect();
        self.awaited = self.buckets.iter().map(Vec::len).collect();
        self.missing = leaves;
        self.running = self.leaves.len();
        self.left = leaves;
        self.moved = None;
    }
}
