//! Both directions of one TLS session: encrypted bytes in and out of fixed buffers, plain bytes to and from the caller.
//!
//! rustls' unbuffered interface says what the session needs next; a step does it. Memory is bounded by the two buffers,
//! whatever the peer sends.

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;

/// Encrypted bytes that are taken from the system at a time; many records.
const INCOMING_BYTES: usize = 256 * 1024;
/// What encryption adds to a turn (22 bytes a record), and room for a few messages of TLS itself.
const OVERHEAD_BYTES: usize = 8192;

/// The session, of either side.
pub enum Session {
    /// We connected.
    Connector(UnbufferedClientConnection),
    /// The peer connected.
    Acceptor(UnbufferedServerConnection),
}

/// What the session needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another step.
    Again,
    /// The plain bytes that were offered are encrypted.
    Sealed,
    /// More bytes from the peer.
    Arrival,
    /// Nothing: the peer has ended the session.
    End,
}

/// A session and its buffers.
pub struct Records {
    session: Session,
    incoming: Box<[u8]>,
    /// Of `incoming`: came, and is yet to be worked through.
    arrived: Range<usize>,
    outgoing: Box<[u8]>,
    /// Of `outgoing`: the system has yet to take it.
    sealed: Range<usize>,
}

impl Records {
    /// Of a new session; at most `turn_bytes` are sealed before they are flushed.
    pub fn new(session: Session, turn_bytes: usize) -> Self {
        Self {
            session,
            incoming: vec![0; INCOMING_BYTES].into_boxed_slice(),
            arrived: 0..0,
            outgoing: vec![0; turn_bytes + OVERHEAD_BYTES].into_boxed_slice(),
            sealed: 0..0,
        }
    }

    /// Whether nothing can be sent yet.
    pub fn is_handshaking(&self) -> bool {
        match &self.session {
            Session::Connector(session) => session.is_handshaking(),
            Session::Acceptor(session) => session.is_handshaking(),
        }
    }

    /// Does what comes next: decrypts one record into `deliver`, or a part of the handshake, or seals `plain`.
    pub fn step(&mut self, plain: Option<&[u8]>, deliver: impl FnMut(&[u8])) -> io::Result<Next> {
        let incoming = &mut self.incoming[self.arrived.clone()];
        let outgoing = &mut self.outgoing[self.sealed.end..];
        let done = match &mut self.session {
            Session::Connector(session) => {
                advance(session.process_tls_records(incoming), plain, outgoing, deliver)
            }
            Session::Acceptor(session) => {
                advance(session.process_tls_records(incoming), plain, outgoing, deliver)
            }
        }?;
        self.arrived.start += done.discarded;
        self.sealed.end += done.sealed;
        Ok(done.next)
    }

    /// Takes encrypted bytes from the system; 0: its end.
    pub fn fill(&mut self, mut socket: &TcpStream) -> io::Result<usize> {
        self.incoming.copy_within(self.arrived.clone(), 0);
        self.arrived = 0..self.arrived.len();
        if self.arrived.end == self.incoming.len() {
            return Err(broken("a record that never ends"));
        }
        let bytes = socket.read(&mut self.incoming[self.arrived.end..])?;
        self.arrived.end += bytes;
        Ok(bytes)
    }

    /// Gives encrypted bytes to the system; whether it took them all.
    pub fn flush(&mut self, mut socket: &TcpStream) -> io::Result<bool> {
        while !self.sealed.is_empty() {
            match socket.write(&self.outgoing[self.sealed.clone()]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sealed.start += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sealed = 0..0;
        Ok(true)
    }
}

struct Done {
    discarded: usize,
    sealed: usize,
    next: Next,
}

fn advance<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: Option<&[u8]>,
    outgoing: &mut [u8],
    mut deliver: impl FnMut(&[u8]),
) -> io::Result<Done> {
    let mut done = Done { discarded: status.discard, sealed: 0, next: Next::Again };
    match status.state.map_err(broken)? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(broken)?;
                deliver(record.payload);
                done.discarded += record.discard;
            }
        }
        ConnectionState::EncodeTlsData(mut message) => {
            done.sealed = message.encode(outgoing).map_err(broken)?;
        }
        // Encoded bytes wait in `outgoing`, which whoever drives the session flushes.
        ConnectionState::TransmitTlsData(transmit) => transmit.done(),
        ConnectionState::WriteTraffic(mut traffic) => match plain {
            Some(plain) => {
                done.sealed = traffic.encrypt(plain, outgoing).map_err(broken)?;
                done.next = Next::Sealed;
            }
            None => done.next = Next::Arrival,
        },
        ConnectionState::BlockedHandshake => done.next = Next::Arrival,
        ConnectionState::PeerClosed | ConnectionState::Closed => done.next = Next::End,
        // Early data is not enabled, and later versions of rustls may know more states.
        _ => return Err(broken("the session is in a state that was never asked for")),
    }
    Ok(done)
}

/// The peer, or somebody between, broke the session.
fn broken(what: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {what}"))
}
