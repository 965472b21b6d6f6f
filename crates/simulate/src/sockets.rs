//! What ranks' engines do to bytes that pass through sockets, while these move.
//!
//! An engine writes a message from when it begins to move, ahead of the wire, and reads bytes as they come, whenever no op occupies
//! it. What it has not done when a message's last byte has left or arrived, it does then, before the message counts as sent or
//! received. So bytes take the time of the wires or of the engine, whichever is longer: between slow links, sockets cost nothing.
//!
//! Budget: a message settles each end's engine a few times, a dozen operations each.

use crate::time::Picos;

/// By how much an engine may be behind without delaying a message: what came while it did something else, and lies in the sockets'
/// buffers. Work on a chunk takes as long.
const SLACK: Picos = 100_000_000;

/// One rank's engine.
#[derive(Clone, Debug)]
struct Engine {
    /// Whether an op occupies it.
    busy: bool,
    /// When the rest was last true.
    since: Picos,
    /// Factor on its times.
    slow: f64,
    /// Work on bytes that have come.
    unread: f64,
    /// More of it in each picosecond.
    arriving: f64,
    /// Work on all messages that ever began to move.
    begun: Picos,
    /// What of it is done: that of the first ones.
    written: f64,
}

impl Engine {
    fn settle(&mut self, now: Picos) {
        let passed = (now - self.since) as f64;
        self.since = now;
        self.unread += self.arriving * passed;
        if !self.busy {
            let read = self.unread.min(passed);
            self.unread -= read;
            self.written = (self.written + passed - read).min(self.begun as f64);
        }
    }
}

/// The engines of all ranks. Work is in picoseconds of an engine.
pub struct Sockets {
    ranks: Vec<Engine>,
}

impl Sockets {
    /// `slow`: ranks and the factors on their times.
    pub fn new(world: usize, slow: &[(u32, f64)]) -> Self {
        let idle =
            Engine { busy: false, since: 0, slow: 1.0, unread: 0.0, arriving: 0.0, begun: 0, written: 0.0 };
        let mut ranks = vec![idle; world];
        for &(rank, factor) in slow {
            ranks[rank as usize].slow = factor;
        }
        Self { ranks }
    }

    /// From now on an op occupies the engine, or none does.
    pub fn set_busy(&mut self, rank: u32, busy: bool, now: Picos) {
        let engine = self.settled(rank, now);
        engine.busy = busy;
    }

    /// A message begins to move that takes so much work. Returns what [`Self::unwritten`] knows it by.
    pub fn begin(&mut self, rank: u32, work: Picos, now: Picos) -> Picos {
        let engine = self.settled(rank, now);
        engine.begun += (work as f64 * engine.slow) as Picos;
        engine.begun
    }

    /// The work that comes to a rank in each picosecond is `more` than before.
    pub fn arrives(&mut self, rank: u32, more: f64, now: Picos) {
        let engine = self.settled(rank, now);
        engine.arriving += more * engine.slow;
    }

    /// So much work comes to a rank at once.
    pub fn arrived(&mut self, rank: u32, work: f64, now: Picos) {
        let engine = self.settled(rank, now);
        engine.unread += work * engine.slow;
    }

    /// What is left to do until a message and all that began before it are written.
    pub fn unwritten(&mut self, rank: u32, message: Picos, now: Picos) -> Picos {
        let engine = self.settled(rank, now);
        let left = (message as f64 - engine.written).max(0.0) as Picos;
        if left < SLACK { 0 } else { left }
    }

    /// The same, which an op does now.
    pub fn write(&mut self, rank: u32, message: Picos, now: Picos) -> Picos {
        let left = self.unwritten(rank, message, now);
        self.ranks[rank as usize].written += left as f64;
        left
    }

    /// What is left to do to the bytes that have come, which an op does now.
    pub fn read(&mut self, rank: u32, now: Picos) -> Picos {
        let engine = self.settled(rank, now);
        if (engine.unread as Picos) < SLACK { 0 } else { std::mem::take(&mut engine.unread) as Picos }
    }

    fn settled(&mut self, rank: u32, now: Picos) -> &mut Engine {
        let engine = &mut self.ranks[rank as usize];
        engine.settle(now);
        engine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many times the slack.
    fn times(count: u64) -> Picos {
        count * SLACK
    }

    /// Broken: every message between slow links would take its engine's time on top of the wire's.
    #[test]
    fn an_idle_engine_keeps_up_with_slow_links() {
        let mut sockets = Sockets::new(1, &[]);
        let message = sockets.begin(0, times(100), 0);
        sockets.arrives(0, 0.1, 0);
        assert_eq!(sockets.unwritten(0, message, times(50)), times(55), "reading comes first");
        let later = times(200);
        assert_eq!((sockets.unwritten(0, message, later), sockets.read(0, later)), (0, 0));
    }

    /// Broken: fast links would be predicted as if engines did nothing, or what ops and bytes need would not add up.
    #[test]
    fn what_a_busy_engine_has_not_done_is_left() {
        let mut sockets = Sockets::new(2, &[(1, 3.0)]);
        let first = sockets.begin(0, times(100), 0);
        let second = sockets.begin(0, times(50), 0);
        sockets.arrived(0, times(20) as f64, 0);
        sockets.set_busy(0, true, times(30));
        let now = times(80);
        assert_eq!(sockets.unwritten(0, first, now), times(90));
        assert_eq!(sockets.unwritten(0, second, now), times(140));
        assert_eq!(sockets.write(0, first, now), times(90));
        assert_eq!(sockets.unwritten(0, second, now), times(50));
        sockets.set_busy(0, false, times(100));
        assert_eq!(sockets.unwritten(0, second, times(130)), times(20));
        // A rank that is slow is slow at this, too.
        sockets.arrives(1, 1.0, 0);
        assert_eq!((sockets.read(1, times(10)), sockets.read(1, times(10))), (times(20), 0));
    }

    /// Broken: predictions between slow hosts would change by the moment at which bytes meet an op; or what is put off be forgotten.
    #[test]
    fn a_little_delays_nothing_and_is_done_later() {
        let mut sockets = Sockets::new(1, &[]);
        sockets.set_busy(0, true, 0);
        sockets.arrived(0, 0.6 * SLACK as f64, 0);
        assert_eq!(sockets.read(0, 0), 0);
        sockets.arrived(0, 0.6 * SLACK as f64, 0);
        assert_eq!(sockets.read(0, 0), SLACK * 12 / 10);
    }
}
