//! A stream socket of either family, plain or within TLS, non-blocking once the mesh is up.

use super::buffer;
use super::info::Info;
use super::tls::TlsStream;
use hocket_protocol::backlog::Buffer;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::sockopt::set_tcp_congestion;
use socket2::SockRef;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Unsent bytes at which a connection stops accepting more: half a frame.
const NOT_SENT_BYTES_MAX: u32 = 128 * 1024;

/// TCP between hosts, Unix within one.
#[derive(Debug)]
pub enum Stream {
    /// To another host.
    Tcp(TcpStream),
    /// To another host, encrypted.
    Tls(Box<TlsStream>),
    /// To a rank of this host.
    Unix(UnixStream),
}

impl Stream {
    /// Bounds each blocking read and write of the handshake.
    pub fn set_deadline(&self, timeout: Duration) -> io::Result<()> {
        let socket = SockRef::from(self);
        socket.set_read_timeout(Some(timeout)).and_then(|()| socket.set_write_timeout(Some(timeout)))
    }

    /// The channel binding of a TLS session, known to its two ends alone; empty for a plain connection.
    pub fn binding(&self) -> &[u8] {
        match self {
            Self::Tls(s) => s.binding(),
            Self::Tcp(_) | Self::Unix(_) => &[],
        }
    }

    /// Both ends' addresses, for error messages.
    pub fn ends(&self) -> Option<String> {
        let socket = match self {
            Self::Tcp(s) => s,
            Self::Tls(s) => s.socket(),
            Self::Unix(_) => return None,
        };
        Some(format!("{} to {}", socket.peer_addr().ok()?.ip(), socket.local_addr().ok()?.ip()))
    }

    /// Switches to non-blocking.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        let tcp = match self {
            Self::Tcp(s) => s,
            Self::Tls(s) => s.socket(),
            Self::Unix(s) => return s.set_nonblocking(true),
        };
        // Gradients come in bursts. On a 100 Mbit/s trunk with both directions busy, BBR's bandwidth model
        // reached 0.65 to 0.90 of the rate from burst to burst, CUBIC 0.94 steadily (headers take the rest).
        // Where a kernel has no CUBIC its own choice stays, which is slower at worst.
        let _: Result<(), _> = set_tcp_congestion(tcp, "cubic");
        // Nothing overtakes what the kernel has accepted, so it accepts little beyond what TCP may send now. Without
        // this limit, the most urgent bucket waited 200 ms behind others at 0.6 Gbit/s; with it, half of that.
        SockRef::from(tcp).set_tcp_notsent_lowat(NOT_SENT_BYTES_MAX)?;
        tcp.set_nodelay(true)?;
        tcp.set_nonblocking(true)
    }

    /// Changes to a congestion control that tolerates random losses; whether the kernel has one and allows it.
    pub fn bear_losses(&self) -> bool {
        match self {
            Self::Tcp(s) => set_tcp_congestion(s, "bbr").is_ok(),
            Self::Tls(s) => set_tcp_congestion(s.socket(), "bbr").is_ok(),
            Self::Unix(_) => false,
        }
    }

    /// Limits the bytes in flight, or leaves the limit to the system; no effect within a host.
    pub fn set_buffer(&self, bytes: Buffer) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Tls(_) => buffer::set(self.as_fd(), bytes),
            Self::Unix(_) => Ok(()),
        }
    }

    /// The kernel's statistics of the connection; `None` within a host.
    pub fn info(&self) -> Option<Info> {
        match self {
            Self::Tcp(_) | Self::Tls(_) => Info::of(self.as_fd()).ok(),
            Self::Unix(_) => None,
        }
    }

    /// Shuts our direction down, so that the peer reads everything and then an end.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.shutdown(Shutdown::Write),
            Self::Tls(s) => s.socket().shutdown(Shutdown::Write),
            Self::Unix(s) => s.shutdown(Shutdown::Write),
        }
    }

    /// Sends bytes that were accepted and not sent yet; whether none are left.
    pub(super) fn send_rest(&mut self) -> io::Result<bool> {
        match self {
            Self::Tls(s) => s.flush(),
            Self::Tcp(_) | Self::Unix(_) => Ok(true),
        }
    }

    pub(super) fn readv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read_vectored(slices),
            Self::Tls(s) => s.readv(slices),
            Self::Unix(s) => s.read_vectored(slices),
        }
    }

    pub(super) fn writev(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write_vectored(slices),
            Self::Tls(s) => s.writev(slices),
            Self::Unix(s) => s.write_vectored(slices),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.readv(&mut [IoSliceMut::new(buffer)])
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.writev(&[IoSlice::new(buffer)])
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.send_rest()? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Tls(s) => s.socket().as_fd(),
            Self::Unix(s) => s.as_fd(),
        }
    }
}
