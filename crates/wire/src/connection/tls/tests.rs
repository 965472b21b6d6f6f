//! TLS sessions deliver every byte, whatever the sizes of writes and reads, and reject anything else.

use super::{Credentials, Session, TlsStream};
use proptest::prelude::*;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(10);

fn said(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 251) as u8).collect()
}

/// The plain bytes that a side sends.
fn sent(session: &mut Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_to(&mut bytes).unwrap();
    }
    bytes
}

/// The plain bytes that a side receives when `bytes` arrive in pieces.
fn heard(session: &mut Session, bytes: &[u8], piece: usize, room: usize) -> std::io::Result<Vec<u8>> {
    let mut heard = Vec::new();
    for mut piece in bytes.chunks(piece) {
        while !piece.is_empty() {
            session.handle(&mut piece)?;
            let mut part = vec![0; room];
            while let have @ 1.. = session.read(&mut part) {
                heard.extend_from_slice(&part[..have]);
            }
        }
    }
    Ok(heard)
}

/// Whether `at` is a byte of a record's header that says nothing in TLS 1.3: the type and version for middleboxes.
///
/// The header has the length, too, and what is sealed has the true type (RFC 8446, sections 5.1 and 5.2).
fn says_nothing(bytes: &[u8], at: usize) -> bool {
    let length = |record: usize| usize::from(u16::from_be_bytes([bytes[record + 3], bytes[record + 4]]));
    let mut record = 0;
    while record + 5 + length(record) <= at {
        record += 5 + length(record);
    }
    at < record + 3
}

/// Two sides after their handshake.
fn sessions() -> [Session; 2] {
    let credentials = Credentials::new().unwrap();
    let mut ends = [Session::connector(&credentials).unwrap(), Session::acceptor(&credentials).unwrap()];
    while ends.iter().any(|end| end.binding().unwrap().is_none()) {
        for from in [0, 1] {
            let bytes = sent(&mut ends[from]);
            heard(&mut ends[1 - from], &bytes, 1 << 16, 1).unwrap();
        }
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Bytes would be lost, doubled or moved where boundaries of records, reads and network data meet.
    #[test]
    fn bytes_come_through_in_pieces_of_any_size(
        sizes in prop::collection::vec(prop_oneof![1..100usize, 16_000..=40_000usize], 1..8),
        piece in prop_oneof![1..200usize, 1000..50_000usize],
        room in 1..20_000usize,
    ) {
        let [mut ours, mut theirs] = sessions();
        for size in sizes {
            let said = said(size);
            let (one, two) = said.split_at(size.min(32));
            prop_assert_eq!(ours.write(&[IoSlice::new(one), IoSlice::new(two)]).unwrap(), size);
            let bytes = sent(&mut ours);
            prop_assert!(heard(&mut theirs, &bytes, piece, room).unwrap() == said);
        }
    }

    /// An attacker between two ranks could change a gradient, or crash a rank.
    #[test]
    fn damage_is_an_error(size in 1..40_000usize, at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let [mut ours, mut theirs] = sessions();
        let said = said(size);
        ours.write(&[IoSlice::new(&said)]).unwrap();
        let mut bytes = sent(&mut ours);
        let at = at.index(bytes.len());
        let harmless = says_nothing(&bytes, at);
        bytes[at] ^= flip;
        // After a length that grew, the session waits for the rest of a record, which never comes.
        match heard(&mut theirs, &bytes, 1 << 16, 1 << 16) {
            Ok(heard) => prop_assert!(said.starts_with(&heard) && (heard.len() < said.len() || harmless)),
            Err(error) => prop_assert_eq!(error.kind(), std::io::ErrorKind::InvalidData),
        }
    }
}

/// Each byte of a header is tried: few of the random places above are in one.
#[test]
fn a_damaged_header_changes_no_data() {
    for (at, flip) in (0..5).flat_map(|at| (1..=255).map(move |flip| (at, flip))) {
        let [mut ours, mut theirs] = sessions();
        let said = said(2143);
        ours.write(&[IoSlice::new(&said)]).unwrap();
        let mut bytes = sent(&mut ours);
        bytes[at] ^= flip;
        match heard(&mut theirs, &bytes, 1 << 16, 1 << 16) {
            Ok(heard) => assert!(heard.is_empty() || (heard == said && at < 3), "{at}, {flip}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{at}, {flip}"),
        }
    }
}

/// A record that is repeated, left out or reordered would be taken for the next one.
#[test]
fn records_have_their_order() {
    for order in [&[0, 0][..], &[1], &[0, 2], &[1, 0]] {
        let [mut ours, mut theirs] = sessions();
        let records = [0, 1, 2].map(|at| {
            ours.write(&[IoSlice::new(&[at; 9])]).unwrap();
            sent(&mut ours)
        });
        let bytes: Vec<u8> = order.iter().flat_map(|at| records[*at].clone()).collect();
        let error = heard(&mut theirs, &bytes, 1 << 16, 100).unwrap_err();
        assert!(error.to_string().contains("changed on its way"), "{error}");
    }
}

/// A man in the middle holds two sessions: a proof made for one would fit the other.
#[test]
fn each_session_has_its_binding() {
    let [ours, theirs] = sessions().map(|end| end.binding().unwrap());
    assert_eq!(ours, theirs);
    assert_ne!(ours, sessions()[0].binding().unwrap());
}

/// Data that a peer does not read would grow without bound in our memory.
#[test]
fn what_is_sealed_is_bounded() {
    let [mut ours, _] = sessions();
    let said = said(1 << 20);
    let taken = ours.write(&[IoSlice::new(&said)]).unwrap();
    assert!(0 < taken && taken <= 128 * 1024, "{taken}");
    assert_eq!(ours.write(&[IoSlice::new(&said[taken..])]).unwrap(), 0);
    assert!(sent(&mut ours).len() < 2 * 128 * 1024);
}

fn streams() -> (TlsStream, TlsStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let theirs = listener.accept().unwrap().0;
    let credentials = Credentials::new().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    thread::scope(|scope| {
        let connecting = scope.spawn(|| TlsStream::connect(ours, &credentials, deadline).unwrap());
        let accepted = TlsStream::accept(theirs, &credentials, deadline).unwrap();
        (connecting.join().unwrap(), accepted)
    })
}

/// Streams could lose or double bytes where the system accepts or returns them in parts.
#[test]
fn megabytes_come_through_a_socket() {
    let (mut ours, mut theirs) = streams();
    let said = said(3 << 20);
    let expected = said.clone();
    let hearing = thread::spawn(move || {
        let mut all = vec![0; expected.len()];
        let mut have = 0;
        while have < all.len() {
            let left = all.len() - have;
            let (one, rest) = all[have..].split_at_mut(left.min(70_000));
            let came = theirs.readv(&mut [IoSliceMut::new(one), IoSliceMut::new(rest)]).unwrap();
            assert_ne!(came, 0, "an end after {have}");
            have += came;
        }
        assert!(all == expected);
        assert_eq!(theirs.readv(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap(), 0);
    });
    let mut left = &said[..];
    while !left.is_empty() {
        let (header, payload) = left.split_at(left.len().min(32));
        left = &left[ours.writev(&[IoSlice::new(header), IoSlice::new(payload)]).unwrap()..];
    }
    assert!(ours.flush().unwrap());
    ours.socket().shutdown(Shutdown::Write).unwrap();
    hearing.join().unwrap();
}

/// A stranger that trickles a byte at a time, or sends nothing, would hold the listener for ever.
#[test]
fn a_handshake_ends_at_its_deadline() {
    for trickles in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        let deadline = Instant::now() + Duration::from_millis(200);
        let accepting =
            thread::spawn(move || TlsStream::accept(accepted, &Credentials::new().unwrap(), deadline));
        // The first bytes of a handshake record of 512 bytes.
        for byte in [22, 3, 1, 2, 0].into_iter().cycle().take(if trickles { 40 } else { 0 }) {
            if stranger.write_all(&[byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let error = accepting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
        drop(stranger.read(&mut [0; 16]));
    }
}
