//! One event as a record of fixed size: kind, times, bytes.

/// `peer` of a record that involves no other rank.
pub const NO_PEER: u32 = u32::MAX;

/// The subject of a record. Below 16: an op of a program; 16: a program; 32 and above: a span of the training step.
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
    /// A message to a peer, from ready until its source may be overwritten.
    Send = 5,
    /// A message from a peer, from posted until it has landed.
    Recv = 6,
    Record = 7,
    Library = 8,
    /// A program from launch to its last op.
    Instance = 16,
    /// A training step; its iteration is in `instance`, as for all kinds below.
    Step = 32,
    Forward = 33,
    Backward = 34,
    Wait = 35,
    Optimizer = 36,
    /// The optimizer has applied gradients of a turn, or of the step; no time.
    Update = 37,
}

impl Kind {
    pub const ALL: [Self; 15] = [
        Self::Copy,
        Self::Cast,
        Self::Reduce,
        Self::Apply,
        Self::Send,
        Self::Recv,
        Self::Record,
        Self::Library,
        Self::Instance,
        Self::Step,
        Self::Forward,
        Self::Backward,
        Self::Wait,
        Self::Optimizer,
        Self::Update,
    ];
}

/// One event of one rank. Times are `CLOCK_MONOTONIC` of its host, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When only a free thread or wire was missing.
    pub ready_ns: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
    pub program: u32,
    /// Which launch of the program; the iteration for spans of the step.
    pub instance: u32,
    /// Position in the rank's program.
    pub op: u32,
    /// The other rank, or [`NO_PEER`].
    pub peer: u32,
    pub kind: Kind,
}

impl Default for Record {
    /// An empty step at time zero, without a peer: defaults for fields that a record leaves out.
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
