//! One side of a TLS session without I/O: network bytes in and out, plain bytes in and out.

use super::Credentials;
use rustls::{ClientConnection, Connection, Error, ServerConnection};
use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};

/// Length of the value that a session exports, in bytes.
pub const BINDING_BYTES: usize = 32;

/// An unregistered label; "EXPERIMENTAL" is the prefix for those (RFC 5705, §4).
const LABEL: &[u8] = b"EXPERIMENTAL-hocket-channel-binding";

/// Limit of sealed, unsent bytes: as much as the system accepts at once, and small enough for the second-level cache.
const SEALED_BYTES_MAX: usize = 128 * 1024;

/// One side of a session.
pub struct Session {
    connection: Connection,
    ended: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Session {
    /// The connecting side.
    pub fn connector(credentials: &Credentials) -> io::Result<Self> {
        let (config, name) = credentials.connector().map_err(io::Error::other)?;
        Ok(Self::new(ClientConnection::new(config, name).map_err(io::Error::other)?.into()))
    }

    /// The accepting side.
    pub fn acceptor(credentials: &Credentials) -> io::Result<Self> {
        Ok(Self::new(ServerConnection::new(credentials.acceptor()).map_err(io::Error::other)?.into()))
    }

    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(SEALED_BYTES_MAX));
        Self { connection, ended: false }
    }

    /// The exported value, known to the two ends of this session alone (RFC 8446, §7.5); `None` during the handshake.
    pub fn binding(&self) -> io::Result<Option<[u8; BINDING_BYTES]>> {
        if self.connection.is_handshaking() {
            return Ok(None);
        }
        let exported = self.connection.export_keying_material([0; BINDING_BYTES], LABEL, None);
        exported.map(Some).map_err(broken)
    }

    /// Takes bytes off the front of `bytes`; the resulting plain bytes must be `read` before more is given.
    pub fn handle(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        if self.connection.read_tls(bytes)? == 0 && !bytes.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "TLS: a record longer than there can be"));
        }
        let state = self.connection.process_new_packets().map_err(broken)?;
        self.ended |= state.peer_has_closed();
        Ok(())
    }

    /// Whether the peer has closed its side.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Moves received plain bytes into `room`; returns how many, 0 when there are none.
    pub fn read(&mut self, room: &mut [u8]) -> usize {
        let mut reader = self.connection.reader();
        // An error means that nothing is there now or that nothing follows; `has_ended` distinguishes the two.
        let Ok(ready) = reader.fill_buf() else { return 0 };
        let bytes = ready.len().min(room.len());
        room[..bytes].copy_from_slice(&ready[..bytes]);
        reader.consume(bytes);
        bytes
    }

    /// Seals some of `slices`, as far as there is room for sealed bytes; returns how many.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if slices.iter().all(|slice| slice.is_empty()) {
            // A broken session can still send its alert.
            return Ok(0);
        }
        self.connection.writer().write_vectored(slices)
    }

    /// Whether sealed bytes wait to be sent.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends some of them.
    pub fn write_to(&mut self, out: &mut impl Write) -> io::Result<usize> {
        self.connection.write_tls(out)
    }
}

/// The peer, or somebody between, broke the session.
fn broken(error: Error) -> io::Error {
    let what = match error {
        Error::DecryptError => {
            "a record was not sealed with the session's key, or was changed on its way".to_owned()
        }
        error => error.to_string(),
    };
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {what}"))
}
