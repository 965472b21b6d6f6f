//! TLS 1.3 on connections between hosts: nobody between two ranks can read or change what they exchange.
//!
//! There are no certificates. Each rank makes a key pair when it starts and shows the bare public key (RFC 7250), which the
//! connector accepts whatever it is: TLS alone then keeps out who listens, not who sits in the middle. The job's secret does the
//! rest. Inside the channel both sides run the mutual challenge of `hocket_protocol::handshake`, and each proof also covers a
//! value that TLS exports from this very session (RFC 8446, §7.5; channel binding as in RFC 9266). Somebody in the middle holds
//! two sessions with two such values: a proof made for one does not fit the other, and without the secret none can be made.
//!
//! Budget: per byte one pass of AES-GCM and two copies on either side (into and out of rustls' own record buffers), in pieces
//! that stay in the second-level cache. `examples/secure_throughput.rs` measures what is left of the plain throughput.

mod credentials;
mod exporter;
mod records;

pub use credentials::Credentials;
pub use exporter::BINDING_BYTES;

use exporter::Exporter;
use records::{Next, Records, Session};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// Plain bytes of one record (RFC 8446, §5.1).
const RECORD_BYTES: usize = 1 << 14;
/// Plain bytes that are encrypted at a time: enough for one call to the system, and they stay in the cache.
const TURN_BYTES: usize = 8 * RECORD_BYTES;

/// A TCP connection that carries TLS records.
pub struct TlsStream {
    socket: TcpStream,
    records: Records,
    binding: [u8; BINDING_BYTES],
    /// Decrypted bytes that the last reader had no room for.
    spill: Vec<u8>,
    spill_taken: usize,
    /// The start of a turn, gathered into one record.
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

    /// What only the two ends of this very session know; proofs of the job's secret cover it.
    pub fn binding(&self) -> &[u8; BINDING_BYTES] {
        &self.binding
    }

    /// The connection below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    fn shake_hands(
        socket: TcpStream,
        session: Session,
        exporter: &Exporter,
        deadline: Instant,
    ) -> io::Result<Self> {
        let (records, binding) = (Records::new(session, TURN_BYTES), [0; BINDING_BYTES]);
        let (spill, gathered) = (Vec::new(), Vec::with_capacity(RECORD_BYTES));
        let mut stream = Self { socket, records, binding, spill, spill_taken: 0, gathered };
        loop {
            match stream.records.step(None, |plain| stream.spill.extend_from_slice(plain))? {
                Next::Again | Next::Sealed => {}
                Next::Arrival => {
                    stream.set_deadline(deadline)?;
                    let sent = stream.flush()?;
                    if !stream.records.is_handshaking() && sent {
                        break;
                    }
                    match stream.records.fill(&stream.socket) {
                        Ok(0) => return Err(hung_up()),
                        Err(error) if !is_transient(&error) => return Err(error),
                        Ok(_) | Err(_) => {}
                    }
                }
                Next::End => return Err(hung_up()),
            }
        }
        stream.binding = exporter.binding().ok_or_else(|| io::Error::other("TLS exports nothing"))?;
        Ok(stream)
    }

    /// Bounds the next blocking read and write.
    fn set_deadline(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "it did not finish the TLS handshake in time; HOCKET_TLS must be the same on all ranks",
            ));
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.set_write_timeout(Some(left))
    }

    /// Decrypts into `slices`; 0: the peer has ended its side.
    pub fn readv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut room = Room { slices, filled: 0 };
        self.spill_taken += room.put(&self.spill[self.spill_taken..]);
        if self.spill_taken == self.spill.len() {
            self.spill.clear();
            self.spill_taken = 0;
        }
        while !room.is_full() {
            let deliver = |plain: &[u8]| {
                let fitted = room.put(plain);
                self.spill.extend_from_slice(&plain[fitted..]);
            };
            match self.records.step(None, deliver)? {
                Next::Again | Next::Sealed => {}
                Next::Arrival if room.filled > 0 => break,
                Next::Arrival => {
                    if self.records.fill(&self.socket)? == 0 {
                        break;
                    }
                }
                Next::End => break,
            }
        }
        Ok(room.filled)
    }

    /// Encrypts some of `slices` and sends what the system takes; returns the plain bytes that are taken care of.
    pub fn writev(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Small parts share a record; what is left of a long one is encrypted from where it lies.
        self.gathered.clear();
        let mut rest: &[u8] = &[];
        for slice in slices {
            let fitted = slice.len().min(RECORD_BYTES - self.gathered.len());
            self.gathered.extend_from_slice(&slice[..fitted]);
            rest = &slice[fitted..];
            if !rest.is_empty() {
                break;
            }
        }
        let rest = &rest[..rest.len().min(TURN_BYTES - RECORD_BYTES)];
        for plain in [&self.gathered, rest] {
            seal(&mut self.records, &mut self.spill, plain)?;
        }
        self.flush()?;
        Ok(self.gathered.len() + rest.len())
    }

    /// Sends what is encrypted; whether the system took it all.
    pub fn flush(&mut self) -> io::Result<bool> {
        self.records.flush(&self.socket)
    }
}

/// Encrypts `plain`; what came meanwhile goes to `spill`, which is bounded: nothing is taken from the system here.
fn seal(records: &mut Records, spill: &mut Vec<u8>, plain: &[u8]) -> io::Result<()> {
    while !plain.is_empty() {
        match records.step(Some(plain), |came| spill.extend_from_slice(came))? {
            Next::Sealed => break,
            Next::Again => {}
            Next::Arrival | Next::End => return Err(hung_up()),
        }
    }
    Ok(())
}

/// Slices that are filled one after the other.
struct Room<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    filled: usize,
}

impl Room<'_, '_> {
    /// Puts what fits; returns how much that is.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let (mut before, mut taken) = (0, 0);
        for slice in self.slices.iter_mut() {
            let at = (self.filled + taken - before).min(slice.len());
            let fitted = (slice.len() - at).min(bytes.len() - taken);
            slice[at..at + fitted].copy_from_slice(&bytes[taken..taken + fitted]);
            taken += fitted;
            before += slice.len();
        }
        self.filled += taken;
        taken
    }

    fn is_full(&self) -> bool {
        self.filled == self.slices.iter().map(|slice| slice.len()).sum::<usize>()
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn hung_up() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up during the TLS handshake")
}
