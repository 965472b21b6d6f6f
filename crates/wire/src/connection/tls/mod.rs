//! TLS 1.3 on connections between hosts: nobody between two ranks can read or change their messages.
//!
//! There are no certificates. Each rank makes a key pair when it starts and presents the bare public key (RFC 7250),
//! and the connector accepts any key. TLS alone thus keeps eavesdroppers out, but not a man in the middle. The job's
//! secret does the rest: inside the channel, both sides run the mutual challenge of `hocket_protocol::handshake`, and
//! each proof also covers a value that TLS exports from this very session (RFC 8446, §7.5; channel binding as in RFC
//! 9266). A man in the middle holds two sessions with two different values, so a proof made for one does not fit the
//! other, and nobody can make a proof without the secret.
//!
//! rustls implements handshake, records, keys and their renewal; this module moves bytes between its buffers and a
//! socket.
//!
//! Budget: beyond a plain connection, sealing costs a pass of AES-GCM, an allocation and a copy per record; opening
//! costs a pass, two copies, and one copy out of the buffer that the system fills. Records stay in the second-level
//! cache throughout. `hocket bench all_reduce --tcp --ours engine,tls` measures how much of the plain throughput
//! remains; `examples/secure_throughput.rs` measures one connection, and the ciphers alone.

mod credentials;
mod session;
#[cfg(test)]
mod tests;

pub use credentials::Credentials;
pub use session::{BINDING_BYTES, Session};

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Instant;

/// Bytes read from the system at a time. rustls itself reads 4 KiB at a time, with a system call for each.
const READ_BYTES: usize = 64 * 1024;

/// A TCP connection that carries TLS records.
pub struct TlsStream {
    socket: TcpStream,
    session: Session,
    binding: [u8; BINDING_BYTES],
    buffer: Box<[u8]>,
    /// Range of `buffer` that was received and that the session has not taken yet.
    arrived: Range<usize>,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl TlsStream {
    /// Shakes hands as the side that connected.
    pub fn connect(socket: TcpStream, credentials: &Credentials, deadline: Instant) -> io::Result<Self> {
        Self::shake_hands(socket, Session::connector(credentials)?, deadline)
    }

    /// Shakes hands as the side that accepted.
    pub fn accept(socket: TcpStream, credentials: &Credentials, deadline: Instant) -> io::Result<Self> {
        Self::shake_hands(socket, Session::acceptor(credentials)?, deadline)
    }

    fn shake_hands(socket: TcpStream, mut session: Session, deadline: Instant) -> io::Result<Self> {
        let mut buffer = vec![0; READ_BYTES].into_boxed_slice();
        let binding = loop {
            let mut timed = Timed { socket: &socket, deadline };
            while session.wants_write() {
                session.write_to(&mut timed)?;
            }
            if let Some(binding) = session.binding()? {
                break binding;
            }
            let came = timed.read(&mut buffer)?;
            if came == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "it hung up during the TLS handshake",
                ));
            }
            let mut bytes = &buffer[..came];
            while !bytes.is_empty() {
                if let Err(error) = session.handle(&mut bytes) {
                    // The alert informs the peer; whether it arrives changes nothing.
                    drop(session.write_to(&mut timed));
                    return Err(error);
                }
            }
        };
        Ok(Self { socket, session, binding, buffer, arrived: 0..0 })
    }

    /// The session's exported secret, known to its two ends alone; proofs of the job's secret cover it.
    pub fn binding(&self) -> &[u8; BINDING_BYTES] {
        &self.binding
    }

    /// The connection below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Decrypts into `slices`; 0 means that the peer has closed its side.
    pub fn readv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut filled = 0;
        for slice in slices {
            let mut room: &mut [u8] = slice;
            while !room.is_empty() {
                let bytes = self.session.read(room);
                filled += bytes;
                room = &mut room[bytes..];
                if bytes == 0 && !self.advance(filled == 0)? {
                    return Ok(filled);
                }
            }
        }
        Ok(filled)
    }

    /// Passes received bytes to the session, and reads from the system if it `may_fill`; whether there were any.
    fn advance(&mut self, may_fill: bool) -> io::Result<bool> {
        if self.session.has_ended() {
            return Ok(false);
        }
        if self.arrived.is_empty() {
            if !may_fill {
                return Ok(false);
            }
            let bytes = (&self.socket).read(&mut self.buffer)?;
            self.arrived = 0..bytes;
            if bytes == 0 {
                return Ok(false);
            }
        }
        let mut bytes = &self.buffer[self.arrived.clone()];
        let given = self.session.handle(&mut bytes);
        self.arrived.start = self.arrived.end - bytes.len();
        if given.is_err() {
            // The alert informs the peer; whether it arrives changes nothing.
            drop(self.flush());
        }
        given.map(|()| true)
    }

    /// Encrypts some of `slices` and sends what the system accepts; returns the number of plain bytes consumed.
    pub fn writev(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.session.write(slices)?;
        self.flush()?;
        Ok(taken)
    }

    /// Sends encrypted bytes; whether the system accepted all of them.
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_to(&mut &self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// A blocking socket on which every read and write ends at a deadline.
struct Timed<'a> {
    socket: &'a TcpStream,
    deadline: Instant,
}

impl Timed<'_> {
    fn until_done<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "it did not finish the TLS handshake in time; HOCKET_TLS must be the same on all ranks",
                ));
            }
            self.socket.set_read_timeout(Some(left))?;
            self.socket.set_write_timeout(Some(left))?;
            match attempt() {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                done => return done,
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut socket = self.socket;
        self.until_done(|| socket.read(buffer))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = self.socket;
        self.until_done(|| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
