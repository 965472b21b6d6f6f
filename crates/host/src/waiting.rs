//! How a rank waits for another: it looks, gives its core away, and sleeps, in this order.
//!
//! Looking is for ranks that have a core each: a barrier then costs a cache line. With more ranks than cores it would keep
//! those away that are waited for, so the core is offered at once. Sleep comes before long: what else the machine does
//! is training.

use crate::area::Area;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Looks before the core is given away, about 20 µs: longer than a message of the slots' size takes.
const LOOKS: u32 = 2000;
/// How long a rank offers its core before it sleeps.
const OFFER: Duration = Duration::from_micros(200);
/// Longest sleep between looks at whether the job has failed.
const SLEEP: Duration = Duration::from_millis(50);

/// How a group waits.
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

    /// Until the owner of `area` has come to `barrier`, or `give_up`, called before each sleep, ends the wait.
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
                return Ok(false);
            }
            area.sleep(seen, SLEEP)?;
        }
    }
}

/// Whether a member at `arrived` has come to `barrier`; numbers wrap around.
pub fn has_come(arrived: u32, barrier: u32) -> bool {
    (arrived.wrapping_sub(barrier) as i32) >= 0
}
