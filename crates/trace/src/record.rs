//! What happened, when, how many bytes: one fixed-size record.

/// Bytes of a record in the file.
pub const RECORD_BYTES: usize = 64;

/// `peer` of a record that involves no other rank.
pub const NO_PEER: u32 = u32::MAX;

/// What a record is about. Below 16: an op of a program; 16: a program; 32 and above: a span of the training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// `dst = src`.
    Copy = 1,
    /// `dst = convert(src)`.
    Cast = 2,
    /// `dst = dst ⊕ src`.
    Reduce = 3,
    /// `dst = kernel(dst)`.
    Apply = 4,
    /// A message to a peer, from ready until its source may be written again.
    Send = 5,
    /// A message from a peer, from posted until it has landed.
    Recv = 6,
    /// A look at a buffer.
    Record = 7,
    /// A collective by another library.
    Library = 8,
    /// A program from launch to its last op.
    Instance = 16,
    /// A training step; its iteration is in `instance`, as for all kinds below.
    Step = 32,
    /// The forward pass.
    Forward = 33,
    /// The backward pass.
    Backward = 34,
    /// The script waits for communication.
    Wait = 35,
    /// The optimizer's update.
    Optimizer = 36,
}

/// One event of one rank. Times are `CLOCK_MONOTONIC` of its host, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When nothing but a free thread or wire was missing.
    pub ready_ns: u64,
    /// When it began.
    pub start_ns: u64,
    /// When it was done.
    pub end_ns: u64,
    /// Bytes moved or computed.
    pub bytes: u64,
    /// The program's number.
    pub program: u32,
    /// Which launch of the program; the iteration for spans of the step.
    pub instance: u32,
    /// Position in the rank's program.
    pub op: u32,
    /// The other rank, or [`NO_PEER`].
    pub peer: u32,
    /// What it is about.
    pub kind: Kind,
}

impl Default for Record {
    /// A step of nothing, at time zero, with no peer: defaults for the fields that a record leaves out.
    fn default() -> Self {
        Self {
            ready_ns: 0,
            start_ns: 0,
            end_ns: 0,
            bytes: 0,
            program: 0,
            instance: 0,
            op: 0,
            peer: NO_PEER,
            kind: Kind::Step,
        }
    }
}

impl Record {
    /// The file's form: the fields in their order, then two bytes of zeros (flags, none are defined yet), the native
    /// thread that pushed it, and eight bytes of zeros.
    pub fn to_bytes(&self, thread: u32) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..8].copy_from_slice(&self.ready_ns.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.start_ns.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.end_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.program.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.instance.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.op.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.peer.to_le_bytes());
        bytes[48..50].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[52..56].copy_from_slice(&thread.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broken: every reader of trace files would see fields in the wrong place.
    #[test]
    fn fields_lie_where_the_format_says() {
        let record = Record {
            ready_ns: 0x0101_0101_0101_0101,
            start_ns: 0x0202_0202_0202_0202,
            end_ns: 0x0303_0303_0303_0303,
            bytes: 0x0404_0404_0404_0404,
            program: 0x0505_0505,
            instance: 0x0606_0606,
            op: 0x0707_0707,
            peer: 0x0808_0808,
            kind: Kind::Optimizer,
        };
        let fields = [(1, 8), (2, 8), (3, 8), (4, 8), (5, 4), (6, 4), (7, 4), (8, 4)];
        let mut want: Vec<u8> = fields.iter().flat_map(|&(value, count)| vec![value; count]).collect();
        want.extend([36, 0, 0, 0, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(record.to_bytes(0x0909_0909)[..], want);
    }
}
