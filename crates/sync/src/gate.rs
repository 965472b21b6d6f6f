//! Joins the two sides of a message: both must be ready before it moves.
//!
//! A peer can be at most one instance ahead (it cannot finish without us), so its early announcements are kept in one
//! of two halves, by the parity of the launch count.

use crate::OutOfTurn;
use crate::atomic::{AtomicU8, Ordering};

/// This rank's dependencies are met.
pub const RELEASED: u8 = 1;
pub const ANNOUNCED: u8 = 2;

#[derive(Debug, Default)]
pub struct Gate([AtomicU8; 2]);

impl Gate {
    /// Notes one side; `Ok(true)` when the other is ready too, `Err` when this side was noted already.
    pub fn note(&self, instance: u32, side: u8) -> Result<bool, OutOfTurn> {
        let half = &self.0[(instance & 1) as usize];
        let before = half.fetch_or(side, Ordering::AcqRel);
        if before & side != 0 {
            return Err(OutOfTurn);
        }
        let both = before | side == RELEASED | ANNOUNCED;
        if both {
            half.store(0, Ordering::Release);
        }
        Ok(both)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A message that moved before both sides were ready would read or overwrite live data.
    #[test]
    fn gate_opens_when_both_sides_came_in_either_order() {
        let gate = Gate::default();
        for (instance, first) in [(0, RELEASED), (1, ANNOUNCED), (2, ANNOUNCED), (3, RELEASED)] {
            assert_eq!(gate.note(instance, first), Ok(false));
            assert_eq!(gate.note(instance, first), Err(OutOfTurn));
            assert_eq!(gate.note(instance, (RELEASED | ANNOUNCED) ^ first), Ok(true));
        }
    }

    /// A peer that is one step ahead must not open this step's gate.
    #[test]
    fn early_announcement_waits_for_its_own_instance() {
        let gate = Gate::default();
        assert_eq!(gate.note(1, ANNOUNCED), Ok(false));
        assert_eq!(gate.note(0, RELEASED), Ok(false));
        assert_eq!(gate.note(0, ANNOUNCED), Ok(true));
        assert_eq!(gate.note(1, RELEASED), Ok(true));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// The side that comes second moves the message, once, and sees what the first wrote before.
    #[test]
    fn one_side_opens_and_sees_the_other() {
        loom::model(|| {
            let shared = Arc::new((Gate::default(), AtomicU8::new(0)));
            let theirs = Arc::clone(&shared);
            let peer = thread::spawn(move || {
                theirs.1.fetch_or(2, Ordering::Relaxed);
                let both = theirs.0.note(0, ANNOUNCED).unwrap();
                if both {
                    assert_eq!(theirs.1.load(Ordering::Relaxed), 3);
                }
                both
            });
            shared.1.fetch_or(1, Ordering::Relaxed);
            let both = shared.0.note(0, RELEASED).unwrap();
            if both {
                assert_eq!(shared.1.load(Ordering::Relaxed), 3);
            }
            assert!(both ^ peer.join().unwrap());
        });
    }

    /// A peer's announcement of the next instance, made while this one's gate opens, is neither lost nor taken for this
    /// one.
    #[test]
    fn the_next_instance_is_kept_apart() {
        loom::model(|| {
            let gate = Arc::new(Gate::default());
            let theirs = Arc::clone(&gate);
            let peer = thread::spawn(move || {
                let opened = theirs.note(0, ANNOUNCED).unwrap();
                assert!(!theirs.note(1, ANNOUNCED).unwrap());
                opened
            });
            let opened = gate.note(0, RELEASED).unwrap();
            assert!(opened ^ peer.join().unwrap());
            assert!(gate.note(1, RELEASED).unwrap());
        });
    }
}
