//! Identity and addresses of a rank, as all ranks of a job know them.

use crate::connection::tls::Credentials;
use hocket_ids::Rank;
use std::net::SocketAddr;
use std::sync::Arc;

/// Addresses of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its listener's addresses, one per interface, in the order in which interfaces are paired with those of other
    /// ranks.
    pub tcp: Vec<SocketAddr>,
    /// Name of its host, unique in the job: ranks with equal names share memory.
    pub host: String,
    /// Connections between each of its interfaces and ours; both ends use the same number. 0: as the path needs.
    pub streams: usize,
}

/// Our own identity, for handshakes.
#[derive(Clone)]
pub struct Identity {
    /// Our rank.
    pub rank: Rank,
    /// Distinguishes the job from others on the host.
    pub job: String,
    /// Shared by the ranks of the job and nobody else.
    pub secret: Vec<u8>,
    /// Whether connections to other hosts are encrypted.
    pub tls: Option<Arc<Credentials>>,
    /// Whether frames between hosts carry a checksum.
    pub checksums: bool,
}
