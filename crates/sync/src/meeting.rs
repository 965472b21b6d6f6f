//! Members of a collective meet twice: when the bytes of all are ready, and when the parts of all are done.
//!
//! A peer can be at most one instance ahead (it cannot finish without us), so its early messages are kept in one of two
//! halves, by the parity of the launch count. A half is cleared when its instance ends, before any member can announce
//! the instance after next.

use crate::OutOfTurn;
use crate::atomic::{AtomicU64, Ordering};

/// Limit of members of a meeting: one bit each.
pub const MEMBERS_MAX: usize = 64;

/// Positions in a member's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub bytes: u64,
    /// The claims on blocks; of the first member alone.
    pub claims: u64,
}

/// The state of one collective.
#[derive(Debug)]
pub struct Meeting {
    halves: [Half; 2],
    /// One bit per member.
    all: u64,
}

#[derive(Debug)]
struct Half {
    came: AtomicU64,
    did: AtomicU64,
    /// By member: position of its bytes in its arena.
    places: Box<[AtomicU64]>,
    /// From the first member's message.
    claims: AtomicU64,
}

impl Meeting {
    /// For this many members, at most [`MEMBERS_MAX`].
    pub fn new(members: usize) -> Self {
        debug_assert!((1..=MEMBERS_MAX).contains(&members), "{members} members");
        let half = || Half {
            came: AtomicU64::new(0),
            did: AtomicU64::new(0),
            places: (0..members).map(|_| AtomicU64::new(0)).collect(),
            claims: AtomicU64::new(0),
        };
        Self { halves: [half(), half()], all: u64::MAX >> (MEMBERS_MAX - members) }
    }

    /// A member's bytes lie at `place`; whether it was the last. `Err`: it had announced them before.
    pub fn come(&self, instance: u32, member: usize, place: Place) -> Result<bool, OutOfTurn> {
        let half = self.half(instance);
        half.places[member].store(place.bytes, Ordering::Relaxed);
        if member == 0 {
            half.claims.store(place.claims, Ordering::Relaxed);
        }
        self.note(&half.came, member)
    }

    /// A member's part is done in all members' bytes; whether it was the last. `Err`: a second such message, or one
    /// from a member that has not announced its bytes. The member may know of other members before we do.
    pub fn done(&self, instance: u32, member: usize) -> Result<bool, OutOfTurn> {
        let half = self.half(instance);
        if half.came.load(Ordering::Acquire) >> member & 1 == 0 {
            return Err(OutOfTurn);
        }
        let last = self.note(&half.did, member)?;
        if last {
            half.came.store(0, Ordering::Relaxed);
            half.did.store(0, Ordering::Release);
        }
        Ok(last)
    }

    /// Position of a member's bytes, once all have announced theirs.
    pub fn place(&self, instance: u32, member: usize) -> Place {
        let half = self.half(instance);
        Place {
            bytes: half.places[member].load(Ordering::Relaxed),
            claims: half.claims.load(Ordering::Relaxed),
        }
    }

    /// Members that `instance` is waiting for.
    pub fn missing(&self, instance: u32) -> impl Iterator<Item = usize> + use<> {
        let half = self.half(instance);
        let came = half.came.load(Ordering::Acquire);
        let there = if came == self.all { half.did.load(Ordering::Acquire) } else { came };
        let missing = self.all & !there;
        (0..MEMBERS_MAX).filter(move |at| missing >> at & 1 == 1)
    }

    fn half(&self, instance: u32) -> &Half {
        &self.halves[(instance & 1) as usize]
    }

    fn note(&self, seen: &AtomicU64, member: usize) -> Result<bool, OutOfTurn> {
        let bit = 1 << member;
        let before = seen.fetch_or(bit, Ordering::AcqRel);
        if before & bit != 0 { Err(OutOfTurn) } else { Ok(before | bit == self.all) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn place(bytes: u64) -> Place {
        Place { bytes, claims: bytes }
    }

    /// A part that is reduced before all bytes are there, or a collective that ends before all parts are done, gives
    /// wrong data.
    #[test]
    fn the_last_member_opens_whatever_the_order() {
        let meeting = Meeting::new(3);
        for (instance, order) in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [0, 2, 1]].into_iter().enumerate() {
            let instance = instance as u32;
            for (at, member) in order.into_iter().enumerate() {
                assert_eq!(meeting.done(instance, member), Err(OutOfTurn), "before it has come");
                assert_eq!(meeting.come(instance, member, place(member as u64)), Ok(at == 2));
                assert_eq!(meeting.come(instance, member, place(9)), Err(OutOfTurn));
            }
            for (at, member) in order.into_iter().enumerate() {
                assert_eq!(meeting.missing(instance).count(), 3 - at);
                assert_eq!(meeting.done(instance, member), Ok(at == 2));
            }
        }
    }

    /// A member that is a step ahead would otherwise open this step's meeting.
    #[test]
    fn early_members_wait_for_their_own_instance() {
        let meeting = Meeting::new(2);
        assert_eq!(meeting.come(0, 0, place(1)), Ok(false));
        assert_eq!(meeting.come(0, 1, place(2)), Ok(true));
        assert_eq!(meeting.done(0, 1), Ok(false));
        assert_eq!(meeting.come(1, 1, place(3)), Ok(false));
        assert_eq!(meeting.missing(0).collect::<Vec<_>>(), [0]);
        assert_eq!(meeting.done(0, 0), Ok(true));
        assert_eq!(meeting.come(1, 0, place(4)), Ok(true));
        assert_eq!((meeting.place(1, 0), meeting.place(1, 1)), (place(4), Place { bytes: 3, claims: 4 }));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn place(bytes: u64) -> Place {
        Place { bytes, claims: bytes }
    }

    /// Only the last member to come continues, and it knows the positions of all bytes.
    #[test]
    fn one_goes_on_and_knows_all_places() {
        loom::model(|| {
            let meeting = Arc::new(Meeting::new(2));
            let theirs = Arc::clone(&meeting);
            let peer = thread::spawn(move || {
                let last = theirs.come(0, 1, place(7)).unwrap();
                assert!(!last || theirs.place(0, 0).bytes == 5);
                last
            });
            let last = meeting.come(0, 0, place(5)).unwrap();
            assert!(!last || meeting.place(0, 1).bytes == 7);
            assert!(last ^ peer.join().unwrap());
        });
    }
}
