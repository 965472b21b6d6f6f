//! A record and the file's header: fixed sizes, little-endian, so that a truncated file yields all whole records.

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"HKTRACE1";
/// Version of the layout.
pub const VERSION: u32 = 1;
/// Bytes of the header: magic, version, record bytes, rank, world, clock offset (i64), records dropped (u64), zeros.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of ops and of a step's parts")]
#[repr(u16)]
pub enum Kind {
    #[default]
    Copy = 1,
    Cast = 2,
    Reduce = 3,
    Apply = 4,
    Send = 5,
    Recv = 6,
    Record = 7,
    /// A whole program, from launch to completion.
    Instance = 16,
    Step = 32,
    Forward = 33,
    Backward = 34,
    Wait = 35,
    Optimizer = 36,
}

/// One event of one rank. Times are nanoseconds of the rank's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it could have started.
    pub ready_ns: u64,
    /// When it started.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Bytes moved, on the wire for messages.
    pub bytes: u64,
    /// Program number.
    pub program: u32,
    /// Launch count, or the iteration of a step's part.
    pub instance: u32,
    /// Instruction.
    pub op: u32,
    /// The other rank of a message; `u32::MAX`: none.
    pub peer: u32,
    /// What happened.
    pub kind: Kind,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            ready_ns: 0,
            start_ns: 0,
            end_ns: 0,
            bytes: 0,
            program: 0,
            instance: 0,
            op: 0,
            peer: u32::MAX,
            kind: Kind::default(),
        }
    }
}

impl Record {
    /// The record's bytes: four u64, four u32, the kind as u16, zeros.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        for (at, word) in [self.ready_ns, self.start_ns, self.end_ns, self.bytes].into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (at, word) in [self.program, self.instance, self.op, self.peer].into_iter().enumerate() {
            bytes[32 + at * 4..36 + at * 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[48..50].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes
    }
}

/// The header's bytes.
pub fn header(rank: u32, world: u32, clock_offset_ns: i64, dropped: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    for (at, word) in [VERSION, RECORD_BYTES as u32, rank, world].into_iter().enumerate() {
        bytes[8 + at * 4..12 + at * 4].copy_from_slice(&word.to_le_bytes());
    }
    bytes[24..32].copy_from_slice(&clock_offset_ns.to_le_bytes());
    bytes[32..40].copy_from_slice(&dropped.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader would take one field for another.
    #[test]
    fn fields_lie_where_the_format_says() {
        let record = Record {
            ready_ns: 1,
            start_ns: 2,
            end_ns: 3,
            bytes: 4,
            program: 5,
            instance: 6,
            op: 7,
            peer: 8,
            kind: Kind::Optimizer,
        };
        let bytes = record.encode();
        assert_eq!((bytes[0], bytes[8], bytes[16], bytes[24]), (1, 2, 3, 4));
        assert_eq!((bytes[32], bytes[36], bytes[40], bytes[44], bytes[48]), (5, 6, 7, 8, 36));
        assert_eq!(
            header(9, 10, -1, 11)[16..40],
            [9, 0, 0, 0, 10, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 11, 0, 0, 0, 0, 0, 0, 0]
        );
    }
}
