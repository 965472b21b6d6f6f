//! Authenticates callers at the listener: those that prove the job's secret are admitted, strangers are rejected and
//! logged.
//!
//! Each caller gets a thread; their time and number are limited.

use crate::connection::{Stream, give_up};
use crate::identity::Identity;
use crate::limits::is_out_of_descriptors;
use crate::poll::Waker;
use crate::proof::admit;
use hocket_ids::Rank;
use hocket_protocol::handshake::LaneId;
use hocket_protocol::why::Why;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::net as unix;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Callers authenticated at the same time; beyond it, the oldest makes room.
const CALLERS_MAX: usize = 64;
/// Pause after a caller that could not be admitted.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Log lines per second about rejected callers; further ones are only counted.
const LOG_LINES_MAX: u32 = 5;

/// Runs until `closing` wakes it; `starved` means that a caller could not be admitted for lack of a file descriptor.
pub(crate) fn keep_listening(
    listeners: &[TcpListener],
    local: &unix::UnixListener,
    identity: &Identity,
    (closing, starved): (&Waker, &AtomicBool),
    admitted: &mpsc::Sender<(LaneId, Stream)>,
) {
    let callers = Arc::new(Callers::default());
    let log = Arc::new(Log::new(identity.rank));
    let doors: Vec<_> = listeners.iter().map(AsFd::as_fd).chain([local.as_fd()]).collect();
    while !is_woken(closing, &doors, None) {
        let mut heard = Vec::new();
        let far = listeners
            .iter()
            .map(|listener| listener.accept().map(|(stream, from)| (Stream::Tcp(stream), from.to_string())));
        let near = local.accept().map(|(stream, _)| (Stream::Unix(stream), "this host".to_owned()));
        for accepted in far.chain([near]) {
            let error = match accepted {
                Ok(caller) => {
                    heard.push(caller);
                    continue;
                }
                Err(error) => error,
            };
            if is_out_of_descriptors(&error) {
                starved.store(true, Ordering::Relaxed);
            }
            // The caller stays in the backlog, and retrying at once would burn a core.
            if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) {
                is_woken(closing, &[], Some(&PAUSE));
            }
        }
        for (stream, from) in heard {
            let Some(caller) = callers.enter(&stream) else {
                log.turn_away(&from, &"too many callers at once");
                continue;
            };
            let (identity, admitted) = (identity.clone(), admitted.clone());
            let (callers_of_thread, log) = (Arc::clone(&callers), Arc::clone(&log));
            let hearing = thread::Builder::new().name("hocket-caller".into()).spawn(move || {
                let heard = admit(&identity, stream);
                let made_room = !callers_of_thread.leave(caller);
                match heard {
                    // The mesh may be complete; then nobody receives it.
                    Ok(link) => {
                        if let Err(mpsc::SendError((id, stream))) = admitted.send(link) {
                            turn_away(&identity, id, stream);
                        }
                    }
                    Err(_) if made_room => log.turn_away(&from, &"it made room for a newer caller"),
                    Err(why) => log.turn_away(&from, &why),
                }
            });
            if hearing.is_err() {
                callers.leave(caller);
                is_woken(closing, &[], Some(&PAUSE));
            }
        }
    }
}

/// Whether `waker` woke this thread, which waits for one of `others` too, and no longer than `limit`.
fn is_woken(waker: &Waker, others: &[BorrowedFd<'_>], limit: Option<&Timespec>) -> bool {
    let fds = [waker.fd()].into_iter().chain(others.iter().copied());
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    // An interrupted wait found nothing.
    matches!(poll(&mut fds, limit), Ok(1..)) && !fds[0].revents().is_empty()
}

/// Tells a rank of the job, which believes that it is connected, why its connection was refused.
pub(crate) fn turn_away(identity: &Identity, id: LaneId, stream: Stream) {
    let LaneId { from, to, lane, .. } = id;
    let why = format!(
        "rank {to} does not await connection {lane} of rank {from}: HOCKET_STREAMS and HOCKET_INTERFACE must mean as many on both"
    );
    give_up([stream], identity.checksums, (identity.rank, Why::Refused), &why);
}

/// The callers under authentication. At the limit, the oldest makes room for the newest: an honest caller finishes
/// within a few round trips, and callers that only hold their place cannot keep it.
#[derive(Default)]
struct Callers(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    calls: u64,
    /// Callers that have not made room: number, and a second descriptor of their connection.
    waiting: VecDeque<(u64, Option<OwnedFd>)>,
    /// Running threads, some of them about to end.
    threads: usize,
}

impl Callers {
    /// A number for the caller at the other end of `stream`; none when there are too many even after making room.
    fn enter(&self, stream: &Stream) -> Option<u64> {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.threads >= 2 * CALLERS_MAX {
            return None;
        }
        if heard.waiting.len() >= CALLERS_MAX {
            let oldest = heard.waiting.iter().position(|(_, own)| own.is_some())?;
            if let Some((_, Some(oldest))) = heard.waiting.remove(oldest) {
                // It may have hung up by itself, which is just as good.
                let _: Result<(), _> = shutdown(&oldest, Shutdown::Both);
            }
        }
        // Without a spare descriptor the caller is authenticated all the same, and keeps its place for the whole time.
        let own = stream.as_fd().try_clone_to_owned().ok();
        heard.calls += 1;
        heard.threads += 1;
        let number = heard.calls;
        heard.waiting.push_back((number, own));
        Some(number)
    }

    /// Removes a caller that is done; whether it had kept its place.
    fn leave(&self, number: u64) -> bool {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.threads -= 1;
        let before = heard.waiting.len();
        heard.waiting.retain(|(each, _)| *each != number);
        heard.waiting.len() < before
    }
}

/// Logs rejected callers on standard error at a bounded rate: a thousand strangers a second must not fill a disk.
struct Log {
    rank: Rank,
    /// Start of the current second, lines written in it, and callers that got none.
    state: Mutex<(Instant, u32, u64)>,
}

impl Log {
    fn new(rank: Rank) -> Self {
        Self { rank, state: Mutex::new((Instant::now(), 0, 0)) }
    }

    fn turn_away(&self, from: &str, why: &dyn std::fmt::Display) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, lines, unsaid) = &mut *state;
        if began.elapsed() >= Duration::from_secs(1) {
            (*began, *lines) = (Instant::now(), 0);
        }
        if *lines == LOG_LINES_MAX {
            *unsaid += 1;
            return;
        }
        *lines += 1;
        let more = match std::mem::take(unsaid) {
            0 => String::new(),
            unsaid => format!(" (and {unsaid} more before it)"),
        };
        let rank = self.rank;
        // Standard error is the log of last resort; failing to write there must not stop the job.
        drop(writeln!(io::stderr(), "hocket: rank {rank} turned away a connection from {from}: {why}{more}"));
    }
}
