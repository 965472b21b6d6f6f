//! What a rank's executor is told when it is made.

use hocket_ids::Rank;
use hocket_wire::shape::Shape;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How a rank's executor is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Our rank.
    pub rank: Rank,
    /// Name of our host, the same as in its address; no other host of the job has it.
    pub host: String,
    /// Number of ranks.
    pub world: usize,
    /// Names the job among others on the host.
    pub job: String,
    /// Known to the job's ranks alone.
    pub secret: Vec<u8>,
    /// Addresses to listen on: one, or one for each interface that connections are spread over.
    pub bind: Vec<IpAddr>,
    /// Native threads: one for I/O, the rest for computing.
    pub threads: usize,
    /// File to write the event records to.
    pub trace: Option<PathBuf>,
    /// Emulated network, where the kernel's own cannot be shaped.
    pub shape: Option<Shape>,
    /// Frames between hosts carry checksums; the same on all ranks.
    pub checksum: bool,
    /// Connections between hosts are encrypted; the same on all ranks.
    pub tls: bool,
    /// How long a peer may be silent while something is waited for from it.
    pub silence_max: Duration,
}
