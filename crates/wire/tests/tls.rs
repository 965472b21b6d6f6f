//! Access to a mesh over TLS: its ranks get in, also through a relay that only carries bytes, and nobody who opens the
//! records.

#![expect(clippy::unwrap_used, reason = "a test")]

use hocket_ids::Rank;
use hocket_wire::connection::Stream;
use hocket_wire::connection::tls::{Credentials, TlsStream};
use hocket_wire::endpoint::{Endpoints, Options, Own};
use hocket_wire::identity::{Address, Identity};
use hocket_wire::listener::Listener;
use hocket_wire::memory::Arena;
use hocket_wire::mesh::{Mesh, MeshError};
use hocket_wire::poll::Waker;
use hocket_wire::transports::ALL;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(3);

fn identity(rank: u32, tls: bool) -> Identity {
    let tls = tls.then(|| Arc::new(Credentials::new().unwrap()));
    Identity { rank: Rank(rank), job: "tls".into(), secret: b"secret".to_vec(), tls, checksums: false }
}

type Met = Result<Mesh, MeshError>;

/// The results of ranks 0 and 1 on two hosts, where rank 1 reaches rank 0 at `between`.
fn meet(tls: [bool; 2], between: impl Fn(SocketAddr) -> SocketAddr) -> [Met; 2] {
    let identities = [identity(0, tls[0]), identity(1, tls[1])];
    let [lower, higher] = identities
        .each_ref()
        .map(|own| Listener::open(&[[127, 0, 0, 1].into()], &(0..=0), own.clone()).unwrap());
    let address = |tcp, host: &str| Address { tcp: vec![tcp], host: host.into(), streams: 1 };
    let peers = [address(between(lower.addresses()[0]), "a"), address(higher.addresses()[0], "b")];
    let connect = |mut listener: Listener, own: &Identity| {
        let (arena, waker) = (Arena::new(0).unwrap(), Waker::new().unwrap());
        let (wire, host, bind) = ("tcp".into(), String::new(), Vec::new());
        let options =
            Options { wire, host, bind, ports: 0..=0, tls: true, elastic: None, emulated_links: None };
        let endpoints = &Endpoints::open(ALL, &options, &arena).unwrap();
        let shared = Own { arena: &arena, waker: &waker, life: None, endpoints };
        listener.connect(own, &peers, &[Rank(1 - own.rank.0)], shared, TIMEOUT, None)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| connect(higher, &identities[1]));
        [connect(lower, &identities[0]), other.join().unwrap()]
    })
}

/// Accepts callers for `target` and passes both ends to `serve`.
fn relay(target: SocketAddr, serve: fn(TcpStream, TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let until = Instant::now() + TIMEOUT * 2;
        while let Ok((caller, _)) = listener.accept()
            && Instant::now() < until
        {
            if let Ok(listener) = TcpStream::connect(target) {
                thread::spawn(move || serve(caller, listener));
            }
        }
    });
    address
}

fn carry(caller: TcpStream, listener: TcpStream) {
    let pump = |mut from: TcpStream, mut to: TcpStream| thread::spawn(move || io::copy(&mut from, &mut to));
    let there = pump(caller.try_clone().unwrap(), listener.try_clone().unwrap());
    let back = pump(listener, caller);
    drop((there.join(), back.join()));
}

/// Two sessions, one with each side; each relays the other's plain bytes.
fn open_and_pass_on(caller: TcpStream, listener: TcpStream) {
    let deadline = Instant::now() + TIMEOUT;
    let credentials = Credentials::new().unwrap();
    let Ok(mut caller) = TlsStream::accept(caller, &credentials, deadline) else { return };
    let Ok(mut listener) = TlsStream::connect(listener, &credentials, deadline) else { return };
    for stream in [&caller, &listener] {
        stream.socket().set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    }
    let pass = |from: &mut TlsStream, to: &mut TlsStream| -> io::Result<()> {
        let mut bytes = [0; 4096];
        match from.readv(&mut [IoSliceMut::new(&mut bytes)]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(have) => to.writev(&[IoSlice::new(&bytes[..have])]).map(|_| ()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    };
    while Instant::now() < deadline {
        if pass(&mut caller, &mut listener).is_err() || pass(&mut listener, &mut caller).is_err() {
            return;
        }
    }
}

/// Ranks could not meet over TLS, or their messages would not come through.
#[test]
fn ranks_meet_through_a_carrier() {
    let [zero, one] = meet([true; 2], |listener| relay(listener, carry));
    let stream = |met: Met| met.unwrap().connections.remove(0).unwrap().streams.remove(0);
    let mut ends = [stream(zero), stream(one)];
    assert!(ends.iter().all(|end| matches!(end, Stream::Tls(_))));
    let said: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
    let [ours, theirs] = &mut ends;
    let (mut sent, mut heard) = (0, Vec::new());
    let deadline = Instant::now() + TIMEOUT;
    while heard.len() < said.len() && Instant::now() < deadline {
        if sent < said.len() {
            sent += ours.write(&said[sent..]).or_else(none_yet).unwrap();
        } else {
            ours.flush().or_else(|error| none_yet(error).map(|_| ())).unwrap();
        }
        let mut bytes = [0; 5000];
        let have = theirs.read(&mut bytes).or_else(none_yet).unwrap();
        heard.extend_from_slice(&bytes[..have]);
    }
    assert!(heard == said);
}

fn none_yet(error: io::Error) -> io::Result<usize> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) }
}

/// A man in the middle who speaks TLS to both sides could read every gradient.
#[test]
fn nobody_in_the_middle_is_let_in() {
    let [zero, one] = meet([true; 2], |listener| relay(listener, open_and_pass_on));
    assert!(zero.is_err());
    let why = one.err().unwrap().to_string();
    assert!(why.contains("rank 0 on a (") && why.contains("secret"), "{why}");
}

/// A rank configured to encrypt would send in the clear to one that was not.
#[test]
fn one_side_in_the_clear_is_refused() {
    for tls in [[true, false], [false, true]] {
        let [zero, one] = meet(tls, |listener| listener);
        assert!(zero.is_err() && one.is_err(), "{tls:?}");
    }
}

/// A caller's first bytes, captured from the wire.
fn first_flight() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut tap, _) = listener.accept().unwrap();
    let calling = thread::spawn(move || {
        TlsStream::connect(caller, &Credentials::new().unwrap(), Instant::now() + TIMEOUT).map(|_| ())
    });
    let mut bytes = vec![0; 4096];
    let have = tap.read(&mut bytes).unwrap();
    drop(tap);
    assert!(calling.join().unwrap().is_err());
    bytes.truncate(have);
    bytes
}

/// A stranger's bytes are the first that TLS parses: they could crash a rank, or block it.
#[test]
fn damaged_handshakes_end_in_an_error() {
    let flight = first_flight();
    let credentials = Credentials::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |end: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % end
    };
    for _ in 0..500 {
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (listener, _) = listener.accept().unwrap();
        let mut bytes = flight.clone();
        for _ in 0..=random(8) {
            let at = random(bytes.len());
            bytes[at] = random(256) as u8;
        }
        bytes.truncate(1 + random(bytes.len()));
        stranger.write_all(&bytes).unwrap();
        stranger.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(TlsStream::accept(listener, &credentials, Instant::now() + TIMEOUT).is_err());
    }
}
