//! Launches that begin before the gradients of their bucket are there.

use super::{Bucket, Launcher, Readiness, due_in};
use crate::error::Error;
use crate::lock::lock;
use hocket_schedule::Sent;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Whether a bucket's launch of this backward began before its gradients were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// No gradient has come.
    Open,
    /// It did, and so many are not there.
    Early(usize),
    /// It did not, or all are there.
    Over,
}

impl Bucket {
    /// Whether some gradients of a launch that began are not there.
    pub fn began_early(&self) -> bool {
        self.beginning.as_ref().is_some_and(|beginning| matches!(*lock(beginning), Beginning::Early(_)))
    }
}

impl<L: Launcher> Readiness<L> {
    /// Gradient `index` may be worked on: the first of a bucket begins its launch, if it is launched when all are there. Whether the
    /// launch began so.
    pub(super) fn work_early(
        &self,
        bucket: usize,
        beginning: &Mutex<Beginning>,
        index: usize,
    ) -> Result<bool, Error> {
        let own = &self.buckets[bucket];
        // Held while the launcher is told, so that nobody tells of all before each was told of.
        let mut beginning = lock(beginning);
        if *beginning == Beginning::Open {
            *beginning = Beginning::Over;
            let turns = self.turns();
            let (number, slot) = (turns.ended(own.arena), turns.open(own.arena).slot);
            let ends = turns.ending(bucket).filter(|ends| ends.sent == Sent::Ready);
            // What sums several iterations is multiplied before it is worked on.
            let ends = ends.filter(|_| turns.open(own.arena).iterations == 0);
            let due = ends.map(|ends| due_in(Some(turns.made + ends.delay() as u64)));
            drop(turns);
            if let Some(due) = due
                && own.launched.load(Ordering::Acquire) == number
                && self.launcher.launch_early(own.program, slot, due)?
            {
                own.launched.store(number + 1, Ordering::Release);
                *beginning = Beginning::Early(own.arrivals.gradients());
            }
        }
        let Beginning::Early(missing) = *beginning else { return Ok(false) };
        self.launcher.gradient_is_there(own.program, index as u32);
        *beginning = if missing > 1 { Beginning::Early(missing - 1) } else { Beginning::Over };
        if missing == 1 {
            self.launcher.all_are_there(own.program)?;
        }
        Ok(true)
    }

    /// Backward has ended: what began early goes on as it is, and the next backward begins anew. Of several errors, the first.
    pub(super) fn end_early(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for own in &self.buckets {
            if own.began_early() {
                for (index, _) in own.arrivals.places().enumerate().filter(|(_, place)| place.is_none()) {
                    self.launcher.gradient_is_there(own.program, index as u32);
                }
                outcome = outcome.and(self.launcher.all_are_there(own.program));
            }
            if let Some(beginning) = &own.beginning {
                *lock(beginning) = Beginning::Open;
            }
        }
        outcome
    }
}
