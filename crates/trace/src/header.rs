//! What a record file begins with.

use crate::record::RECORD_BYTES;

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"HKTRACE1";

/// Version of the layout.
pub const VERSION: u32 = 2;

/// Bytes before the first record.
pub const HEADER_BYTES: usize = 64;

/// Where the count of dropped records lies (u64).
pub const DROPPED_AT: u64 = 24;

/// Magic, version, bytes of a record, rank, world, none dropped, zeros.
pub fn header(rank: u32, world: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    for (at, word) in [VERSION, RECORD_BYTES as u32, rank, world].into_iter().enumerate() {
        bytes[8 + at * 4..12 + at * 4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
