//! Who a rank is and where it can be reached, as all ranks of a job know it.

use crate::tcp::tls::Credentials;
use hocket_ids::Rank;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where a rank can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Of its listener: one for each of its interfaces, in the order in which they meet those of others.
    pub tcp: Vec<SocketAddr>,
    /// Name of its host, which no other host of the job has: ranks with equal names share memory.
    pub host: String,
    /// Connections between each of its interfaces and ours, of which both ends say the same number.
    pub streams: usize,
}

/// Who we are, for handshakes.
#[derive(Clone)]
pub struct Identity {
    /// Our rank.
    pub rank: Rank,
    /// Names the job among others on the host.
    pub job: String,
    /// Known to its ranks alone.
    pub secret: Vec<u8>,
    /// Connections to other hosts are encrypted.
    pub tls: Option<Arc<Credentials>>,
    /// Frames between hosts carry a checksum.
    pub checksums: bool,
}
