//! Our records against rustls' own, against damage, and against readers and writers of any size.

use super::exporter::Exporter;
use super::incoming::{Incoming, Met};
use super::protection::{CONTENT_BYTES_MAX, Kind, OVERHEAD_BYTES, Protection};
use super::room::Room;
use super::{Credentials, TlsStream};
use proptest::prelude::*;
use rustls::ConnectionTrafficSecrets;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(10);

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

fn said(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 251) as u8).collect()
}

fn send(stream: &mut TlsStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (header, payload) = bytes.split_at(bytes.len().min(32));
        bytes = &bytes[stream.writev(&[IoSlice::new(header), IoSlice::new(payload)]).unwrap()..];
    }
    assert!(stream.flush().unwrap());
}

fn receive(stream: &mut TlsStream, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    let mut have = 0;
    while have < bytes {
        let (one, rest) = all[have..].split_at_mut((bytes - have).min(70_000));
        let came = stream.readv(&mut [IoSliceMut::new(one), IoSliceMut::new(rest)]).unwrap();
        assert_ne!(came, 0, "an end after {have} of {bytes}");
        have += came;
    }
    all
}

/// Says `said` to the other side, hears it back, changes its key and does it again.
fn echo<C, Data>(stream: &mut rustls::Stream<'_, C, TcpStream>, said: &[u8])
where
    C: DerefMut + Deref<Target = rustls::ConnectionCommon<Data>>,
    Data: rustls::SideData,
{
    for _ in 0..2 {
        let mut heard = vec![0; said.len()];
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == said);
        stream.conn.refresh_traffic_keys().unwrap();
        stream.write_all(&heard).unwrap();
        stream.flush().unwrap();
    }
}

/// What we send would not be TLS 1.3: rustls' own implementation is the judge, of both sides, also when keys change. In
/// tests ours change after 64 records, so a megabyte sees that too.
#[test]
fn rustls_understands_us() {
    let said = said(3 << 20);
    let credentials = Credentials::new().unwrap();
    for we_connect in [true, false] {
        let exporters = [Arc::new(Exporter::default()), Arc::new(Exporter::default())];
        let (mut connector, mut acceptor) = credentials.buffered(&exporters).unwrap();
        let (ours, mut theirs) = sockets();
        let expected = said.clone();
        let peer = thread::spawn(move || {
            if we_connect {
                echo(&mut rustls::Stream::new(&mut acceptor, &mut theirs), &expected);
            } else {
                echo(&mut rustls::Stream::new(&mut connector, &mut theirs), &expected);
            }
        });
        let make = if we_connect { TlsStream::connect } else { TlsStream::accept };
        let mut stream = make(ours, &credentials, Instant::now() + TIMEOUT).unwrap();
        for _ in 0..2 {
            send(&mut stream, &said);
            assert!(receive(&mut stream, said.len()) == said);
        }
        peer.join().unwrap();
        assert_eq!(stream.readv(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap(), 0);
    }
}

/// Two halves of one direction.
fn direction() -> (Protection, Protection) {
    let secrets = ConnectionTrafficSecrets::Chacha20Poly1305 { key: [3; 32].into(), iv: [5; 12].into() };
    (Protection::new(0, &secrets).unwrap(), Protection::new(0, &secrets).unwrap())
}

fn record(sealing: &mut Protection, kind: Kind, content: &[u8]) -> Vec<u8> {
    let mut record = vec![0; content.len() + OVERHEAD_BYTES];
    assert_eq!(sealing.seal(kind, content, &mut record).unwrap(), record.len());
    record
}

/// All that a reader with room for `room` bytes at a time gets from what comes in pieces of `piece` bytes.
fn read_all(opening: Protection, bytes: &[u8], piece: usize, room: [usize; 2]) -> io::Result<Vec<u8>> {
    let mut incoming = Incoming::new(opening, &[], &[])?;
    let mut pieces = bytes.chunks(piece);
    let mut heard = Vec::new();
    loop {
        let (mut one, mut two) = (vec![0; room[0]], vec![0; room[1]]);
        let mut slices = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        let mut into = Room::new(&mut slices);
        let met = incoming.take(&mut into)?;
        let filled = into.filled();
        one.extend_from_slice(&two);
        heard.extend_from_slice(&one[..filled]);
        if met == Met::End {
            return Ok(heard);
        }
        if met == Met::Nothing {
            let Some(mut piece) = pieces.next() else { return Ok(heard) };
            while !piece.is_empty() {
                let before = piece.len();
                assert_ne!(incoming.fill(&mut piece)?, 0, "of {before} bytes none is taken");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Bytes would be lost, doubled or moved where records, reads and what the system gives meet at odd places.
    #[test]
    fn records_come_through_rooms_of_any_size(
        sizes in prop::collection::vec(prop_oneof![1..100usize, 16_000..=CONTENT_BYTES_MAX], 1..8),
        piece in prop_oneof![1..200usize, 1000..50_000usize],
        room in [1..20_000usize, 0..20_000usize],
    ) {
        let (mut sealing, opening) = direction();
        let said = said(sizes.iter().sum());
        let (mut bytes, mut at) = (Vec::new(), 0);
        for size in sizes {
            bytes.extend(record(&mut sealing, Kind::Data, &said[at..at + size]));
            at += size;
        }
        prop_assert!(read_all(opening, &bytes, piece, room).unwrap() == said);
    }

    /// Whoever sits between could change a gradient, or crash a rank.
    #[test]
    fn damage_is_an_error(
        sizes in prop::collection::vec(1..300usize, 1..5),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
        room in [1..400usize, 0..400usize],
    ) {
        let (mut sealing, opening) = direction();
        let said = said(sizes.iter().sum());
        let (mut bytes, mut start) = (Vec::new(), 0);
        for size in sizes {
            bytes.extend(record(&mut sealing, Kind::Data, &said[start..start + size]));
            start += size;
        }
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        // After a length that grew, the rest of a record is awaited that never comes.
        match read_all(opening, &bytes, 1 << 16, room) {
            Ok(heard) => prop_assert!(heard.len() < said.len() && said.starts_with(&heard)),
            Err(error) => prop_assert_eq!(error.kind(), io::ErrorKind::InvalidData),
        }
    }

    /// Bytes of strangers would crash a rank.
    #[test]
    fn any_bytes_are_refused_or_awaited(bytes in prop::collection::vec(any::<u8>(), 0..600), as_record: bool) {
        let (_, opening) = direction();
        let mut bytes = bytes;
        if as_record && bytes.len() > 5 {
            let body = (bytes.len() - 5) as u16;
            bytes[..3].copy_from_slice(&[23, 3, 3]);
            bytes[3..5].copy_from_slice(&body.to_be_bytes());
        }
        prop_assert!(read_all(opening, &bytes, 100, [50, 50]).map_or(true, |heard| heard.is_empty()));
    }
}

/// A record that is sent twice, left out or overtaken would be taken for the next one.
#[test]
fn records_have_their_order() {
    let (mut sealing, _) = direction();
    let records = [0, 1, 2].map(|at| record(&mut sealing, Kind::Data, &[at; 9]));
    for order in [&[0, 0][..], &[1], &[0, 2], &[1, 0]] {
        let bytes: Vec<u8> = order.iter().flat_map(|at| records[*at].clone()).collect();
        let error = read_all(direction().1, &bytes, 1 << 16, [100, 0]).unwrap_err();
        assert!(error.to_string().contains("changed on its way"), "{error}");
    }
}

/// A peer could keep us busy for ever without a byte, or say what ends a session in silence.
#[test]
fn what_carries_nothing_is_bounded_and_named() {
    let read = |records: &[(Kind, &[u8])]| {
        let (mut sealing, opening) = direction();
        let bytes: Vec<u8> =
            records.iter().flat_map(|(kind, content)| record(&mut sealing, *kind, content)).collect();
        read_all(opening, &bytes, 1 << 16, [100, 0])
    };
    assert!(read(&[(Kind::Data, &[][..]); 32]).unwrap().is_empty());
    assert!(read(&[(Kind::Data, &[][..]); 33]).unwrap_err().to_string().contains("carry nothing"));
    assert_eq!(read(&[(Kind::Data, b"a"), (Kind::Alert, &[1, 0]), (Kind::Data, b"b")]).unwrap(), b"a");
    assert!(read(&[(Kind::Alert, &[2, 20])]).unwrap_err().to_string().contains("alert 20"));
    for (kind, content) in [
        (Kind::Alert, &[1, 0, 0][..]),
        (Kind::Handshake, &[24, 0, 0, 1]),
        (Kind::Handshake, &[24, 0, 0, 1, 2]),
        (Kind::Handshake, &[4, 0, 0, 1, 0]),
    ] {
        assert!(read(&[(kind, content)]).unwrap_err().to_string().contains("makes no sense"), "{content:?}");
    }
}
