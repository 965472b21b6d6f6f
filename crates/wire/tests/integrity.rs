//! Damage between a transmitter and a receiver, bit by bit.

#![expect(clippy::unwrap_used, reason = "a test")]

use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_protocol::frame::{Data, Frame, HEADER_BYTES};
use hocket_protocol::why::Why;
use hocket_wire::connection::{Outcome, Outgoing, Receiver, Stream, Transmitter};
use hocket_wire::link::{Arrivals, Cards, Land, Landing, LinkError, Message, Post};
use hocket_wire::memory::{Allocation, Arena};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

const ELEMENTS: usize = 40;

/// Receives one message and records the events.
struct Taker {
    memory: Allocation,
    land: Land,
    landed: usize,
    announced: Vec<(u32, u32, u32)>,
    aborted: Option<(Rank, Why, String)>,
}

impl Taker {
    fn new(land: Land) -> Self {
        let memory = Arena::new(0).unwrap().allocate(ELEMENTS * 4).unwrap();
        Self { memory, land, landed: 0, announced: Vec::new(), aborted: None }
    }
}

impl Arrivals for Taker {
    fn landing(&mut self, data: &Data) -> Result<Landing, String> {
        let wanted = match self.land {
            Land::Store => ELEMENTS * 4,
            Land::Cast { wire, .. } | Land::Reduce { wire, .. } => ELEMENTS * wire.bytes(),
        };
        if data.payload_bytes as usize != wanted {
            return Err("another size".into());
        }
        Ok(Landing { region: self.memory.region().clone(), land: self.land })
    }
    fn landed(&mut self, _: &Data) {
        self.landed += 1;
    }
    fn posted(&mut self, post: Post) -> Result<(), String> {
        let Post::Posted { program, instance, op, .. } = post else { return Err("another post".into()) };
        self.announced.push((program, instance, op));
        Ok(())
    }
    fn aborted(&mut self, rank: Rank, why: Why, text: &str) -> Result<(), String> {
        self.aborted = Some((rank, why, text.into()));
        Ok(())
    }
}

/// The bytes that a transmitter writes: an announcement, a message, an abort.
fn sent(checksums: bool, wire: DType) -> Vec<u8> {
    let memory = Arena::new(0).unwrap().allocate(ELEMENTS * 4).unwrap();
    for (at, bytes) in memory.region().as_bytes_mut().chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&(at as f32).to_le_bytes());
    }
    let outgoing = Mutex::new(Outgoing::new(checksums, 1, 1));
    outgoing.lock().unwrap().control(Frame::ClearToSend { program: 5, instance: 6, op: 7, tag: 0 }, &[]);
    outgoing.lock().unwrap().message(Message {
        cards: Cards::ALL,
        priority: 0,
        program: 1,
        instance: 2,
        op: 3,
        peer_op: 4,
        region: memory.region().clone(),
        dtype: DType::F32,
        wire,
    });
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut stream = Stream::Unix(ours);
    let mut transmitter = Transmitter::new(0, None);
    for last_words in [false, true] {
        if last_words {
            outgoing
                .lock()
                .unwrap()
                .control(Frame::Abort { rank: Rank(2), why: Why::Failed, payload_bytes: 4 }, b"full");
        }
        let outcome = transmitter.transmit(&mut stream, &outgoing, 1 << 20, |_| ()).unwrap();
        assert_eq!(outcome, Outcome::Idle);
    }
    drop(stream);
    let mut bytes = Vec::new();
    theirs.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Receives `bytes`, cut in two, until the connection ends.
fn receive(bytes: &[u8], cut: usize, taker: &mut Taker) -> LinkError {
    let (mut theirs, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut stream = Stream::Unix(ours);
    let mut receiver = Receiver::new(true, 1);
    theirs.write_all(&bytes[..cut]).unwrap();
    if let Err(error) = receiver.receive(&mut stream, taker, 1 << 20) {
        return error;
    }
    theirs.write_all(&bytes[cut..]).unwrap();
    drop(theirs);
    receiver.receive(&mut stream, taker, 1 << 20).unwrap_err()
}

/// A cable that flips a bit would silently train a wrong model.
#[test]
fn every_flipped_bit_is_noticed() {
    let cast = Land::Cast { dtype: DType::F32, wire: DType::F16 };
    let reduce = Land::Reduce { op: ReduceOp::Sum, dtype: DType::F32, wire: DType::F32 };
    for (wire, land) in [(DType::F32, Land::Store), (DType::F16, cast), (DType::F32, reduce)] {
        let bytes = sent(true, wire);
        let mut taker = Taker::new(land);
        let whole = receive(&bytes, bytes.len() / 2, &mut taker);
        assert!(matches!(whole, LinkError::Closed), "{whole}");
        assert_eq!((taker.landed, taker.announced.as_slice()), (1, [(5, 6, 7)].as_slice()));
        assert_eq!(taker.aborted, Some((Rank(2), Why::Failed, "full".into())));

        let payload = 2 * HEADER_BYTES..bytes.len() - HEADER_BYTES - 4;
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut taker = Taker::new(land);
            let error = receive(&damaged, bit * 7 % bytes.len(), &mut taker);
            let passed = taker.landed == 1 && taker.announced.len() == 1 && taker.aborted.is_some();
            assert!(!passed, "bit {bit} of {} passed: {error}", bytes.len() * 8);
            assert!(taker.announced.iter().all(|&said| said == (5, 6, 7)), "bit {bit} announced another op");
            // No header is misread, and no payload of another length waited for.
            assert!(matches!(error, LinkError::Damaged { .. }), "bit {bit}: {error}");
            if payload.contains(&(bit / 8)) {
                assert_eq!(taker.landed, 0, "bit {bit}");
            }
        }
    }
}

/// A rank without checksums would take part in a job that relies on them.
#[test]
fn a_frame_without_a_checksum_is_refused() {
    let bytes = sent(false, DType::F32);
    let error = receive(&bytes, bytes.len() / 2, &mut Taker::new(Land::Store));
    assert!(error.to_string().contains("HOCKET_CHECKSUM"), "{error}");
}
