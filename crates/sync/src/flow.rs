//! The dataflow of a loaded program: launches follow one another, and within each, any thread counts dependencies down.

use crate::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub struct Flow {
    pending: Vec<AtomicU32>,
    /// Instructions that have not ended.
    remaining: AtomicU32,
    launched: AtomicU32,
    completed: AtomicU32,
}

impl Flow {
    /// For this many instructions, before the first launch.
    pub fn new(instructions: usize) -> Self {
        Self {
            pending: (0..instructions).map(|_| AtomicU32::new(0)).collect(),
            remaining: AtomicU32::new(0),
            launched: AtomicU32::new(0),
            completed: AtomicU32::new(0),
        }
    }

    pub fn launched(&self) -> u32 {
        self.launched.load(Ordering::Acquire)
    }

    /// Whether every launched instance is complete.
    pub fn is_complete(&self) -> bool {
        self.completed.load(Ordering::Acquire) == self.launched()
    }

    /// Whether the first `launches` launches are complete.
    pub fn has_completed(&self, launches: u32) -> bool {
        self.completed.load(Ordering::Acquire).wrapping_sub(launches) as i32 >= 0
    }

    /// Claims the next launch; `false` while the previous one runs.
    pub fn claim(&self) -> bool {
        let completed = self.completed.load(Ordering::Acquire);
        self.launched.compare_exchange(completed, completed + 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Resets the counters for a claimed launch; `after` is each instruction's number of dependencies.
    pub fn start(&self, after: impl Iterator<Item = u32>) {
        self.remaining.store(self.pending.len() as u32, Ordering::Release);
        for (pending, after) in self.pending.iter().zip(after) {
            pending.store(after, Ordering::Relaxed);
        }
    }

    /// One dependency of `op` is met; whether it was the last.
    pub fn meet(&self, op: u32) -> bool {
        self.pending[op as usize].fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether no dependency of `op` is left in the running instance.
    pub fn is_free(&self, op: u32) -> bool {
        self.pending[op as usize].load(Ordering::Acquire) == 0
    }

    /// An instruction has ended; whether it was the last of the instance.
    pub fn finish(&self) -> bool {
        self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The instance is complete; the next may be launched.
    pub fn complete(&self, instance: u32) {
        self.completed.store(instance + 1, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two instructions that end at once on two threads: one of them releases the third, which sees what both wrote; one
    /// of the three is the last.
    #[test]
    fn the_last_dependency_releases_once_and_sees_all() {
        loom::model(|| {
            let shared = Arc::new((Flow::new(3), [AtomicU32::new(0), AtomicU32::new(0)]));
            assert!(shared.0.claim());
            shared.0.start([0, 0, 2].into_iter());
            let end = |shared: &(Flow, [AtomicU32; 2]), op: usize| {
                shared.1[op].store(1, Ordering::Relaxed);
                let mut ended = 0;
                if shared.0.meet(2) {
                    assert_eq!(shared.1[0].load(Ordering::Relaxed) + shared.1[1].load(Ordering::Relaxed), 2);
                    ended += u32::from(shared.0.finish());
                }
                ended + u32::from(shared.0.finish())
            };
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || end(&other, 1));
            let last = end(&shared, 0) + thread.join().unwrap();
            assert_eq!(last, 1);
        });
    }

    /// Of two threads that launch, one wins; the next launch waits for the instance to be complete.
    #[test]
    fn a_launch_is_claimed_once() {
        loom::model(|| {
            let flow = Arc::new(Flow::new(1));
            let other = Arc::clone(&flow);
            let thread = thread::spawn(move || other.claim());
            let claimed = flow.claim();
            assert!(claimed ^ thread.join().unwrap());
            assert!(!flow.claim());
            flow.complete(0);
            assert!(flow.is_complete());
            assert!(flow.claim());
        });
    }

    /// A thread that sees an instance complete sees what its last instruction wrote.
    #[test]
    fn completion_carries_the_results() {
        loom::model(|| {
            let shared = Arc::new((Flow::new(1), AtomicU32::new(0)));
            assert!(shared.0.claim());
            shared.0.start(std::iter::once(0));
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                other.1.store(7, Ordering::Relaxed);
                if other.0.finish() {
                    other.0.complete(0);
                }
            });
            if shared.0.is_complete() {
                assert_eq!(shared.1.load(Ordering::Relaxed), 7);
            }
            thread.join().unwrap();
        });
    }

    /// A launch claimed while two threads end the previous one sees what both wrote and counts anew, whichever ends
    /// last.
    #[test]
    fn the_next_launch_starts_from_a_whole_end() {
        loom::model(|| {
            let shared = Arc::new((Flow::new(2), [AtomicU32::new(0), AtomicU32::new(0)]));
            let (flow, written) = &*shared;
            assert!(flow.claim());
            flow.start([0, 0].into_iter());
            let end = |shared: &(Flow, [AtomicU32; 2]), op: usize| {
                shared.1[op].store(1, Ordering::Relaxed);
                if shared.0.finish() {
                    shared.0.complete(0);
                }
            };
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || end(&other, 1));
            end(&shared, 0);
            if flow.claim() {
                assert_eq!(written[0].load(Ordering::Relaxed) + written[1].load(Ordering::Relaxed), 2);
                flow.start([0, 1].into_iter());
                assert!(!flow.is_complete());
                assert!(flow.meet(1));
                assert!(!flow.finish());
                assert!(flow.finish());
                flow.complete(1);
                assert!(flow.is_complete());
            }
            thread.join().unwrap();
        });
    }
}
