//! A piece of a sum as a frame: Ethernet's header, this one, then f32 values. All numbers are little-endian.
//!
//! ```text
//! 0  kind: 0 of a worker, 1 a sum, 2 that its slot is free     1  zero   2  port of the server (u16)
//! 4  repetition (u32)   8  number (u32)   12  bytes of values (u32)   16  ports of all workers   24  of those in it (u64)
//! ```
//!
//! Values may be shorter than the bytes say in the last, padded frame of a short piece, never longer.

use crate::frame::{Frame, HEADER_BYTES, MAC_PREFIX};

/// Ethernet's type for experiments on a local network (IEEE 802, "Local Experimental Ethertype 1").
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const ETHERNET_BYTES: usize = 14;
const FIRST: usize = HEADER_BYTES + ETHERNET_BYTES;
const VALUES: usize = FIRST + 32;
/// Ethernet pads frames to this size.
const FRAME_BYTES_MIN: usize = HEADER_BYTES + 60;
/// The most ports that a mask has bits for.
pub const PORTS_MAX: usize = 64;

/// Role of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pushed,
    Sum,
    Free,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Repetitions of a job have sums of their own.
    pub run: u32,
    pub number: u32,
    /// Port of the server.
    pub server: usize,
    /// Ports of all workers, a bit each.
    pub workers: u64,
    /// Those whose values are in it.
    pub from: u64,
    pub values: Vec<f32>,
}

impl Piece {
    /// The piece that a worker at `port` pushes; `None`: the frame is another one, or makes no sense.
    pub fn pushed(frame: &Frame, port: usize, ports: usize) -> Option<Self> {
        let bytes = frame.bytes();
        if bytes.get(HEADER_BYTES + 12..FIRST)? != ETHERTYPE || *bytes.get(FIRST)? != Kind::Pushed as u8 {
            return None;
        }
        let u32_at =
            |at: usize| Some(u32::from_le_bytes(bytes.get(FIRST + at..FIRST + at + 4)?.try_into().ok()?));
        let u64_at =
            |at: usize| Some(u64::from_le_bytes(bytes.get(FIRST + at..FIRST + at + 8)?.try_into().ok()?));
        let server = usize::from(u16::from_le_bytes(bytes.get(FIRST + 2..FIRST + 4)?.try_into().ok()?));
        let (workers, from) = (u64_at(16)?, 1_u64.checked_shl(port as u32)?);
        let known = if ports < PORTS_MAX { (1 << ports) - 1 } else { u64::MAX };
        let values = bytes.get(VALUES..VALUES + u32_at(12)? as usize)?;
        let fits = server < ports && workers & !known == 0 && workers & from != 0 && values.len() % 4 == 0;
        fits.then(|| Self {
            run: u32_at(4).unwrap_or_default(),
            number: u32_at(8).unwrap_or_default(),
            server,
            workers,
            from,
            values: values.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
        })
    }

    /// The frame to a host that tells it.
    pub fn frame(&self, kind: Kind, port: usize) -> Frame {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend(MAC_PREFIX);
        bytes.extend((port as u16).to_be_bytes());
        bytes.extend(SWITCH_MAC);
        bytes.extend(ETHERTYPE);
        bytes.extend([kind as u8, 0]);
        bytes.extend((self.server as u16).to_le_bytes());
        bytes.extend(self.run.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend((self.values.len() as u32 * 4).to_le_bytes());
        bytes.extend(self.workers.to_le_bytes());
        bytes.extend(self.from.to_le_bytes());
        self.values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        bytes.resize(bytes.len().max(FRAME_BYTES_MIN), 0);
        Frame::new(bytes)
    }

    pub fn without_values(&self) -> Self {
        Self { values: Vec::new(), ..*self }
    }
}

/// Address of all switches that sum, to which workers send.
pub const SWITCH_MAC: [u8; 6] = [0x02, 0x68, 0x6b, 0xff, 0, 0];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece() -> Piece {
        Piece { run: 7, number: 9, server: 2, workers: 0b1011, from: 0b10, values: vec![1.5, -2.0] }
    }

    /// Workers and switches would mean different things by the same bytes.
    #[test]
    fn a_frame_says_what_the_piece_is() {
        let frame = piece().frame(Kind::Pushed, 0);
        assert_eq!(Piece::pushed(&frame, 1, 4), Some(piece()));
        assert_eq!(frame.bytes()[HEADER_BYTES..][..6], [0x02, 0x68, 0x6b, 0, 0, 0]);
        assert_eq!(Piece::pushed(&piece().frame(Kind::Sum, 0), 1, 4), None);
        assert_eq!(Piece::pushed(&frame, 2, 4), None, "that port is no worker");
        assert_eq!(Piece::pushed(&frame, 1, 3), None, "one of the workers is nobody");
    }

    proptest! {
        /// A host could crash the switch with a malformed piece.
        #[test]
        fn any_bytes_are_a_piece_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200), port in 0..80_usize) {
            let mut bytes = bytes;
            if bytes.len() > FIRST {
                bytes[HEADER_BYTES + 12..FIRST].copy_from_slice(&ETHERTYPE);
                bytes[FIRST] = 0;
            }
            let _ = Piece::pushed(&Frame::new(bytes), port, 5);
        }
    }
}
