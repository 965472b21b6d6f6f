//! A whole connection's bytes through the receiver: nothing lands outside the given memory, and the connection ends or
//! waits.

use hocket_ids::Rank;
use hocket_kernels::{DType, ReduceOp};
use hocket_protocol::checksum::seal;
use hocket_protocol::frame::{Data, Frame};
use hocket_protocol::why::Why;
use hocket_protocol::word::Word;
use hocket_wire::connection::{Receiver, Stream};
use hocket_wire::link::{Arrivals, Land, Landing, LinkError, Post};
use hocket_wire::memory::{Allocation, Arena};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// Length of the memory that frames may address; as much lies before and behind, which must not change.
const BYTES: usize = 4096;
const UNTOUCHED: u8 = 0x5a;
/// More than a socket accepts at once.
const INPUT_BYTES_MAX: usize = 64 * 1024;

struct Taker(Allocation);

impl Arrivals for Taker {
    /// `program` determines how a payload lands, so that fuzzers reach each way.
    fn landing(&mut self, data: &Data) -> Result<Landing, String> {
        let (dtype, wire) = (DType::F32, DType::F16);
        let payload = data.payload_bytes as usize;
        let (land, len) = match data.program % 3 {
            0 => (Land::Store, payload),
            1 => (Land::Cast { dtype, wire }, payload * 2),
            _ => (Land::Reduce { op: ReduceOp::Sum, dtype, wire }, payload * 2),
        };
        let start = data.offset_bytes as usize;
        let fits = start.checked_add(len).is_some_and(|end| end <= BYTES);
        if !fits || (len != payload && !payload.is_multiple_of(2)) {
            return Err("outside".into());
        }
        Ok(Landing { region: self.0.region().sub(BYTES + start, len), land })
    }

    fn landed(&mut self, _: &Data) {}

    fn posted(&mut self, _: Post) -> Result<(), String> {
        Ok(())
    }

    fn aborted(&mut self, _: Rank, _: Why, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The first byte decides whether frames must carry checksums.
pub fn run(bytes: &[u8]) {
    let Some((checksums, bytes)) = bytes.split_first() else { return };
    if bytes.len() > INPUT_BYTES_MAX {
        return;
    }
    let memory = Arena::new(0).unwrap().allocate(3 * BYTES).unwrap();
    memory.region().as_bytes_mut().fill(UNTOUCHED);
    let mut taker = Taker(memory);
    let (mut peer, ours) = UnixStream::pair().unwrap();
    peer.write_all(bytes).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let mut stream = Stream::Unix(ours);
    stream.set_nonblocking().unwrap();
    let mut receiver = Receiver::new(checksums % 2 == 1, 1);
    let end = loop {
        match receiver.receive(&mut stream, &mut taker, usize::MAX) {
            Ok(more) => assert!(more, "the peer has hung up, and the receiver waits"),
            Err(end) => break end,
        }
    };
    assert!(!matches!(end, LinkError::Io(_)), "{end}");
    let lies = taker.0.region().as_bytes();
    let outside = lies[..BYTES].iter().chain(&lies[2 * BYTES..]);
    assert!(outside.into_iter().all(|byte| *byte == UNTOUCHED), "bytes landed outside");
}

pub fn seeds() -> Vec<Vec<u8>> {
    [false, true]
        .map(|checksums| {
            let mut bytes = vec![u8::from(checksums)];
            for program in 0..3 {
                let data = Data { program, instance: 0, op: 0, offset_bytes: 8, payload_bytes: 16 };
                let mut header = Frame::Data(data).encode();
                let payload = [7; 16];
                if checksums {
                    seal(&mut header, &payload);
                }
                bytes.extend(header);
                bytes.extend(payload);
            }
            let exit = Frame::Word(Word::Exit { rank: Rank(1), code: 3 });
            for frame in [Frame::Ask, Frame::Offer { send: 1, tag: 2, bytes: 3 }, exit, Frame::Bye] {
                let mut header = frame.encode();
                if checksums {
                    seal(&mut header, &[]);
                }
                bytes.extend(header);
            }
            bytes
        })
        .to_vec()
}
