//! The TLS handshake: rustls shakes hands, and then hands the session's keys over.
//!
//! rustls' unbuffered interface says what it needs next; a step does it. Memory is bounded by two buffers, whatever the peer
//! sends.

use super::incoming::Incoming;
use super::keys::Keys;
use super::outgoing::Outgoing;
use super::{broken, hung_up};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Instant;

/// A flight of the handshake, which here is a few hundred bytes, and what the peer says right after its own; a record fits.
const BUFFER_BYTES: usize = 32 * 1024;

/// The session, of either side.
pub enum Session {
    /// We connected.
    Connector(UnbufferedClientConnection),
    /// The peer connected.
    Acceptor(UnbufferedServerConnection),
}

/// What the session needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Another step.
    Again,
    /// More bytes from the peer.
    Arrival,
    /// Nothing: both sides have what they need.
    Traffic,
}

struct Handshake {
    session: Session,
    incoming: Box<[u8]>,
    /// Of `incoming`: came, and is yet to be worked through.
    arrived: Range<usize>,
    outgoing: Vec<u8>,
    /// What the peer said right after its handshake.
    plain: Vec<u8>,
}

/// Shakes hands on a blocking `socket`: the session's keys, and both directions from here on.
pub fn shake_hands(
    socket: &TcpStream,
    session: Session,
    deadline: Instant,
) -> io::Result<(Keys, Outgoing, Incoming)> {
    let incoming = vec![0; BUFFER_BYTES].into_boxed_slice();
    let (outgoing, plain) = (Vec::new(), Vec::new());
    let mut handshake = Handshake { session, incoming, arrived: 0..0, outgoing, plain };
    loop {
        match handshake.step()? {
            Next::Again => {}
            Next::Arrival => {
                set_deadline(socket, deadline)?;
                handshake.flush(socket)?;
                handshake.fill(socket)?;
            }
            Next::Traffic => break,
        }
    }
    set_deadline(socket, deadline)?;
    handshake.flush(socket)?;
    let (keys, sealing, opening) = match handshake.session {
        Session::Connector(session) => Keys::of_connector(session),
        Session::Acceptor(session) => Keys::of_acceptor(session),
    }?;
    let incoming = Incoming::new(opening, &handshake.plain, &handshake.incoming[handshake.arrived])?;
    Ok((keys, Outgoing::new(sealing), incoming))
}

impl Handshake {
    /// Does what comes next.
    fn step(&mut self) -> io::Result<Next> {
        let incoming = &mut self.incoming[self.arrived.clone()];
        let (discarded, next) = match &mut self.session {
            Session::Connector(session) => {
                advance(session.process_tls_records(incoming), &mut self.outgoing, &mut self.plain)
            }
            Session::Acceptor(session) => {
                advance(session.process_tls_records(incoming), &mut self.outgoing, &mut self.plain)
            }
        }?;
        self.arrived.start += discarded;
        let still = match &self.session {
            Session::Connector(session) => session.is_handshaking(),
            Session::Acceptor(session) => session.is_handshaking(),
        };
        Ok(if next == Next::Traffic && still { Next::Arrival } else { next })
    }

    fn fill(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        self.incoming.copy_within(self.arrived.clone(), 0);
        self.arrived = 0..self.arrived.len();
        if self.arrived.end == self.incoming.len() {
            return Err(broken("a handshake that never ends"));
        }
        match socket.read(&mut self.incoming[self.arrived.end..]) {
            Ok(0) => return Err(hung_up()),
            Ok(bytes) => self.arrived.end += bytes,
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// As far as it goes; whoever calls looks at the deadline.
    fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        socket.write_all(&self.outgoing)?;
        self.outgoing.clear();
        Ok(())
    }
}

fn advance<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Vec<u8>,
    plain: &mut Vec<u8>,
) -> io::Result<(usize, Next)> {
    let mut discarded = status.discard;
    let next = match status.state.map_err(broken)? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(broken)?;
                plain.extend_from_slice(record.payload);
                discarded += record.discard;
            }
            Next::Again
        }
        ConnectionState::EncodeTlsData(mut message) => {
            let start = outgoing.len();
            outgoing.resize(start + BUFFER_BYTES, 0);
            let bytes = message.encode(&mut outgoing[start..]).map_err(broken)?;
            outgoing.truncate(start + bytes);
            Next::Again
        }
        // Encoded bytes wait in `outgoing`, which is flushed before anything is awaited.
        ConnectionState::TransmitTlsData(transmit) => {
            transmit.done();
            Next::Again
        }
        ConnectionState::WriteTraffic(_) => Next::Traffic,
        ConnectionState::BlockedHandshake => Next::Arrival,
        ConnectionState::PeerClosed | ConnectionState::Closed => return Err(hung_up()),
        // Early data is not enabled, and later versions of rustls may know more states.
        _ => return Err(broken("the session is in a state that was never asked for")),
    };
    Ok((discarded, next))
}

/// Bounds the next blocking read and write.
fn set_deadline(socket: &TcpStream, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it did not finish the TLS handshake in time; HOCKET_TLS must be the same on all ranks",
        ));
    }
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
