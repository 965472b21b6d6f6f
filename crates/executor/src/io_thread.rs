//! The thread that owns a rank's ports, and computes if there are no worker threads.
//!
//! Budget: each turn polls every port, which moves a bounded amount, and runs a bounded amount of work, so that a large
//! low-priority bucket delays an urgent one by at most one turn. The thread sleeps in one epoll call; sockets, threads
//! of this rank and neighbours all wake it.

use crate::arrival::Arrival;
use crate::core::Core;
use crate::lock::lock;
use hocket_ids::Rank;
use hocket_wire::clock::now_ns;
use hocket_wire::link::Port;
use hocket_wire::mesh::Listener;
use hocket_wire::poll::Poller;
use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Instructions run in a turn when there are no workers.
const TURN_TASKS: usize = 4;
/// Longest sleep; also bounds how late a failed wake-up is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// How long the thread yields its core before it sleeps while a collective in place is running. An all-reduce of 25 MB
/// on 4 ranks and 2 cores takes 4 ms, and each sleep of a rank during it adds a wake-up that the others wait for.
const OFFER: Duration = Duration::from_micros(200);
/// How long to wait, after the last byte is sent, for peers to close too, so that nothing in flight is cut off.
const LINGER: Duration = Duration::from_millis(500);
/// The longest sleep in that time.
const LINGER_STEP: Duration = Duration::from_millis(10);

/// By link number: its rank.
pub type Ports = Vec<(Rank, Box<dyn Port>)>;

/// The main loop of the I/O thread. The poller watches all ports.
pub fn run(core: &Core, poller: &Poller, mut ports: Ports, listener: Listener) {
    if let Err(error) = turns(core, poller, &mut ports) {
        core.fail_here(None, format_args!("the I/O thread cannot go on: {error}"));
        core.notify_ended();
    }
    drop(listener);
    leave(core, poller, &mut ports);
}

fn turns(core: &Core, poller: &Poller, ports: &mut Ports) -> io::Result<()> {
    let sleep_max = ports.iter().map(|(_, port)| port.pause_max()).fold(SLEEP_MAX, Duration::min);
    let mut idle_since = now();
    while !core.closing.load(Ordering::Acquire) {
        let mut busy = launch(core);
        core.notify_ended();
        let mut timeout = sleep_max;
        let now = now();
        for (rank, port) in ports.iter_mut() {
            let turn = port.poll(&mut Arrival::new(core, core.peer(*rank)), now);
            busy |= turn.busy;
            timeout = turn.again.map_or(timeout, |again| again.min(timeout));
        }
        if core.workers == 0 {
            for _ in 0..TURN_TASKS {
                if core.failure().is_some() || !core.work_once() {
                    break;
                }
                busy = true;
            }
        }
        if busy {
            idle_since = now;
            timeout = Duration::ZERO;
        } else if core.meetings.load(Ordering::Relaxed) > 0 && now.saturating_sub(idle_since) < OFFER {
            // Threads that add work now need not wake us.
            thread::yield_now();
            continue;
        }
        sleep(core, poller, ports, timeout)?;
    }
    Ok(())
}

/// Starts the programs that were launched.
fn launch(core: &Core) -> bool {
    let mut busy = false;
    loop {
        let next = lock(&core.launches).pop_front();
        let Some(program) = next else { return busy };
        busy = true;
        if let Some(loaded) = core.programs.get(program) {
            core.start(&loaded);
        }
    }
}

/// The data plane's clock, for timers.
fn now() -> Duration {
    Duration::from_nanos(now_ns())
}

fn sleep(core: &Core, poller: &Poller, ports: &mut Ports, timeout: Duration) -> io::Result<()> {
    let mut timeout = timeout;
    if !timeout.is_zero() {
        // A thread that adds work after this sees the flag and wakes us; work added before, we see now.
        core.bell.sleeping().set();
        let idle = lock(&core.launches).is_empty()
            && (core.workers > 0 || !core.has_work() || core.failure().is_some())
            && !core.closing.load(Ordering::Acquire)
            && ports.iter().all(|(_, port)| port.is_idle());
        if !idle {
            timeout = Duration::ZERO;
        }
    }
    wait(core, poller, ports, timeout)?;
    core.bell.sleeping().clear();
    Ok(())
}

fn wait(core: &Core, poller: &Poller, ports: &mut Ports, timeout: Duration) -> io::Result<()> {
    poller.wait(timeout, core.bell.waker(), |ready| ports[ready.link as usize].1.handle_ready(ready))
}

/// Leaves in order, and waits briefly for the others to close their side.
fn leave(core: &Core, poller: &Poller, ports: &mut Ports) {
    let deadline = Instant::now() + LINGER;
    loop {
        let mut done = true;
        for (rank, port) in ports.iter_mut() {
            done &= port.close(&mut Arrival::new(core, core.peer(*rank)));
        }
        if done || Instant::now() >= deadline || wait(core, poller, ports, LINGER_STEP).is_err() {
            return;
        }
    }
}
