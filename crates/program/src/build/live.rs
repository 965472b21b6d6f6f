//! Accesses of one buffer that a later op may still conflict with.
//!
//! They are kept by length, in classes of a factor of two, and within a class by start. Accesses that overlap a slice
//! then start close before it, and are found without scanning all others: a ring over many ranks has an access per
//! part.

use crate::ops::{After, Slice};
use hocket_ids::OpId;

/// An op's access to a slice.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub slice: Slice,
    pub op: OpId,
    pub writes: bool,
}

/// Exclusive bound of the length, a power of two.
fn class_of(access: &Access) -> usize {
    (access.slice.len() + 1).next_power_of_two()
}

/// All accesses of one buffer.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Exclusive bound of the length, a power of two; accesses by start.
    classes: Vec<(usize, Vec<Access>)>,
}

impl Live {
    /// Adds to `after` the ops that an access to `slice` conflicts with.
    pub fn conflicts(&self, slice: &Slice, writes: bool, after: &mut After) {
        for (bound, accesses) in &self.classes {
            let first = accesses.partition_point(|access| access.slice.start + bound <= slice.start);
            let near = accesses[first..].iter().take_while(|access| access.slice.start < slice.stop);
            let conflicting = near.filter(|a| (a.writes || writes) && a.slice.overlaps(slice));
            after.extend(conflicting.map(|access| access.op));
        }
    }

    /// Replaces all accesses within a written slice by the write: later ops can conflict with that range only through
    /// the write.
    pub fn overwrite(&mut self, write: Access) {
        let (slice, own) = (write.slice, class_of(&write));
        let mut added = false;
        for (bound, accesses) in &mut self.classes {
            let first = accesses.partition_point(|access| access.slice.start < slice.start);
            let end = first + accesses[first..].partition_point(|access| access.slice.start <= slice.stop);
            let mut kept = first;
            for at in first..end {
                if !slice.covers(&accesses[at].slice) {
                    accesses.swap(kept, at);
                    kept += 1;
                }
            }
            // Mostly it takes the place of one access to the same slice, so that nothing behind it moves.
            if *bound == own && kept < end {
                accesses[kept] = write;
                accesses[first..=kept].rotate_right(1);
                kept += 1;
                added = true;
            }
            accesses.drain(kept..end);
        }
        if !added {
            self.add(write);
        }
    }

    /// Adds one.
    pub fn add(&mut self, access: Access) {
        let bound = class_of(&access);
        let class = self.classes.iter().position(|(own, _)| *own == bound).unwrap_or_else(|| {
            self.classes.push((bound, Vec::new()));
            self.classes.len() - 1
        });
        let accesses = &mut self.classes[class].1;
        let place = accesses.partition_point(|other| other.slice.start <= access.slice.start);
        accesses.insert(place, access);
    }
}
