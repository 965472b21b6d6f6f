//! One side of a TLS session without I/O: bytes of the network in and out, plain bytes in and out.

use super::Credentials;
use rustls::{ClientConnection, Connection, Error, ServerConnection};
use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};

/// Bytes of the value that a session exports.
pub const BINDING_BYTES: usize = 32;

/// Registered with nobody; "EXPERIMENTAL" is the prefix for such (RFC 5705, §4).
const LABEL: &[u8] = b"EXPERIMENTAL-hocket-channel-binding";

/// Sealed and not sent yet: as much as the system takes at once, and small enough to stay in the second-level cache.
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
    /// Of the side that connects.
    pub fn connector(credentials: &Credentials) -> io::Result<Self> {
        let (config, name) = credentials.connector().map_err(io::Error::other)?;
        Ok(Self::new(ClientConnection::new(config, name).map_err(io::Error::other)?.into()))
    }

    /// Of the side that accepts.
    pub fn acceptor(credentials: &Credentials) -> io::Result<Self> {
        Ok(Self::new(ServerConnection::new(credentials.acceptor()).map_err(io::Error::other)?.into()))
    }

    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(SEALED_BYTES_MAX));
        Self { connection, ended: false }
    }

    /// What only the two ends of this session know (RFC 8446, §7.5); none while they shake hands.
    pub fn binding(&self) -> io::Result<Option<[u8; BINDING_BYTES]>> {
        if self.connection.is_handshaking() {
            return Ok(None);
        }
        let exported = self.connection.export_keying_material([0; BINDING_BYTES], LABEL, None);
        exported.map(Some).map_err(broken)
    }

    /// Takes some of the bytes that came, off their front; what they say is `read` before more is given.
    pub fn handle(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        if self.connection.read_tls(bytes)? == 0 && !bytes.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "TLS: a record longer than there can be"));
        }
        let state = self.connection.process_new_packets().map_err(broken)?;
        self.ended |= state.peer_has_closed();
        Ok(())
    }

    /// Whether the peer said that nothing more comes.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Moves plain bytes that came into `room`; how many: 0 when there are none.
    pub fn read(&mut self, room: &mut [u8]) -> usize {
        let mut reader = self.connection.reader();
        // An error says that there is nothing now, or nothing more; `has_ended` tells which.
        let Ok(ready) = reader.fill_buf() else { return 0 };
        let bytes = ready.len().min(room.len());
        room[..bytes].copy_from_slice(&ready[..bytes]);
        reader.consume(bytes);
        bytes
    }

    /// Seals some of `slices`, as far as there is room for what is sealed; how many bytes.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if slices.iter().all(|slice| slice.is_empty()) {
            // What a broken session has to say can still be sent.
            return Ok(0);
        }
        self.connection.writer().write_vectored(slices)
    }

    /// Whether something is to be sent.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends some of it.
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
