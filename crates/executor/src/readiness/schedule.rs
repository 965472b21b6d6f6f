//! When buckets leave: a table by iteration of a period and bucket, in which a hook looks up one entry.
//!
//! A *turn* of a bucket is what one launch of it reduces: the gradients of one iteration or of several. Turns of a
//! bucket are launched in order. Each has a slot (its number modulo the slots), so that one may be in flight while the
//! next one fills.

use crate::error::Error;

/// The action on a bucket's turn in an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The turn continues: the next iteration adds to it.
    Continues,
    /// The turn ends, and is launched when its last gradient arrives.
    Leaves,
    /// The turn ends, and is launched where a later point lists the bucket.
    Waits,
}

/// A point of an iteration at which buckets are launched together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before its first gradient.
    Begin,
    /// After its backward.
    End,
}

/// One iteration of the period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// By bucket.
    pub turns: Vec<Turn>,
    /// Buckets launched at [`Point::Begin`], in this order.
    pub begin: Vec<usize>,
    /// Buckets launched at [`Point::End`], in this order.
    pub end: Vec<usize>,
    /// By bucket: in how many iterations the turn that ends in this one is due; empty: at once.
    pub late: Vec<u32>,
}

/// The table of all iterations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// By bucket.
    slots: Vec<u32>,
    phases: Vec<Phase>,
}

impl Schedule {
    /// Every bucket leaves in every iteration when its last gradient arrives; one slot.
    pub fn immediate(buckets: usize) -> Self {
        let phase = Phase { turns: vec![Turn::Leaves; buckets], ..Phase::default() };
        Self { slots: vec![1; buckets], phases: vec![phase] }
    }

    /// A period of `phases`, repeated; each bucket has its number of `slots` for turns.
    ///
    /// [`Error::Usage`]: phases with different buckets, a bucket that is launched without a turn to launch, or that
    /// ends a turn without a slot for the next.
    pub fn new(slots: Vec<u32>, phases: Vec<Phase>) -> Result<Self, Error> {
        let buckets = slots.len();
        if slots.contains(&0) || phases.is_empty() {
            return Err(Error::Usage("a schedule has at least one slot and one iteration".into()));
        }
        for (at, phase) in phases.iter().enumerate() {
            let named = phase.begin.iter().chain(&phase.end).max();
            let late = phase.late.len();
            if phase.turns.len() != buckets
                || (late != 0 && late != buckets)
                || named.is_some_and(|&bucket| bucket >= buckets)
            {
                return Err(Error::Usage(format!(
                    "iteration {at} of the schedule is not one of {buckets} buckets"
                )));
            }
        }
        let schedule = Self { slots, phases };
        schedule.check(buckets)?;
        Ok(schedule)
    }

    /// Goes through two periods: a turn that begins in one may end in the next.
    fn check(&self, buckets: usize) -> Result<(), Error> {
        // By bucket: turns that have ended and were not launched.
        let mut waiting = vec![0_u32; buckets];
        let mut after_first = waiting.clone();
        for period in 0..2 {
            for (at, phase) in self.phases.iter().enumerate() {
                let wrong = |bucket: usize, what: &str| {
                    Error::Usage(format!("iteration {at} of the schedule, bucket {bucket}: {what}"))
                };
                let take = |waiting: &mut [u32], listed: &[usize]| {
                    listed.iter().try_for_each(|&bucket| {
                        match waiting[bucket].checked_sub(1) {
                            Some(left) => waiting[bucket] = left,
                            // The period before the first had no turns.
                            None if period == 0 => {}
                            None => return Err(wrong(bucket, "there is no turn to launch")),
                        }
                        Ok(())
                    })
                };
                take(&mut waiting, &phase.begin)?;
                // What is applied before backward, at a gate, has left its slot by now.
                let mut both = waiting.iter().zip(&self.slots);
                if let Some(bucket) = both.position(|(waiting, slots)| waiting >= slots) {
                    return Err(wrong(bucket, "no slot is left for the next turn"));
                }
                for (bucket, turn) in phase.turns.iter().enumerate() {
                    match turn {
                        Turn::Leaves if waiting[bucket] > 0 => {
                            return Err(wrong(bucket, "a turn would overtake the one before"));
                        }
                        Turn::Continues | Turn::Leaves => {}
                        Turn::Waits => waiting[bucket] += 1,
                    }
                }
                take(&mut waiting, &phase.end)?;
            }
            if period == 0 {
                after_first.clone_from(&waiting);
            }
        }
        match waiting.iter().zip(&after_first).position(|(now, before)| now != before) {
            Some(bucket) => Err(Error::Usage(format!(
                "bucket {bucket} of the schedule ends other numbers of turns than are launched"
            ))),
            None => Ok(()),
        }
    }

    /// Number of slots of `bucket`.
    pub fn slots(&self, bucket: usize) -> u32 {
        self.slots[bucket]
    }

    /// Number of iterations of a period.
    pub fn period(&self) -> usize {
        self.phases.len()
    }

    /// Number of buckets.
    pub fn buckets(&self) -> usize {
        self.phases[0].turns.len()
    }

    /// The action on `bucket` in iteration `phase` of the period.
    pub fn turn(&self, phase: usize, bucket: usize) -> Turn {
        self.phases[phase].turns[bucket]
    }

    /// In how many iterations the turn of `bucket` is due that ends in iteration `phase`.
    pub fn late(&self, phase: usize, bucket: usize) -> u32 {
        self.phases[phase].late.get(bucket).copied().unwrap_or(0)
    }

    /// Buckets launched at `point`.
    pub fn launches(&self, phase: usize, point: Point) -> &[usize] {
        match point {
            Point::Begin => &self.phases[phase].begin,
            Point::End => &self.phases[phase].end,
        }
    }
}
