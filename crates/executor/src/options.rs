//! Options of a rank's executor.

use hocket_ids::Rank;
use hocket_protocol::liveness::Patience;
use hocket_trace::Wanted;
use hocket_wire::endpoint;

/// Options for creating a rank's executor.
#[derive(Clone, Debug)]
pub struct Options {
    /// Our rank.
    pub rank: Rank,
    /// Number of ranks.
    pub world: usize,
    /// Distinguishes the job from others on the host.
    pub job: String,
    /// Shared by the job's ranks and nobody else.
    pub secret: Vec<u8>,
    /// Native threads: one for I/O, the rest for computing.
    pub threads: usize,
    /// File to write the event records to, and of what part of the run.
    pub trace: Option<Wanted>,
    /// Frames between hosts carry checksums; the same on all ranks.
    pub checksum: bool,
    /// What it asks of transports.
    pub wire: endpoint::Options,
    /// How long a peer may be silent while this rank waits for it.
    pub patience: Patience,
}
