//! Gradients of one bucket that arrive during a backward, from any thread; the last arrival is recognised as such.

use crate::atomic::{AtomicBool, AtomicU32, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The gradient's first arrival; others are missing.
    Counted,
    /// The gradient's first arrival, and the last that was missing: its caller sees what all threads wrote.
    Last,
    /// The gradient had arrived before.
    Again,
}

#[derive(Debug)]
pub struct Arrivals {
    /// By gradient: whether it has arrived.
    came: Vec<AtomicBool>,
    /// By arrived gradient: its position in the order of all.
    places: Vec<AtomicU32>,
    missing: AtomicU32,
}

impl Arrivals {
    /// For this many gradients; none has arrived.
    pub fn new(gradients: usize) -> Self {
        Self {
            came: (0..gradients).map(|_| AtomicBool::new(false)).collect(),
            places: (0..gradients).map(|_| AtomicU32::new(0)).collect(),
            missing: AtomicU32::new(gradients as u32),
        }
    }

    pub fn gradients(&self) -> usize {
        self.came.len()
    }

    /// Gradient `index` has arrived; `place` returns its position in the order of all, and is called only for its first
    /// arrival.
    pub fn note(&self, index: usize, place: impl FnOnce() -> u32) -> Arrival {
        if self.came[index].swap(true, Ordering::AcqRel) {
            return Arrival::Again;
        }
        self.places[index].store(place(), Ordering::Relaxed);
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 { Arrival::Last } else { Arrival::Counted }
    }

    pub fn is_complete(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// By gradient: its position in the order of all, if it has arrived.
    pub fn places(&self) -> impl Iterator<Item = Option<u32>> + '_ {
        let both = self.came.iter().zip(&self.places);
        both.map(|(came, place)| came.load(Ordering::Acquire).then(|| place.load(Ordering::Relaxed)))
    }

    /// Resets all arrivals. Not while gradients arrive.
    pub fn reset(&self) {
        self.missing.store(self.came.len() as u32, Ordering::Release);
        for came in &self.came {
            came.store(false, Ordering::Release);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads bring a gradient each: exactly one of them is the last, and sees what both wrote.
    #[test]
    fn the_last_gradient_is_told_once_and_sees_all() {
        loom::model(|| {
            let shared = Arc::new((Arrivals::new(2), [AtomicU32::new(0), AtomicU32::new(0)]));
            let bring = |shared: &(Arrivals, [AtomicU32; 2]), index: usize| {
                shared.1[index].store(1, Ordering::Relaxed);
                let last = shared.0.note(index, || index as u32) == Arrival::Last;
                if last {
                    assert_eq!(shared.1[0].load(Ordering::Relaxed) + shared.1[1].load(Ordering::Relaxed), 2);
                }
                u32::from(last)
            };
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || bring(&other, 1));
            let told = bring(&shared, 0) + thread.join().unwrap();
            assert_eq!(told, 1);
            assert!(shared.0.is_complete());
        });
    }

    /// A gradient that two threads bring at once counts once.
    #[test]
    fn a_gradient_counts_once() {
        loom::model(|| {
            let arrivals = Arc::new(Arrivals::new(2));
            let other = Arc::clone(&arrivals);
            let thread = thread::spawn(move || other.note(0, || 0));
            let mut both = [arrivals.note(0, || 0), thread.join().unwrap()];
            both.sort_unstable_by_key(|arrival| *arrival == Arrival::Again);
            assert_eq!(both, [Arrival::Counted, Arrival::Again]);
            assert!(!arrivals.is_complete());
        });
    }
}
