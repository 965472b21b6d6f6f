//! The distance between two cores: the time for a cache line to go there and back. The placement of virtual cores
//! varies from day to day and changes every shared-memory figure, so each benchmark prints this first.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 20_000;

/// Half the round trip of a cache line between two threads: the best of several short runs, since a preempted run
/// measures the scheduler. `None` on a machine with one core, where two threads cannot run at once.
pub fn one_way() -> Option<Duration> {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return None;
    }
    (0..5).map(|_| run()).min()
}

fn run() -> Duration {
    let line = AtomicU32::new(0);
    let wait_for = |value: u32| {
        while line.load(Ordering::Acquire) != value {
            std::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                wait_for(2 * round + 1);
                line.store(2 * round + 2, Ordering::Release);
            }
        });
        let started = Instant::now();
        for round in 0..ROUNDS {
            line.store(2 * round + 1, Ordering::Release);
            wait_for(2 * round + 2);
        }
        started.elapsed() / (2 * ROUNDS)
    })
}
