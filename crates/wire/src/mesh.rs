//! Brings up a rank's links to all others. A listener admits callers that prove the job's secret, and the rank calls
//! the listeners of lower ranks, over several connections where a transport has lanes. Each transport tells over them what
//! the other end must know (`transports`).
//!
//! The listener stays open while the rank lives, so that strangers are rejected and logged instead of left hanging
//! (`callers`). A mesh that does not come up sends the reason to the ranks that are already connected.

use crate::callers::{keep_listening, turn_away};
use crate::connection::{Stream, give_up};
use crate::endpoint::{Ends, Exchange, Join, Own, Pair};
use crate::identity::{Address, Identity};
use crate::lanes::{self, Towards};
use crate::limits::{explained, is_met, is_out_of_descriptors};
use crate::poll::Waker;
use crate::proof::{HANDSHAKE_TIMEOUT, introduce};
use hocket_ids::Rank;
use hocket_protocol::handshake::LaneId;
use hocket_protocol::why::Why;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Pause between calls to a listener that does not answer yet.
const CALL_AGAIN: Duration = Duration::from_millis(50);
/// How often a rank that awaits callers checks whether one could not be admitted.
const STARVED_POLL: Duration = Duration::from_millis(100);

/// The open connections to another rank, non-blocking, by lane, and what makes a link of them.
pub struct Connections {
    /// The connections.
    pub streams: Vec<Stream>,
    join: Option<Join>,
}

impl Connections {
    /// The link over them, or why there is none.
    pub fn link(self, pair: Pair<'_>) -> Result<Ends, String> {
        self.join.ok_or("it has no connection")?(self.streams, pair)
    }
}

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

/// Accepts connections from higher ranks.
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

    /// Connects to the ranks `dialled`, in their order, among `peers`.
    pub fn connect(
        &mut self,
        identity: &Identity,
        peers: &[Address],
        dialled: &[Rank],
        shared: Own<'_>,
        timeout: Duration,
    ) -> Result<Vec<Connections>, MeshError> {
        let own = identity.rank;
        let here = &peers[own.index()];
        let mut open: Vec<Vec<Option<Opened>>> = peers.iter().map(|_| Vec::new()).collect();
        for rank in dialled {
            let peer = &peers[rank.index()];
            let lanes = shared.endpoints.between(here, peer)?.lanes(here, peer);
            open[rank.index()].resize_with(lanes, || None);
        }
        let opened = match &self.admitted {
            Some(admitted) => self.open_all(admitted, &mut open, identity, peers, shared, timeout),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "connected already").into()),
        };
        for (id, stream) in self.admitted.take().iter().flat_map(mpsc::Receiver::try_iter) {
            turn_away(identity, id, stream);
        }
        if let Err(error) = opened {
            let streams = open.into_iter().flatten().flatten().map(|opened| opened.stream);
            give_up(streams, identity.checksums, (own, Why::GaveUp), &error.to_string());
            return Err(error);
        }
        let connections = |rank: &Rank| {
            let opened = std::mem::take(&mut open[rank.index()]).into_iter().flatten();
            let (streams, mut joins): (Vec<_>, Vec<_>) = opened.map(|lane| (lane.stream, lane.join)).unzip();
            Connections { streams, join: joins.pop() }
        };
        Ok(dialled.iter().map(connections).collect())
    }

    /// Fills every place of `open`, by rank and lane.
    fn open_all(
        &self,
        admitted: &mpsc::Receiver<(LaneId, Stream)>,
        open: &mut [Vec<Option<Opened>>],
        identity: &Identity,
        peers: &[Address],
        shared: Own<'_>,
        timeout: Duration,
    ) -> Result<(), MeshError> {
        let own = identity.rank;
        let here = &peers[own.index()];
        let deadline = Instant::now() + timeout;
        let mut failures = Vec::new();
        let finish = |rank: Rank, stream, exchange| {
            let peer = &peers[rank.index()];
            finish(stream, (here, peer), shared, exchange).map_err(|source| {
                let host = peer.host.clone();
                if is_met(&source) { source.into() } else { MeshError::Left { rank, host, source } }
            })
        };
        for (at, peer) in peers.iter().enumerate().take(own.index()) {
            if !failures.is_empty() && Instant::now() >= deadline {
                // No time is left to call this one: that is not its fault.
                break;
            }
            let rank = Rank::from_index(at);
            for (lane, place) in open[at].iter_mut().enumerate() {
                let id = LaneId { from: own, to: rank, lane: lane as u32 };
                let near = peer.host == here.host;
                let towards = if near { None } else { Some(lanes::towards(here, peer, lane)) };
                match call(identity, id, peer, towards, deadline) {
                    Ok(stream) => *place = Some(finish(rank, stream, Exchange::SendFirst)?),
                    Err(why) if is_out_of_descriptors(&why) => return Err(why.into()),
                    Err(why) => {
                        let to = towards.map_or_else(String::new, |towards| format!("{towards}: "));
                        failures.push((rank, peer.clone(), format!("{to}{why}")));
                        break;
                    }
                }
            }
        }
        while open.iter().skip(own.index() + 1).flatten().any(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            let (LaneId { from, lane, .. }, stream) = match admitted.recv_timeout(left.min(STARVED_POLL)) {
                Ok(link) => link,
                Err(_) if self.starved.load(Ordering::Relaxed) => {
                    return Err(io::Error::from(rustix::io::Errno::MFILE).into());
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the listener's thread has ended").into());
                }
                Err(_) if left.is_zero() => break,
                Err(_) => continue,
            };
            let lanes = open.get_mut(from.index()).filter(|_| from > own);
            if let Some(place @ None) = lanes.and_then(|lanes| lanes.get_mut(lane as usize)) {
                *place = Some(finish(from, stream, Exchange::ReceiveFirst)?);
            } else {
                turn_away(identity, LaneId { from, to: own, lane }, stream);
            }
        }
        for (at, peer) in peers.iter().enumerate().skip(own.index() + 1) {
            let missing = open[at].iter().filter(|place| place.is_none()).count();
            if missing > 0 {
                let why = match open[at].len() {
                    1 => "it did not call".into(),
                    all => format!("of its {all} connections {missing} did not come"),
                };
                failures.push((Rank::from_index(at), peer.clone(), why));
            }
        }
        if failures.is_empty() {
            Ok(())
        } else {
            Err(MeshError::Missing { ranks: failures, timeout_s: timeout.as_secs_f64() })
        }
    }
}

/// A connection that is ready, and what makes a link of it.
struct Opened {
    stream: Stream,
    join: Join,
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
fn local_name(job: &str, rank: Rank, port: u16) -> io::Result<unix::SocketAddr> {
    unix::SocketAddr::from_abstract_name(format!("hocket/{job}/{rank}/{port}"))
}

/// Calls the listener of a lower rank until it answers or the deadline passes; within the host when `towards` is empty.
fn call(
    identity: &Identity,
    id: LaneId,
    peer: &Address,
    towards: Option<Towards>,
    deadline: Instant,
) -> io::Result<Stream> {
    loop {
        let attempt = attempt_call(identity, id, peer, towards, deadline);
        match attempt {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            Err(error) if is_out_of_descriptors(&error) => return Err(error),
            Err(error) if Instant::now() + CALL_AGAIN >= deadline => return Err(error),
            Err(_) => thread::sleep(CALL_AGAIN),
        }
    }
}

fn attempt_call(
    identity: &Identity,
    id: LaneId,
    peer: &Address,
    towards: Option<Towards>,
    deadline: Instant,
) -> io::Result<Stream> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let deadline = deadline.min(Instant::now() + HANDSHAKE_TIMEOUT);
    let stream = if let Some(towards) = towards {
        Stream::Tcp(towards.open(left)?)
    } else {
        let port = peer.tcp.first().map_or(0, SocketAddr::port);
        Stream::Unix(unix::UnixStream::connect_addr(&local_name(&identity.job, id.to, port)?)?)
    };
    introduce(identity, stream, id, deadline)
}

fn finish(
    mut stream: Stream,
    (here, peer): (&Address, &Address),
    own: Own<'_>,
    exchange: Exchange,
) -> io::Result<Opened> {
    stream.set_deadline(HANDSHAKE_TIMEOUT)?;
    let join = own.endpoints.between(here, peer)?.meet(&mut stream, own, exchange)?;
    stream.set_nonblocking()?;
    Ok(Opened { stream, join })
}
