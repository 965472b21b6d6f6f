//! Brings up a rank's links to all others. A listener admits callers that prove the job's secret, and the rank calls
//! the listeners of lower ranks (`meeting`), over several connections where a transport has lanes. Each transport tells over
//! them what the other end must know (`transports`).
//!
//! The listener stays open while the rank lives, so that strangers are rejected and logged instead of left hanging
//! (`callers`). A mesh that does not come up sends the reason to the ranks that are already connected.

use crate::callers::{keep_listening, turn_away};
use crate::connection::{Stream, give_up};
use crate::endpoint::{Ends, Join, Own, Pair};
use crate::identity::{Address, Identity};
use crate::limits::explained;
use crate::meeting::Meeting;
use crate::poll::Waker;
use hocket_ids::Rank;
use hocket_protocol::handshake::LaneId;
use hocket_protocol::why::Why;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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
    #[error("{}", missing(.ranks, *.timeout_s))]
    Missing {
        /// Each missing rank, its address, and its last error.
        ranks: Vec<(Rank, Address, String)>,
        /// The time allowed.
        timeout_s: f64,
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

fn missing(ranks: &[(Rank, Address, String)], timeout_s: f64) -> String {
    let each: Vec<String> = ranks
        .iter()
        .map(|(rank, address, why)| {
            let listeners: Vec<String> = address.tcp.iter().map(ToString::to_string).collect();
            format!("rank {rank} on {} ({}): {why}", address.host, listeners.join(" and "))
        })
        .collect();
    format!("not connected after {timeout_s:.0} s: {}", each.join("; "))
}

/// Accepts connections from other ranks.
pub struct Listener {
    addresses: Vec<SocketAddr>,
    closing: Arc<Waker>,
    /// A caller could not be admitted for lack of a file descriptor.
    starved: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Whether ranks are still missing; false once the mesh is complete.
    admitted: Option<mpsc::Receiver<(LaneId, Stream)>>,
}

impl Listener {
    /// Listens on each of `addresses` at the first free one of `ports`, where 0 is one of the system's choice, and for ranks
    /// of this host.
    pub fn open(
        addresses: &[IpAddr],
        ports: &RangeInclusive<u16>,
        identity: Identity,
    ) -> Result<Self, MeshError> {
        let mut listeners = Vec::new();
        let mut bound = Vec::new();
        for &address in addresses {
            let listen =
                |source| MeshError::Listen { address, ports: ports.clone(), source: explained(source) };
            // `bind` tries all of them, and returns the last one's error.
            let choices: Vec<_> = ports.clone().map(|port| SocketAddr::new(address, port)).collect();
            let tcp = TcpListener::bind(&choices[..]).map_err(listen)?;
            bound.push(tcp.local_addr().map_err(listen)?);
            tcp.set_nonblocking(true)?;
            listeners.push(tcp);
        }
        let Some(first) = bound.first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on").into());
        };
        let local = unix::UnixListener::bind_addr(&local_name(&identity.job, identity.rank, first.port())?)?;
        local.set_nonblocking(true)?;
        let closing = Arc::new(Waker::new()?);
        let (sender, admitted) = mpsc::channel();
        let starved = Arc::new(AtomicBool::new(false));
        let flags = (Arc::clone(&closing), Arc::clone(&starved));
        let thread = thread::Builder::new()
            .name("hocket-listener".into())
            .spawn(move || keep_listening(&listeners, &local, &identity, (&flags.0, &flags.1), &sender))?;
        Ok(Self { addresses: bound, closing, starved, thread: Some(thread), admitted: Some(admitted) })
    }

    /// The addresses that peers connect to.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Connects to the ranks `dialled`, in their order, among `peers`; `None` for one that there is no way to. With `agree`, a
    /// pair whose higher rank cannot call the lower one is connected by a call of the lower one, and one in which neither can
    /// has no connection; without it, each rank that cannot be called is missing.
    pub fn connect(
        &mut self,
        identity: &Identity,
        peers: &[Address],
        dialled: &[Rank],
        shared: Own<'_>,
        timeout: Duration,
        agree: Option<Agree<'_>>,
    ) -> Result<Mesh, MeshError> {
        let own = identity.rank;
        let here = &peers[own.index()];
        let mut lanes = vec![0; peers.len()];
        for rank in dialled {
            let peer = &peers[rank.index()];
            lanes[rank.index()] = shared.endpoints.between(here, peer)?.lanes(here, peer);
        }
        let mut meeting = Meeting::new(identity, peers, &lanes, shared, Instant::now() + timeout);
        let opened = match &self.admitted {
            Some(admitted) => meeting.hold(admitted, &self.starved, timeout, agree),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "connected already").into()),
        };
        for (id, stream) in self.admitted.take().iter().flat_map(mpsc::Receiver::try_iter) {
            turn_away(identity, id, stream);
        }
        match opened {
            Ok(unlinked) => {
                let connections = dialled.iter().map(|rank| meeting.connections(*rank)).collect();
                Ok(Mesh { connections, unlinked })
            }
            Err(error) => {
                give_up(meeting.streams(), identity.checksums, (own, Why::GaveUp), &error.to_string());
                Err(error)
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && self.closing.wake().is_ok()
        {
            // The runtime has printed a panic of the listener thread; there is nothing to add here.
            drop(thread.join());
        }
    }
}

/// An abstract address leaves nothing in a file system; the port makes it unique in its network namespace.
pub(crate) fn local_name(job: &str, rank: Rank, port: u16) -> io::Result<unix::SocketAddr> {
    unix::SocketAddr::from_abstract_name(format!("hocket/{job}/{rank}/{port}"))
}
