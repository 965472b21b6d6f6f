//! Waits for sockets and for other threads or ranks: edge-triggered epoll and an eventfd.

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Wakes a sleeping I/O thread, also from another process of the host.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// A peer's waker, from the descriptor that the peer passed.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The descriptor, to pass to peers.
    pub fn fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Wakes the owner.
    pub fn wake(&self) -> io::Result<()> {
        match rustix::io::write(&self.0, &1u64.to_ne_bytes()) {
            // A full counter means that a wake-up is already pending.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn drain(&self) -> io::Result<()> {
        match rustix::io::read(&self.0, &mut [0u8; 8]) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Readiness of a registered descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Readiness {
    /// The number of its link.
    pub link: u32,
    /// Which of the link's descriptors it is.
    pub part: u32,
    /// Bytes, an end or an error can be read.
    pub readable: bool,
    /// Bytes can be written.
    pub writable: bool,
}

/// A set of descriptors and a waker that one thread waits on.
pub struct Poller {
    epoll: OwnedFd,
}

const WAKER: u64 = u64::MAX;

/// Events taken from the kernel at a time; the rest come with the next wait.
const EVENTS_MAX: usize = 64;

impl Poller {
    /// Waits for `waker` and for descriptors added later.
    pub fn new(waker: &Waker) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &waker.0, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Self { epoll })
    }

    /// Registers `fd` as part `part` of link `link`; each change is reported once.
    pub fn add(&self, fd: impl AsFd, link: u32, part: u32) -> io::Result<()> {
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(u64::from(link) << 32 | u64::from(part)),
            flags,
        )?;
        Ok(())
    }

    /// Waits at most `timeout` and passes each change to `on_ready`.
    pub fn wait(
        &self,
        timeout: Duration,
        waker: &Waker,
        mut on_ready: impl FnMut(Readiness),
    ) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        let events = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            if event.data.u64() == WAKER {
                waker.drain()?;
                continue;
            }
            let flags = event.flags;
            let broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            on_ready(Readiness {
                link: (event.data.u64() >> 32) as u32,
                part: event.data.u64() as u32,
                readable: broken || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
                writable: broken || flags.contains(epoll::EventFlags::OUT),
            });
        }
        Ok(())
    }
}
