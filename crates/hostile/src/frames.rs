//! Frames of a malicious or broken peer that knows the secret: well formed, nearly so, and not at all. The attacked
//! rank has two programs of 24 ops, and messages of 400 bytes. Deterministic from a seed, ten million within a minute.

use hocket_ids::Rank;
use hocket_protocol::checksum::seal;
use hocket_protocol::frame::{ABORT_BYTES_MAX, Data, Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use hocket_protocol::why::Why;
use hocket_protocol::word::{Part, Word};

/// Marsaglia's xorshift64.
pub struct Random(u64);

impl Random {
    /// From a seed other than 0.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    const fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A word of that launch, or of another rank's.
fn word(random: &mut Random, launch: (u32, u32)) -> Word {
    let rank = Rank(random.one_of(&[0, 1, 2, 3, u32::MAX - 1]));
    let inquiry = random.one_of(&[0, 1, 1 << 32, (1 << 32) + 1, u64::MAX]);
    match random.below(3) {
        0 => Word::Exit { rank, code: random.next() as u8 },
        1 => Word::Inquiry { inquiry, launch: (random.below(3) > 0).then_some(launch) },
        _ => {
            let part = random.one_of(&[Part::Absent, Part::Working, Part::Done]);
            Word::Waits { inquiry, part, rank: (random.below(3) > 0).then_some(rank) }
        }
    }
}

/// A frame, and the bytes that follow it; `message_tag` is the tag of open messages.
pub fn frame(random: &mut Random, message_tag: u64, bytes: &mut Vec<u8>) {
    bytes.clear();
    let (program, op) = (random.one_of(&[0, 0, 0, 0, 1, 1, 2, u32::MAX]), random.below(24) as u32);
    let instance = random.one_of(&[0, 0, 0, 0, 1, 2, u32::MAX, u32::MAX - 1]);
    let payload_bytes = random.one_of(&[0, 1, 2, 4, 100, 200, 400, 400, PAYLOAD_BYTES_MAX as u32, u32::MAX]);
    let offset_bytes = random.one_of(&[0, 0, 0, 2, 4, 100, 400, u64::MAX, u64::MAX - 400]);
    let mut header = match random.below(15) {
        0 => std::array::from_fn(|_| random.next() as u8),
        1..7 => Frame::Data(Data { program, instance, op, offset_bytes, payload_bytes }).encode(),
        7 | 8 => Frame::ClearToSend { program, instance, op, tag: offset_bytes }.encode(),
        9 => {
            let (rank, why) = (Rank(random.one_of(&[0, 1, 2, 3, u32::MAX])), random.one_of(&Why::ALL));
            Frame::Abort { rank, why, payload_bytes: payload_bytes.min(ABORT_BYTES_MAX as u32 + 1) }.encode()
        }
        10 => Frame::Bye.encode(),
        11 => {
            let bytes = random.one_of(&[400, 400, 0, 8, u64::MAX]);
            Frame::Offer { send: op, tag: random.one_of(&[message_tag, 0]), bytes }.encode()
        }
        13 => Frame::Word(word(random, (program, instance))).encode(),
        12 => Frame::Accept { send: random.below(6) as u32, receive: instance, tag: 0 }.encode(),
        _ => random
            .one_of(&[
                Frame::Ask,
                Frame::Alive,
                Frame::Epoch { epoch: 1 },
                Frame::Epoch { epoch: 2 },
                Frame::Sum { tag: 1, crc32c: 2 },
                Frame::Pushed { pieces: 3 },
            ])
            .encode(),
    };
    let follows = (random.below(3) > 0).then_some(payload_bytes.min(random.one_of(&[400, 1000])));
    let payload: Vec<u8> = (0..follows.unwrap_or(0)).map(|at| at as u8).collect();
    if random.below(4) == 0 {
        seal(&mut header, &payload);
    }
    if random.below(4) == 0 {
        let bit = random.below(HEADER_BYTES as u64 * 8) as usize;
        header[bit / 8] ^= 1 << (bit % 8);
    }
    bytes.extend_from_slice(&header);
    if Frame::decode(&header).is_ok_and(|frame| frame.payload_bytes() > 0) {
        bytes.extend_from_slice(&payload);
    }
}
