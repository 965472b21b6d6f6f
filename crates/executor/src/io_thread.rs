//! The thread that owns a rank's ports, and computes if there are no worker threads.
//!
//! Budget: each turn polls every port, which moves a bounded amount, and runs a bounded amount of work, so that a large
//! low-priority bucket delays an urgent one by at most one turn. The thread sleeps in one epoll call; sockets, threads
//! of this rank and neighbours all wake it.

use crate::arrival::Arrival;
use crate::core::Core;
use crate::guard::guarded;
use crate::lock::lock;
use hocket_ids::Rank;
use hocket_wire::clock::now_ns;
use hocket_wire::link::Port;
use hocket_wire::listener::Listener;
use hocket_wire::poll::Poller;
use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// The thread's name.
pub const NAME: &str = "hocket-io";
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

/// By link number: the rank and the port. None: of a rank that an epoch has shut out.
pub type Ports = Vec<Option<(Rank, Box<dyn Port>)>>;

/// What the thread owns, and hands on to the next epoch's.
pub struct Io {
    /// Watches all ports.
    pub poller: Poller,
    /// Of all ranks.
    pub ports: Ports,
    /// Turns strangers away.
    pub listener: Listener,
}

/// Why the thread's turns end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The rank leaves.
    Closing,
    /// Another epoch begins.
    Retired,
    /// A test has the rank die.
    #[cfg(test)]
    Dead,
}

/// The main loop of the I/O thread; returns what it owns if another epoch begins.
pub fn run(core: &Core, mut io: Io) -> Option<Io> {
    match guarded(core, NAME, || turns(core, &mut io)) {
        Some(Ok(End::Retired)) => return Some(io),
        #[cfg(test)]
        Some(Ok(End::Dead)) => return None,
        Some(Ok(End::Closing)) => {}
        Some(Err(error)) => {
            core.fail_here(None, format_args!("the I/O thread cannot go on: {error}"));
            core.notify_ended();
        }
        None => core.notify_ended(),
    }
    #[cfg(test)]
    if core.death.has_come() {
        return None;
    }
    let Io { poller, mut ports, listener } = io;
    drop(listener);
    guarded(core, NAME, || leave(core, &poller, &mut ports));
    None
}

fn turns(core: &Core, io: &mut Io) -> io::Result<End> {
    let Io { poller, ports, .. } = io;
    let sleep_max = ports.iter().flatten().map(|(_, port)| port.pause_max()).fold(SLEEP_MAX, Duration::min);
    let mut idle_since = now();
    let (mut halted, mut held) = (false, false);
    while !core.closing.load(Ordering::Acquire) {
        #[cfg(test)]
        if core.death.has_come() {
            return Ok(End::Dead);
        }
        if core.is_interrupted() && !std::mem::replace(&mut halted, true) {
            ports.iter_mut().flatten().for_each(|(_, port)| port.stop());
            core.note_quiet();
        }
        let holds = core.holds.load(Ordering::Acquire);
        if holds && !std::mem::replace(&mut held, true) {
            core.note_quiet();
        }
        if core.is_retired() {
            core.notify_ended();
            return Ok(End::Retired);
        }
        let mut busy = !holds && launch(core);
        core.notify_ended();
        let mut timeout = sleep_max;
        let now = now();
        for (rank, port) in ports.iter_mut().flatten() {
            let turn = port.poll(&mut Arrival::new(core, core.peer(*rank)), now);
            busy |= turn.busy;
            timeout = turn.again.map_or(timeout, |again| again.min(timeout));
        }
        if core.workers == 0 {
            for _ in 0..TURN_TASKS {
                if core.has_stopped() || !core.work_once() {
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
    Ok(End::Closing)
}

/// Starts the programs that were launched, or what of them may go on.
fn launch(core: &Core) -> bool {
    let mut busy = false;
    loop {
        let next = lock(&core.launches).pop_front();
        let Some((program, go)) = next else { return busy };
        busy = true;
        if let Some(loaded) = core.programs.get(program) {
            core.start(&loaded, go);
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
        let idle = (lock(&core.launches).is_empty() || core.holds.load(Ordering::Acquire))
            && (core.workers > 0 || !core.has_work() || core.has_stopped())
            && !core.closing.load(Ordering::Acquire)
            && ports.iter().flatten().all(|(_, port)| port.is_idle());
        if !idle {
            timeout = Duration::ZERO;
        }
    }
    wait(core, poller, ports, timeout)?;
    core.bell.sleeping().clear();
    Ok(())
}

fn wait(core: &Core, poller: &Poller, ports: &mut Ports, timeout: Duration) -> io::Result<()> {
    poller.wait(timeout, core.bell.waker(), |ready| {
        if let Some(Some((_, port))) = ports.get_mut(ready.link as usize) {
            port.handle_ready(ready);
        }
    })
}

/// Leaves in order, and waits briefly for the others to close their side.
fn leave(core: &Core, poller: &Poller, ports: &mut Ports) {
    let deadline = Instant::now() + LINGER;
    loop {
        let mut done = true;
        for (rank, port) in ports.iter_mut().flatten() {
            done &= port.close(&mut Arrival::new(core, core.peer(*rank)));
        }
        if done || Instant::now() >= deadline || wait(core, poller, ports, LINGER_STEP).is_err() {
            return;
        }
    }
}
