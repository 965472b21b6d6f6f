//! Headers of frames: a decoded header encodes to itself, and announces no more than a frame may have.

use hocket_ids::Rank;
use hocket_protocol::frame::{Data, Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use hocket_protocol::why::Why;
use hocket_protocol::word::{Part, Word};

pub fn run(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return };
    let Ok(frame) = Frame::decode(header) else { return };
    assert!(frame.payload_bytes() <= PAYLOAD_BYTES_MAX, "{frame:?}");
    assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
}

pub fn seeds() -> Vec<Vec<u8>> {
    [
        Frame::Data(Data { program: 1, instance: 2, op: 3, offset_bytes: 4, payload_bytes: 64 }),
        Frame::ClearToSend { program: 1, instance: 2, op: 3, tag: 4 },
        Frame::Offer { send: 1, tag: 2, bytes: 3 },
        Frame::Accept { send: 1, receive: 2, tag: 3 },
        Frame::Abort { rank: Rank(1), why: Why::Left, payload_bytes: 7 },
        Frame::Ask,
        Frame::Alive,
        Frame::Bye,
        Frame::Epoch { epoch: 2 },
        Frame::Sum { tag: 1, crc32c: 2 },
        Frame::Pushed { pieces: 3 },
        Frame::Word(Word::Exit { rank: Rank(1), code: 3 }),
        Frame::Word(Word::Inquiry { inquiry: 1, launch: Some((2, 3)) }),
        Frame::Word(Word::Waits { inquiry: 1, part: Part::Working, rank: Some(Rank(2)) }),
    ]
    .map(|frame| frame.encode().to_vec())
    .to_vec()
}
