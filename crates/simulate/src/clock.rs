//! The event queue: events by time, those of one time in the order in which they were added.
//!
//! Budget: collectives are symmetric, so many events share a time. They lie in one slot, found through a small cache by time; the
//! heap holds slots. An event whose time is its own costs a heap push and pop, one that shares its time an append.

use crate::time::Picos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const CACHED: usize = 64;
const NO_SLOT: u32 = u32::MAX;

/// A queue of events.
pub struct Clock<E> {
    now: Picos,
    /// Remaining events of the current time, from `at` on.
    current: Vec<E>,
    at: usize,
    /// (time, order of making, slot).
    heap: BinaryHeap<Reverse<(Picos, u32, u32)>>,
    slots: Vec<Vec<E>>,
    free: Vec<u32>,
    made: u32,
    /// By hash of time: the youngest slot of that time.
    recent: [(Picos, u32); CACHED],
}

impl<E: Copy> Clock<E> {
    /// At time zero.
    pub fn new() -> Self {
        Self {
            now: 0,
            current: Vec::new(),
            at: 0,
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            made: 0,
            recent: [(0, NO_SLOT); CACHED],
        }
    }

    /// The time.
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Adds an event; one in the past happens now.
    pub fn push(&mut self, time: Picos, event: E) {
        if time <= self.now {
            self.current.push(event);
            return;
        }
        let place = place(time);
        let (cached, slot) = self.recent[place];
        if cached == time && slot != NO_SLOT {
            self.slots[slot as usize].push(event);
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Vec::new());
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].push(event);
        // Slots of one time are in the order of making; the count wraps only after all those of a time are gone.
        self.heap.push(Reverse((time, self.made, slot)));
        self.made = self.made.wrapping_add(1);
        self.recent[place] = (time, slot);
    }

    /// The next event of the current time.
    pub fn next(&mut self) -> Option<E> {
        let event = self.current.get(self.at).copied()?;
        self.at += 1;
        Some(event)
    }

    /// Whether events of the current time are left.
    pub fn is_pending(&self) -> bool {
        self.at < self.current.len()
    }

    /// Advances to the time of the next event; `false` when there is none. No event of the current time may be left.
    pub fn advance(&mut self) -> bool {
        self.current.clear();
        self.at = 0;
        let Some(Reverse((time, _, slot))) = self.heap.pop() else { return false };
        self.now = time;
        std::mem::swap(&mut self.current, &mut self.slots[slot as usize]);
        self.free.push(slot);
        let cached = &mut self.recent[place(time)];
        if cached.1 == slot {
            cached.1 = NO_SLOT;
        }
        true
    }
}

/// Cache slot of a time: times may differ in any of their bits, so all are mixed.
fn place(time: Picos) -> usize {
    (time.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Broken: things would happen before their causes, or in another order in each run.
        #[test]
        fn events_come_by_time_then_by_age(times in prop::collection::vec(0_u64..40, 0..300)) {
            let mut clock = Clock::new();
            for (age, &time) in times.iter().enumerate() {
                clock.push(time, (time, age));
            }
            let mut came = Vec::new();
            loop {
                while let Some(event) = clock.next() {
                    prop_assert!(event.0 == clock.now());
                    came.push(event);
                }
                if !clock.advance() {
                    break;
                }
            }
            let mut want: Vec<_> = times.iter().copied().zip(0..).collect();
            want.sort_unstable();
            prop_assert_eq!(came, want);
        }
    }
}
