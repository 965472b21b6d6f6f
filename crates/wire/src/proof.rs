//! Proves the job's secret over a new stream, from either side; within TLS if the stream leads to another host and the
//! job asks for it.

use crate::connection::Stream;
use crate::connection::tls::TlsStream;
use crate::identity::Identity;
use hocket_protocol::handshake::{
    Acceptor, CHALLENGE_BYTES, Connector, HELLO_BYTES, HandshakeError, LaneId, NONCE_BYTES, PROOF_BYTES,
    WELCOME,
};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// How long a caller may take to prove the secret.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

fn refused(error: HandshakeError) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

/// The caller at the other end of `stream`, once it has proved the secret; waits 5 s at most.
pub(crate) fn admit(identity: &Identity, stream: Stream) -> io::Result<(LaneId, Stream)> {
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut stream = match (stream, &identity.tls) {
        (Stream::Tcp(tcp), Some(tls)) => Stream::Tls(Box::new(TlsStream::accept(tcp, tls, deadline)?)),
        (stream, _) => stream,
    };
    let mut hello = [0; HELLO_BYTES];
    read_until(&mut stream, &mut hello, deadline)?;
    let acceptor =
        Acceptor::handle_hello(&identity.secret, identity.rank, &hello, nonce()?).map_err(refused)?;
    let binding = stream.binding().to_vec();
    let acceptor = acceptor.bound_to(&binding);
    write_now(&mut stream, &acceptor.challenge())?;
    let mut proof = [0; PROOF_BYTES];
    read_until(&mut stream, &mut proof, deadline)?;
    let id = acceptor.handle_proof(&proof).map_err(refused)?;
    write_now(&mut stream, &[WELCOME])?;
    Ok((id, stream))
}

fn write_now(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// Fills `buffer` before `deadline`, however slowly bytes trickle in.
fn read_until(stream: &mut Stream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut have = 0;
    while have < buffer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it did not finish the handshake in time"));
        }
        stream.set_deadline(left)?;
        match stream.read(&mut buffer[have..]) {
            Ok(0) => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up during the handshake"));
            }
            Ok(bytes) => have += bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Proves the secret to the rank at the other end of `stream` over the connection `id`; that rank proves that it knows the secret,
/// too.
pub(crate) fn introduce(
    identity: &Identity,
    stream: Stream,
    id: LaneId,
    deadline: Instant,
) -> io::Result<Stream> {
    let mut stream = match (stream, &identity.tls) {
        (Stream::Tcp(tcp), Some(tls)) => Stream::Tls(Box::new(TlsStream::connect(tcp, tls, deadline)?)),
        (stream, _) => stream,
    };
    let binding = stream.binding().to_vec();
    let connector = Connector::new(&identity.secret, id, nonce()?).bound_to(&binding);
    write_now(&mut stream, &connector.hello())?;
    let mut challenge = [0; CHALLENGE_BYTES];
    read_until(&mut stream, &mut challenge, deadline)?;
    write_now(&mut stream, &connector.handle_challenge(&challenge).map_err(refused)?)?;
    let mut welcome = [0];
    read_until(&mut stream, &mut welcome, deadline)?;
    Ok(stream)
}
