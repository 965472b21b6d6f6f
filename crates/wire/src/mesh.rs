//! The mesh of a job's ranks: connections to others, pairs that have none, and why it does not come up.

use crate::connection::Stream;
use crate::endpoint::{Ends, Join, Pair};
use crate::identity::Address;
use crate::limits::explained;
use hocket_ids::Rank;
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::time::Duration;

/// The open connections to another rank, non-blocking, by lane, and what makes a link of them.
pub struct Connections {
    /// The connections.
    pub streams: Vec<Stream>,
    pub(crate) join: Join,
}

impl Connections {
    /// The link over them, or why there is none.
    pub fn link(self, pair: Pair<'_>) -> Result<Ends, String> {
        (self.join)(self.streams, pair)
    }
}

/// The mesh as one rank sees it.
pub struct Mesh {
    /// Connections to the ranks that were asked for, in their order; `None` where there is no way.
    pub connections: Vec<Option<Connections>>,
    /// All pairs of ranks between which there is no way.
    pub unlinked: Vec<Unlinked>,
}

/// Two ranks of which neither can call the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlinked {
    /// The lower and the higher one.
    pub ranks: (Rank, Rank),
    /// What came of both calls.
    pub why: String,
}

/// A rank that was called and did not answer, and why.
pub type Missed = (Rank, String);

/// Tells all ranks which calls of this one were not answered, and returns those of all ranks, by caller. Every rank asks it
/// equally often.
pub type Agree<'a> = &'a mut (dyn FnMut(Vec<Missed>) -> io::Result<Vec<Vec<Missed>>> + Send);

/// Why a mesh did not come up.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// The listener could not be opened.
    #[error("cannot listen on {address}{}: {source}", among(.ports))]
    Listen {
        /// The requested address.
        address: IpAddr,
        /// The ports to choose from; 0 to 0: any.
        ports: RangeInclusive<u16>,
        /// The system's error.
        source: io::Error,
    },
    /// Some ranks did not connect in time.
    #[error("{}", missing(.ranks, *.timeout))]
    Missing {
        /// Each missing rank, its address, and its last error.
        ranks: Vec<(Rank, Address, String)>,
        /// The time allowed; `None`: they were not waited for, as they have refused.
        timeout: Option<Duration>,
    },
    /// A rank of this host ended while memory was exchanged with it.
    #[error("rank {rank} on {host} left before all were connected: {source}")]
    Left {
        /// That rank.
        rank: Rank,
        /// Its host.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused a facility that every Linux has.
    #[error("cannot set up the wire: {0}")]
    Io(io::Error),
}

impl From<io::Error> for MeshError {
    fn from(error: io::Error) -> Self {
        Self::Io(explained(error))
    }
}

fn among(ports: &RangeInclusive<u16>) -> String {
    if *ports == (0..=0) {
        return String::new();
    }
    format!(" at any of the ports {} to {} (HOCKET_PORTS)", ports.start(), ports.end())
}

fn missing(ranks: &[(Rank, Address, String)], timeout: Option<Duration>) -> String {
    let each: Vec<String> = ranks
        .iter()
        .map(|(rank, address, why)| {
            let listeners: Vec<String> = address.tcp.iter().map(ToString::to_string).collect();
            format!("rank {rank} on {} ({}): {why}", address.host, listeners.join(" and "))
        })
        .collect();
    let after =
        timeout.map_or("refused".into(), |time| format!("not connected after {:.0} s", time.as_secs_f64()));
    format!("{after}: {}", each.join("; "))
}

/// An abstract address leaves nothing in a file system; the port makes it unique in its network namespace.
pub(crate) fn local_name(job: &str, rank: Rank, port: u16) -> io::Result<unix::SocketAddr> {
    unix::SocketAddr::from_abstract_name(format!("hocket/{job}/{rank}/{port}"))
}
