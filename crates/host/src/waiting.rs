//! Waiting for another rank: a waiter spins, then yields its core, then sleeps, in this order.
//!
//! Spinning suits ranks with a core each: a barrier then costs a cache line. With more ranks than cores, it would delay
//! the very ranks that are waited for, so the core is yielded at once. Sleep follows soon: the machine's other work is
//! training.

use crate::area::Area;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Spins before the core is yielded, about 20 µs: longer than a message of a slot's size takes.
const LOOKS: u32 = 2000;
/// How long a rank yields its core before it sleeps.
const OFFER: Duration = Duration::from_micros(200);
/// Longest sleep between checks whether the job has failed.
const SLEEP: Duration = Duration::from_millis(50);

/// A group's way of waiting.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    looks: u32,
}

impl Patience {
    /// For `members` ranks on this machine's cores.
    pub fn of(members: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self { looks: if members <= cores { LOOKS } else { 0 } }
    }

    /// Waits until the owner of `area` has arrived at `barrier`, or until `give_up`, called before each sleep, returns
    /// an error.
    pub fn wait(self, area: &Area, barrier: u32, mut give_up: impl FnMut() -> bool) -> io::Result<bool> {
        for _ in 0..=self.looks {
            if has_come(area.arrived(), barrier) {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        let began = Instant::now();
        while began.elapsed() < OFFER {
            thread::yield_now();
            if has_come(area.arrived(), barrier) {
                return Ok(true);
            }
        }
        loop {
            let seen = area.arrived();
            if has_come(seen, barrier) {
                return Ok(true);
            }
            if give_up() {
                // The owner may have left since, after it has arrived.
                return Ok(has_come(area.arrived(), barrier));
            }
            area.sleep(seen, SLEEP)?;
        }
    }
}

/// Whether a member at `arrived` has reached `barrier`; numbers wrap around.
pub fn has_come(arrived: u32, barrier: u32) -> bool {
    (arrived.wrapping_sub(barrier) as i32) >= 0
}
