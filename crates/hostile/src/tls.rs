//! A caller's first bytes to an acceptor that speaks TLS: a caller that cannot answer is refused in time.

use hocket_wire::connection::tls::{Credentials, TlsStream};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(5);
/// More than a socket accepts at once.
const INPUT_BYTES_MAX: usize = 64 * 1024;

fn credentials() -> &'static Credentials {
    static OURS: OnceLock<Credentials> = OnceLock::new();
    OURS.get_or_init(|| Credentials::new().unwrap())
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (caller, listener.accept().unwrap().0)
}

pub fn run(bytes: &[u8]) {
    if bytes.len() > INPUT_BYTES_MAX {
        return;
    }
    let (mut caller, acceptor) = sockets();
    caller.write_all(bytes).unwrap();
    caller.shutdown(Shutdown::Write).unwrap();
    let accepted = TlsStream::accept(acceptor, credentials(), Instant::now() + TIMEOUT);
    assert!(accepted.is_err(), "who said all before it heard anything is let in");
}

/// The first bytes of a real caller, captured from the wire.
pub fn seeds() -> Vec<Vec<u8>> {
    let (caller, mut tap) = sockets();
    let calling = thread::spawn(move || {
        TlsStream::connect(caller, credentials(), Instant::now() + TIMEOUT).map(|_| ())
    });
    let mut bytes = vec![0; 4096];
    let have = tap.read(&mut bytes).unwrap();
    drop(tap);
    assert!(calling.join().unwrap().is_err());
    bytes.truncate(have);
    vec![bytes]
}
