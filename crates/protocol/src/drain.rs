//! What of a peer's lanes belongs to the epoch that is in force here.
//!
//! A peer that begins an epoch says so once on every lane, in order with everything else that it sends there. Before that marker
//! what comes is of an epoch that has ended: it is read and thrown away, and its checksum is not judged, because the sender's memory may
//! have changed under it. A peer may be an epoch ahead: its announcements are kept until we begin that epoch too. Data is
//! never ahead, because nobody sends any before we have announced that we are ready.

use crate::planted::{Bug, Rules};

/// What to do with what comes next on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is of the epoch in force.
    Take,
    /// It is of one that has ended.
    Discard,
    /// It is of one that has not begun here.
    Keep,
}

/// A marker that no sound peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// Epochs only rise.
    #[error("a peer begins epoch {epoch} on lane {lane}, where it had begun epoch {before}")]
    Backwards {
        /// As sent.
        epoch: u64,
        /// The lane's.
        before: u64,
        /// Which.
        lane: usize,
    },
    /// There is no such lane.
    #[error("a marker comes on lane {lane} of {lanes}")]
    NoLane {
        /// As given.
        lane: usize,
        /// How many there are.
        lanes: usize,
    },
}

/// One peer's lanes.
#[derive(Clone, Debug)]
pub struct Drain {
    current: u64,
    /// Nothing of the current epoch is taken any more.
    stopped: bool,
    lanes: Vec<u64>,
    rules: Rules,
}

impl Drain {
    /// `lanes` connections that both ends open for epoch `current`: they begin in it, without markers.
    pub fn opened(lanes: usize, current: u64, rules: Rules) -> Self {
        Self { current, stopped: false, lanes: vec![current; lanes], rules }
    }

    /// The peer begins an epoch, on that lane.
    pub fn handle_marker(&mut self, lane: usize, epoch: u64) -> Result<(), MarkerError> {
        let lanes = self.lanes.len();
        let before = self.lanes.get_mut(lane).ok_or(MarkerError::NoLane { lane, lanes })?;
        let all = self.rules.broken(Bug::MarkerOnOneLane);
        if epoch <= *before && !all {
            return Err(MarkerError::Backwards { epoch, before: *before, lane });
        }
        *before = epoch;
        if all {
            self.lanes.fill(epoch);
        }
        Ok(())
    }

    /// An epoch is in force here.
    pub fn enter(&mut self, epoch: u64) {
        (self.current, self.stopped) = (epoch, false);
    }

    /// The epoch that was in force ends here, before the next has been decided.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// For what comes on that lane now.
    pub fn verdict(&self, lane: usize) -> Verdict {
        match self.lanes.get(lane) {
            Some(&epoch) if epoch == self.current && !self.stopped => Verdict::Take,
            Some(&epoch) if epoch > self.current => Verdict::Keep,
            Some(_) | None => Verdict::Discard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of an aborted step would land in the step that is done again.
    #[test]
    fn each_lane_is_drained_until_its_own_marker() {
        let mut drain = Drain::opened(2, 3, Rules::default());
        drain.enter(4);
        assert_eq!(drain.verdict(0), Verdict::Discard);
        for lane in 0..2 {
            drain.handle_marker(lane, 4).unwrap();
        }
        drain.handle_marker(0, 5).unwrap();
        assert_eq!([drain.verdict(0), drain.verdict(1)], [Verdict::Keep, Verdict::Take]);
        drain.enter(5);
        assert_eq!([drain.verdict(0), drain.verdict(1)], [Verdict::Take, Verdict::Discard]);
        drain.handle_marker(1, 5).unwrap();
        assert_eq!(drain.verdict(1), Verdict::Take);
    }

    /// A member that has reported would let a slower one's sums in, over those that it is to make anew.
    #[test]
    fn an_epoch_that_has_stopped_takes_nothing() {
        let mut drain = Drain::opened(2, 4, Rules::default());
        assert_eq!([drain.verdict(0), drain.verdict(1)], [Verdict::Take; 2]);
        drain.stop();
        drain.handle_marker(1, 5).unwrap();
        assert_eq!([drain.verdict(0), drain.verdict(1)], [Verdict::Discard, Verdict::Keep]);
        drain.enter(5);
        assert_eq!([drain.verdict(0), drain.verdict(1)], [Verdict::Discard, Verdict::Take]);
    }

    /// A peer could replay an epoch, or name a lane beyond the table.
    #[test]
    fn markers_that_make_no_sense_are_refused() {
        let mut drain = Drain::opened(1, 1, Rules::default());
        drain.handle_marker(0, 2).unwrap();
        assert_eq!(drain.handle_marker(0, 2), Err(MarkerError::Backwards { epoch: 2, before: 2, lane: 0 }));
        assert_eq!(drain.handle_marker(1, 3), Err(MarkerError::NoLane { lane: 1, lanes: 1 }));
        assert_eq!(drain.verdict(1), Verdict::Discard);
    }
}
