//! Moves frames between TAP devices as the switch decides, in one thread that sleeps whenever nothing is due.
//!
//! Per frame: one read, one write, one copy. It never spins: the cores are for the programs on the hosts.

use crate::Nanos;
use crate::frame::Frame;
use crate::switch::Switch;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{Errno, read, write};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use thiserror::Error;

/// The largest batch of the kernel's segmentation offload with its headers.
const FRAME_BYTES_MAX: usize = 65_536 + 256;
/// Frames read from one host before the others have their turn.
const TURN_FRAMES: usize = 32;
const EVENTS_MAX: usize = 64;

/// Why it stopped before its control pipe ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// Fewer devices than hosts, or more.
    #[error("{taps} TAP devices for {ports} hosts")]
    Devices {
        taps: usize,
        /// The network's number of hosts.
        ports: usize,
    },
    /// A device is gone, or was never one.
    #[error("the network device of host {port}: {cause}")]
    Device { port: usize, cause: Errno },
    /// The system refuses a call that every program may make.
    #[error("{what}: {cause}")]
    System { what: &'static str, cause: Errno },
}

fn system(what: &'static str) -> impl Fn(Errno) -> RunError {
    move |cause| RunError::System { what, cause }
}

/// Runs until `control` ends. Each byte from there is answered with a line of numbers to `answers`: frames delivered,
/// lost, overflowed, unknown, refused by a host's device, and then the bytes carried by each link.
///
/// Devices must not block; frames have offload headers of [`HEADER_BYTES`](crate::HEADER_BYTES).
pub fn run(
    mut switch: Switch,
    taps: &[OwnedFd],
    control: &OwnedFd,
    answers: &OwnedFd,
) -> Result<(), RunError> {
    if taps.len() != switch.ports() {
        return Err(RunError::Devices { taps: taps.len(), ports: switch.ports() });
    }
    let poll = epoll::create(CreateFlags::CLOEXEC).map_err(system("epoll"))?;
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
        .map_err(system("timerfd"))?;
    let (control_number, timer_number) = (taps.len() as u64, taps.len() as u64 + 1);
    let watched = taps.iter().map(AsFd::as_fd).chain([control.as_fd(), timer.as_fd()]);
    for (number, descriptor) in watched.enumerate() {
        epoll::add(&poll, descriptor, EventData::new_u64(number as u64), EventFlags::IN)
            .map_err(system("epoll"))?;
    }
    let mut scratch = vec![0; FRAME_BYTES_MAX];
    let mut refused = 0;
    let mut set_to = None;
    let mut events = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
    loop {
        let happened = match epoll::wait(&poll, &mut events, None) {
            Ok((happened, _)) => happened,
            Err(Errno::INTR) => continue,
            Err(cause) => return Err(RunError::System { what: "epoll", cause }),
        };
        for event in happened.iter() {
            let number = event.data.u64();
            if number == control_number {
                if !answer(&switch, refused, control, answers, &mut scratch)? {
                    return Ok(());
                }
            } else if number == timer_number {
                set_to = None;
                // The event carries all the information. A timer that was set again in the meantime has nothing to
                // read.
                let _: Result<usize, Errno> = read(&timer, &mut [0_u8; 8][..]);
            } else {
                take(&mut switch, number as usize, &taps[number as usize], &mut scratch)?;
            }
        }
        while let Some((port, frame)) = switch.poll_frame(now()) {
            refused += u64::from(!give(port, &taps[port], &frame)?);
        }
        let next = switch.poll_timeout();
        if next.is_some() && next != set_to {
            ring(&timer, next.unwrap_or_default())?;
            set_to = next;
        }
    }
}

/// Reads a host's frames, as many as its turn allows.
fn take(switch: &mut Switch, port: usize, tap: &OwnedFd, scratch: &mut [u8]) -> Result<(), RunError> {
    let came = now();
    for _ in 0..TURN_FRAMES {
        match read(tap, &mut *scratch) {
            Ok(bytes) => switch.handle_frame(came, port, Frame::new(scratch[..bytes].to_vec())),
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(cause) => return Err(RunError::Device { port, cause }),
        }
    }
    Ok(())
}

/// Whether the host's device accepted the frame: one that is down, or has no memory for it, does not, as on any wire.
fn give(port: usize, tap: &OwnedFd, frame: &Frame) -> Result<bool, RunError> {
    loop {
        match write(tap, frame.bytes()) {
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::BADFD | Errno::BADF | Errno::NODEV) => {
                return Err(RunError::Device { port, cause: Errno::BADFD });
            }
            Err(_) => return Ok(false),
        }
    }
}

/// Writes a line of counters for each byte received; false when the other end is gone.
fn answer(
    switch: &Switch,
    refused: u64,
    control: &OwnedFd,
    answers: &OwnedFd,
    scratch: &mut [u8],
) -> Result<bool, RunError> {
    let asked = match read(control, scratch) {
        Ok(bytes) => bytes,
        Err(Errno::INTR | Errno::AGAIN) => return Ok(true),
        Err(cause) => return Err(RunError::System { what: "control", cause }),
    };
    for _ in 0..asked {
        let so_far = switch.counters();
        let mut line = format!(
            "{} {} {} {} {refused}",
            so_far.delivered, so_far.lost, so_far.overflowed, so_far.unknown
        );
        for carried in switch.carried_bytes() {
            let _ = write!(line, " {carried}");
        }
        line.push('\n');
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            let written = write(answers, rest).map_err(system("answers"))?;
            rest = &rest[written..];
        }
    }
    Ok(asked > 0)
}

fn ring(timer: &OwnedFd, at: Nanos) -> Result<(), RunError> {
    let second = 1_000_000_000;
    // Zero would stop it.
    let at = at.max(1);
    let it_value = Timespec { tv_sec: (at / second) as i64, tv_nsec: (at % second) as _ };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).map_err(system("timerfd"))?;
    Ok(())
}

fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
