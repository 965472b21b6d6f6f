//! TLS 1.3 on connections between hosts: nobody between two ranks can read or change what they exchange.
//!
//! There are no certificates. Each rank makes a key pair when it starts and shows the bare public key (RFC 7250), which the
//! connector accepts whatever it is: TLS alone then keeps out who listens, not who sits in the middle. The job's secret does the
//! rest. Inside the channel both sides run the mutual challenge of `hocket_protocol::handshake`, and each proof also covers a
//! value that TLS exports from this very session (RFC 8446, §7.5; channel binding as in RFC 9266). Somebody in the middle holds
//! two sessions with two such values: a proof made for one does not fit the other, and without the secret none can be made.
//!
//! rustls shakes hands; the records of the job's own bytes are sealed and opened here (`protection.rs`), with the keys that rustls
//! agreed on, as a kernel would do it that knows TLS. rustls' own way through its buffers costs a copy and an allocation more
//! per record when it seals and a copy more when it opens, together as much as half the ciphers.
//!
//! Budget: beside what a plain connection does, one pass of AES-GCM on either side: from where a payload lies into a buffer that
//! the system takes, and from a buffer that the system fills to where the payload belongs; both stay in the second-level
//! cache. Copied are only what lies in pieces (headers) and the last record of a payload. `examples/secure_throughput.rs`
//! measures what that leaves of the plain throughput, and the ciphers alone, which bound it.

mod credentials;
mod exporter;
mod handshake;
mod incoming;
mod keys;
mod outgoing;
mod protection;
mod room;
#[cfg(test)]
mod tests;

pub use credentials::Credentials;
pub use exporter::BINDING_BYTES;

use exporter::Exporter;
use handshake::{Session, shake_hands};
use incoming::{Incoming, Met};
use keys::Keys;
use outgoing::Outgoing;
use room::Room;
use std::fmt::{self, Display};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// Slices up to this length share a record; longer ones are sealed from where they lie.
const GATHERED_BYTES_MAX: usize = 4096;

/// A TCP connection that carries TLS records.
pub struct TlsStream {
    socket: TcpStream,
    binding: [u8; BINDING_BYTES],
    keys: Keys,
    outgoing: Outgoing,
    incoming: Incoming,
    gathered: Vec<u8>,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl TlsStream {
    /// Shakes hands as the side that connected.
    pub fn connect(socket: TcpStream, credentials: &Credentials, deadline: Instant) -> io::Result<Self> {
        let exporter = Arc::new(Exporter::default());
        let session = credentials.connector(Arc::clone(&exporter)).map_err(io::Error::other)?;
        Self::shake_hands(socket, Session::Connector(session), &exporter, deadline)
    }

    /// Shakes hands as the side that accepted.
    pub fn accept(socket: TcpStream, credentials: &Credentials, deadline: Instant) -> io::Result<Self> {
        let exporter = Arc::new(Exporter::default());
        let session = credentials.acceptor(Arc::clone(&exporter)).map_err(io::Error::other)?;
        Self::shake_hands(socket, Session::Acceptor(session), &exporter, deadline)
    }

    fn shake_hands(
        socket: TcpStream,
        session: Session,
        exporter: &Exporter,
        deadline: Instant,
    ) -> io::Result<Self> {
        let (keys, outgoing, incoming) = shake_hands(&socket, session, deadline)?;
        let binding = exporter.binding().ok_or_else(|| io::Error::other("TLS exports nothing"))?;
        Ok(Self {
            socket,
            binding,
            keys,
            outgoing,
            incoming,
            gathered: Vec::with_capacity(GATHERED_BYTES_MAX),
        })
    }

    /// What only the two ends of this very session know; proofs of the job's secret cover it.
    pub fn binding(&self) -> &[u8; BINDING_BYTES] {
        &self.binding
    }

    /// The connection below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Decrypts into `slices`; 0: the peer has ended its side. Bytes of `slices` behind those that are filled may change.
    pub fn readv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut room = Room::new(slices);
        while room.left() > 0 {
            match self.incoming.take(&mut room)? {
                Met::Data => {}
                Met::KeyUpdate { ours } => {
                    self.incoming.change_key(self.keys.next_to_open()?);
                    if ours {
                        self.outgoing.change_key();
                    }
                }
                Met::Nothing if room.filled() == 0 => {
                    if self.incoming.fill(&self.socket)? == 0 {
                        break;
                    }
                }
                Met::Nothing | Met::Larger | Met::End => break,
            }
        }
        Ok(room.filled())
    }

    /// Encrypts some of `slices` and sends what the system takes; returns the plain bytes that are taken care of.
    pub fn writev(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.gathered.clear();
        let mut long: &[u8] = &[];
        for slice in slices {
            if slice.len() > GATHERED_BYTES_MAX - self.gathered.len() {
                long = slice;
                break;
            }
            self.gathered.extend_from_slice(slice);
        }
        let mut taken = self.outgoing.seal(&mut self.keys, &self.gathered)?;
        taken += self.outgoing.seal(&mut self.keys, long)?;
        self.flush()?;
        Ok(taken)
    }

    /// Sends what is encrypted; whether the system took it all.
    pub fn flush(&mut self) -> io::Result<bool> {
        self.outgoing.flush(&self.socket)
    }
}

/// The peer, or somebody between, broke the session.
fn broken(what: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {what}"))
}

fn hung_up() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up during the TLS handshake")
}
