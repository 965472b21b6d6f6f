//! The frames that cross a connection once both sides have proved the job's secret.
//!
//! A frame is a fixed header of 32 bytes, little-endian, and `payload_bytes` of payload. `op` is always the index of
//! the *receiver's* own instruction, so the receiver needs no hash lookup. A flag marks headers that carry a checksum
//! (`checksum`). Knows nothing of sockets or programs.

pub use crate::header::{FrameError, HEADER_BYTES, NO_PROGRAM, PAYLOAD_BYTES_MAX};
use crate::why::Why;
use crate::word::Word;
use hocket_ids::Rank;

/// Limit of an abort's text.
pub const ABORT_BYTES_MAX: usize = 4096;

/// Position of the flags in a header.
pub(crate) const FLAGS_AT: usize = 1;
/// Flag: the header carries a checksum.
pub(crate) const SEALED: u8 = 1;
/// Position of the header's own sum of two bytes; zero without the flag.
pub(crate) const HEADER_SUM_AT: usize = 2;
/// Position of the checksum; zero without the flag.
pub(crate) const CHECKSUM_AT: usize = 28;

const _: () = assert!(ABORT_BYTES_MAX <= PAYLOAD_BYTES_MAX);

/// The meaning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The receive that matches instruction `op` of the addressee is posted: data may flow.
    ClearToSend {
        /// Program number.
        program: u32,
        /// Launch count of the program.
        instance: u32,
        /// The addressee's send instruction.
        op: u32,
        /// Tag of the message's first piece on a fabric, or 0.
        tag: u64,
    },
    /// Payload of a message.
    Data(Data),
    /// The sender offers a message of no program.
    Offer {
        /// The sender's number of the send.
        send: u32,
        /// Must equal the receive's tag.
        tag: u64,
        /// Length of the message.
        bytes: u64,
    },
    /// A receive accepts that offer: data may flow.
    Accept {
        /// The addressee's number of the send.
        send: u32,
        /// The sender's number of the receive.
        receive: u32,
        /// Tag of the message's first piece on a fabric, or 0.
        tag: u64,
    },
    /// The sender reports that the job failed; the payload is the reason as text (UTF-8).
    Abort {
        /// The rank at fault: the sender, or a rank that it reports.
        rank: Rank,
        /// The reason.
        why: Why,
        /// Length of the text.
        payload_bytes: u32,
    },
    /// The sender leaves in order; nothing follows.
    Bye,
    /// A probe: the sender waits and hears nothing.
    Ask,
    /// The reply to a probe.
    Alive,
    /// An epoch of members begins on this lane: whatever follows is of it.
    Epoch {
        /// Its number.
        epoch: u64,
    },
    /// The sum of a piece of a message that crosses a fabric, not this connection.
    Sum {
        /// The piece's tag.
        tag: u64,
        /// CRC32C of its bytes.
        crc32c: u32,
    },
    /// So many pieces have crossed a fabric in this epoch, and no more will: said before goodbye.
    Pushed {
        /// Their number.
        pieces: u64,
    },
    /// About waits and ends.
    Word(Word),
}

/// Position of a data frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Program number.
    pub program: u32,
    /// Launch count of the program.
    pub instance: u32,
    /// The addressee's receive instruction.
    pub op: u32,
    /// Position of the payload in the message, in bytes on the wire.
    pub offset_bytes: u64,
    /// Length of the payload, at most [`PAYLOAD_BYTES_MAX`].
    pub payload_bytes: u32,
}

const CLEAR_TO_SEND: u8 = 1;
const DATA: u8 = 2;
const ABORT: u8 = 3;
const BYE: u8 = 4;
const OFFER: u8 = 5;
const ACCEPT: u8 = 6;
const ASK: u8 = 7;
const ALIVE: u8 = 8;
const EPOCH: u8 = 9;
const SUM: u8 = 10;
const PUSHED: u8 = 11;

impl Frame {
    /// Length of the payload that follows the header.
    pub const fn payload_bytes(&self) -> usize {
        match self {
            Self::Data(data) => data.payload_bytes as usize,
            Self::Abort { payload_bytes, .. } => *payload_bytes as usize,
            Self::ClearToSend { .. }
            | Self::Offer { .. }
            | Self::Accept { .. }
            | Self::Bye
            | Self::Ask
            | Self::Alive
            | Self::Epoch { .. }
            | Self::Sum { .. }
            | Self::Pushed { .. }
            | Self::Word(_) => 0,
        }
    }

    /// The header's bytes: kind, flags, a zero header's sum (2), program, instance, op, offset (8), payload bytes, and a zero
    /// checksum.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, program, instance, op, offset, payload) = match *self {
            Self::ClearToSend { program, instance, op, tag } => {
                (CLEAR_TO_SEND, program, instance, op, tag, 0)
            }
            Self::Data(d) => (DATA, d.program, d.instance, d.op, d.offset_bytes, d.payload_bytes),
            Self::Abort { rank, why, payload_bytes } => (ABORT, why.code(), rank.0, 0, 0, payload_bytes),
            // A size occupies the fields of program and op.
            Self::Offer { send, tag, bytes } => (OFFER, bytes as u32, send, (bytes >> 32) as u32, tag, 0),
            Self::Accept { send, receive, tag } => (ACCEPT, 0, send, receive, tag, 0),
            Self::Bye => (BYE, 0, 0, 0, 0, 0),
            Self::Ask => (ASK, 0, 0, 0, 0, 0),
            Self::Alive => (ALIVE, 0, 0, 0, 0, 0),
            Self::Epoch { epoch } => (EPOCH, 0, 0, 0, epoch, 0),
            Self::Sum { tag, crc32c } => (SUM, crc32c, 0, 0, tag, 0),
            Self::Pushed { pieces } => (PUSHED, 0, 0, 0, pieces, 0),
            Self::Word(word) => {
                let (kind, program, instance, offset) = word.fields();
                (kind, program, instance, 0, offset, 0)
            }
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&program.to_le_bytes());
        bytes[8..12].copy_from_slice(&instance.to_le_bytes());
        bytes[12..16].copy_from_slice(&op.to_le_bytes());
        bytes[16..24].copy_from_slice(&offset.to_le_bytes());
        bytes[24..28].copy_from_slice(&payload.to_le_bytes());
        bytes
    }

    /// Decodes a header; limits are checked before anything is allocated for the payload.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let sealed = bytes[FLAGS_AT] == SEALED;
        let unsealed = bytes[FLAGS_AT] == 0 && word(CHECKSUM_AT) == 0 && bytes[HEADER_SUM_AT..4] == [0; 2];
        if !sealed && !unsealed {
            return Err(FrameError::ReservedNotZero);
        }
        let (program, instance, op, payload_bytes) = (word(4), word(8), word(12), word(24));
        let offset_bytes = u64::from(word(16)) | u64::from(word(20)) << 32;
        let frame = match bytes[0] {
            CLEAR_TO_SEND => Self::ClearToSend { program, instance, op, tag: offset_bytes },
            DATA => Self::Data(Data { program, instance, op, offset_bytes, payload_bytes }),
            ABORT => {
                let why = Why::from_code(program).ok_or(FrameError::UnknownWhy(program))?;
                Self::Abort { rank: Rank(instance), why, payload_bytes }
            }
            BYE => Self::Bye,
            OFFER => {
                let bytes = u64::from(op) << 32 | u64::from(program);
                Self::Offer { send: instance, tag: offset_bytes, bytes }
            }
            ACCEPT => Self::Accept { send: instance, receive: op, tag: offset_bytes },
            ASK => Self::Ask,
            ALIVE => Self::Alive,
            EPOCH => Self::Epoch { epoch: offset_bytes },
            SUM => Self::Sum { tag: offset_bytes, crc32c: program },
            PUSHED => Self::Pushed { pieces: offset_bytes },
            kind => {
                let word = Word::from_fields(kind, program, instance, offset_bytes)?;
                Self::Word(word.ok_or(FrameError::UnknownKind(kind))?)
            }
        };
        let limit = match frame {
            Self::Data(_) => PAYLOAD_BYTES_MAX,
            Self::Abort { .. } => ABORT_BYTES_MAX,
            Self::ClearToSend { .. }
            | Self::Offer { .. }
            | Self::Accept { .. }
            | Self::Bye
            | Self::Ask
            | Self::Alive
            | Self::Epoch { .. }
            | Self::Sum { .. }
            | Self::Pushed { .. }
            | Self::Word(_) => 0,
        };
        if payload_bytes as usize > limit {
            return Err(FrameError::PayloadTooLarge { payload_bytes });
        }
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A wrongly decoded frame would move another op's data.
        #[test]
        fn data_survives_the_wire(program: u32, instance: u32, op: u32, offset_bytes: u64, payload in 0..=PAYLOAD_BYTES_MAX as u32) {
            let frame = Frame::Data(Data { program, instance, op, offset_bytes, payload_bytes: payload });
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        /// An offer decoded to another size would be refused, or fill another buffer.
        #[test]
        fn offers_survive_the_wire(send: u32, tag: u64, bytes: u64, receive: u32) {
            for frame in [Frame::Offer { send, tag, bytes }, Frame::Accept { send, receive, tag }] {
                prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
            }
        }

        /// Payloads on a fabric would land elsewhere, or a damaged one would pass.
        #[test]
        fn what_belongs_to_a_fabric_survives_the_wire(program: u32, op: u32, tag: u64, crc32c: u32) {
            let clear = Frame::ClearToSend { program, instance: 1, op, tag };
            for frame in [clear, Frame::Sum { tag, crc32c }, Frame::Pushed { pieces: tag }] {
                prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
            }
        }

        /// A marker of another epoch would let the sums of an aborted step in.
        #[test]
        fn markers_survive_the_wire(epoch: u64) {
            let frame = Frame::Epoch { epoch };
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        /// A hostile header must end in a frame within limits or an error, never a panic.
        #[test]
        fn any_bytes_decode_within_limits(bytes: [u8; HEADER_BYTES]) {
            if let Ok(frame) = Frame::decode(&bytes) {
                prop_assert!(frame.payload_bytes() <= PAYLOAD_BYTES_MAX);
            }
        }
    }

    /// Ranks would blame the wrong rank, or give the wrong reason.
    #[test]
    fn aborts_survive_the_wire() {
        for why in Why::ALL {
            let frame = Frame::Abort { rank: Rank(7), why, payload_bytes: 3 };
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
        let mut bytes = Frame::Abort { rank: Rank(7), why: Why::Lost, payload_bytes: 3 }.encode();
        bytes[4] = Why::ALL.len() as u8;
        assert_eq!(Frame::decode(&bytes), Err(FrameError::UnknownWhy(9)));
    }

    /// An announced length beyond the limit must be refused before memory is reserved for it.
    #[test]
    fn oversized_payload_is_refused() {
        let mut bytes = Frame::Abort { rank: Rank(0), why: Why::GaveUp, payload_bytes: 1 }.encode();
        bytes[24..28].copy_from_slice(&(ABORT_BYTES_MAX as u32 + 1).to_le_bytes());
        assert_eq!(
            Frame::decode(&bytes),
            Err(FrameError::PayloadTooLarge { payload_bytes: ABORT_BYTES_MAX as u32 + 1 })
        );
    }
}
