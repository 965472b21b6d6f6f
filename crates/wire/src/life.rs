//! How the ranks of a host learn that one of them writes into their memory no more: a descriptor that becomes readable
//! when its process has ended.
//!
//! A closed connection does not say that: a forked child may hold it open for longer, and a thread may write after it.
//! A pidfd names one process for ever, whatever the pid is used for later, and works across PID namespaces.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::io;
use std::time::Duration;

/// Whose end neighbours wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// This process's.
    Process,
    /// The engine's, where several are in one process.
    Engine,
}

/// Our own life, as neighbours watch it.
#[derive(Debug)]
pub struct Life {
    watched: OwnedFd,
    /// Closed at the engine's end.
    _held: Option<OwnedFd>,
}

impl Life {
    /// Fails where the kernel has no pidfds (before Linux 5.3), or forbids them.
    pub fn new(lifetime: Lifetime) -> io::Result<Self> {
        match lifetime {
            Lifetime::Process => {
                Ok(Self { watched: pidfd_open(getpid(), PidfdFlags::empty())?, _held: None })
            }
            Lifetime::Engine => {
                let (watched, held) = io::pipe()?;
                Ok(Self { watched: watched.into(), _held: Some(held.into()) })
            }
        }
    }

    /// The descriptor to pass to neighbours.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

/// A neighbour's life.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// From the descriptor that the neighbour passed.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The descriptor, to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Whether it has ended, or does within `timeout`.
    pub fn has_ended(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends its process; fails if it is one that we may not end, or an engine.
    pub fn end(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, Signal::KILL)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(life: &Life) -> Watch {
        Watch::from_fd(life.fd().try_clone_to_owned().unwrap())
    }

    /// A neighbour's memory would be used again while a thread of it still writes there.
    #[test]
    fn an_end_is_seen_and_nothing_else_is() {
        let process = watch(&Life::new(Lifetime::Process).unwrap());
        assert!(!process.has_ended(Duration::ZERO).unwrap());
        let life = Life::new(Lifetime::Engine).unwrap();
        let engine = watch(&life);
        assert!(!engine.has_ended(Duration::from_millis(10)).unwrap());
        assert!(engine.end().is_err(), "an engine is not a process");
        drop(life);
        assert!(engine.has_ended(Duration::ZERO).unwrap());
    }

    /// A stopped process that goes on would write an old sum into a new one.
    #[test]
    fn a_stopped_process_is_ended_by_its_watch() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let watch = Watch::from_fd(pidfd_open(pid, PidfdFlags::empty()).unwrap());
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        assert!(!watch.has_ended(Duration::from_millis(20)).unwrap());
        watch.end().unwrap();
        assert!(watch.has_ended(Duration::from_secs(10)).unwrap());
        child.wait().unwrap();
    }
}
