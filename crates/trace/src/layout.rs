//! The layout of a record file; this is its only definition. `hocket.artefacts.trace` reads by it. The golden file
//! `tests/formats/golden/rank-0.hktrace`, on which writers and readers are tested, shows it to other readers.

use crate::bounds::Bounds;
use crate::record::Record;

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"HKTRACE1";

pub const VERSION: u32 = 2;

/// The header as Python's `struct` describes it: magic, version, bytes of a record, rank, world, records dropped; then the
/// bounds: bytes of the file at most, first step, first one after it (0: there is no such bound); then [`End`], and zeros.
pub const HEADER: &str = "<8sIIIIQQIII12x";

/// Bytes before the first record.
pub const HEADER_BYTES: usize = 64;

/// Why a file ends before its run does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum End {
    #[default]
    Whole = 0,
    /// It has as many bytes as it may.
    Full = 1,
    /// The disk took no more.
    Unwritable = 2,
}

/// A record's fields in order: their names and their types in `NumPy`'s notation. Flags and reserved bytes are zeros.
pub const FIELDS: [(&str, &str); 12] = [
    ("ready_ns", "<i8"),
    ("start_ns", "<i8"),
    ("end_ns", "<i8"),
    ("bytes", "<u8"),
    ("program", "<u4"),
    ("instance", "<u4"),
    ("op", "<u4"),
    ("peer", "<u4"),
    ("kind", "<u2"),
    ("flags", "<u2"),
    ("thread", "<u4"),
    ("reserved", "<u8"),
];

pub const RECORD_BYTES: usize = {
    let (mut bytes, mut at) = (0, 0);
    while at < FIELDS.len() {
        bytes += (FIELDS[at].1.as_bytes()[2] - b'0') as usize;
        at += 1;
    }
    bytes
};

/// What the first bytes of a rank's file say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    pub rank: u32,
    pub world: u32,
    pub bounds: Bounds,
    pub dropped: u64,
    pub end: End,
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        in_order([
            &MAGIC,
            &VERSION.to_le_bytes(),
            &(RECORD_BYTES as u32).to_le_bytes(),
            &self.rank.to_le_bytes(),
            &self.world.to_le_bytes(),
            &self.dropped.to_le_bytes(),
            &self.bounds.bytes_max.unwrap_or(0).to_le_bytes(),
            &self.bounds.first.to_le_bytes(),
            &self.bounds.stop.unwrap_or(0).to_le_bytes(),
            &(self.end as u32).to_le_bytes(),
        ])
    }
}

impl Record {
    /// The bytes of a record in the file; `thread`: the native thread that pushed it.
    pub fn to_bytes(&self, thread: u32) -> [u8; RECORD_BYTES] {
        in_order([
            &self.ready_ns.to_le_bytes(),
            &self.start_ns.to_le_bytes(),
            &self.end_ns.to_le_bytes(),
            &self.bytes.to_le_bytes(),
            &self.program.to_le_bytes(),
            &self.instance.to_le_bytes(),
            &self.op.to_le_bytes(),
            &self.peer.to_le_bytes(),
            &(self.kind as u16).to_le_bytes(),
            &0_u16.to_le_bytes(),
            &thread.to_le_bytes(),
            &0_u64.to_le_bytes(),
        ])
    }
}

/// The concatenated parts, padded with zeros.
fn in_order<const PARTS: usize, const BYTES: usize>(parts: [&[u8]; PARTS]) -> [u8; BYTES] {
    let (mut bytes, mut at) = ([0; BYTES], 0);
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Kind, NO_PEER};
    use std::path::PathBuf;

    /// A file of rank 0 of 2 with a record of each kind, whose fields all differ.
    fn golden() -> Vec<u8> {
        let mut bytes = Header { world: 2, ..Header::default() }.to_bytes().to_vec();
        for (at, kind) in (0..).zip(Kind::ALL) {
            let record = Record {
                ready_ns: 1_000_000_000_000 + at,
                start_ns: 2_000_000_000_000 + at,
                end_ns: 3_000_000_000_000 + at,
                bytes: 4_000_000_000_000 + at,
                program: 5_000_000 + at as u32,
                instance: 6_000_000 + at as u32,
                op: 7_000_000 + at as u32,
                peer: if at == 0 { NO_PEER } else { 8_000_000 + at as u32 },
                kind,
            };
            bytes.extend(record.to_bytes(9_000_000 + at as u32));
        }
        bytes
    }

    /// Old traces could not be read any more, or every reader would see fields in the wrong place.
    #[test]
    fn the_golden_file_is_what_is_written() {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/formats/golden/rank-0.hktrace");
        if std::env::var("HOCKET_BLESS").is_ok_and(|bless| bless == "1") {
            std::fs::write(&path, golden()).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == golden(), "{} is another", path.display());
    }

    /// A reader would look in the wrong place for records, for the count of dropped ones, or for the bounds.
    #[test]
    fn offsets_are_those_of_the_fields() {
        assert_eq!(RECORD_BYTES, 64);
        assert_eq!(HEADER, "<8sIIIIQQIII12x");
        let bounds = Bounds { first: 4, stop: Some(5), bytes_max: Some(3) };
        let bytes = Header { rank: 1, world: 2, bounds, dropped: 6, end: End::Unwritable }.to_bytes();
        let words: Vec<_> =
            bytes[8..].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [2, 64, 1, 2, 6, 0, 3, 0, 4, 5, 2, 0, 0, 0]);
    }
}
