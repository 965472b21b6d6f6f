//! Brings up the links of one rank to all others: a door that admits who proves the job's secret, and calls to the
//! doors of lower ranks. Ranks of one host also exchange their arenas; those of others may have several connections
//! (`ways`).
//!
//! The door stays open while the rank lives, so that strangers are turned away and logged rather than left hanging;
//! each caller is heard by a thread of its own, bounded in time and number.

use crate::limits::{explained, is_met, is_out_of_descriptors};
use crate::memory::{Arena, Mapping, map_peer};
use crate::poll::Waker;
use crate::shm::pass_fd;
use crate::tcp::Stream;
use crate::tcp::tls::{Credentials, TlsStream};
use crate::ways::{self, Towards};
use hocket_ids::Rank;
use hocket_protocol::handshake::{
    Acceptor, CHALLENGE_BYTES, Connector, HELLO_BYTES, HandshakeError, NONCE_BYTES, PROOF_BYTES, WELCOME, Way,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a caller may take to prove the secret.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Callers that are heard at the same time; more are turned away at once.
const CALLERS_MAX: usize = 64;
/// How often the door looks whether it must close.
const DOOR_POLL: Duration = Duration::from_millis(100);
/// Callers that were turned away are logged in so many lines a second; then their number.
const LOG_LINES_MAX: u32 = 5;
/// Pause between calls to a door that does not answer yet.
const CALL_AGAIN: Duration = Duration::from_millis(50);

/// Where a rank can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Of its door: one for each of its interfaces, in the order in which they meet those of others.
    pub tcp: Vec<SocketAddr>,
    /// What ranks of one host share.
    pub host: String,
    /// Connections between each of its interfaces and ours, of which both ends say the same number.
    pub streams: usize,
}

/// Memory and waker of a rank on the same host.
pub struct Neighbour {
    /// Its arena.
    pub arena: Arc<Mapping>,
    /// Wakes its I/O thread.
    pub waker: Waker,
}

/// A connection to one rank.
pub struct Link {
    /// The rank at the other end.
    pub rank: Rank,
    /// By lane, non-blocking; one within a host.
    pub streams: Vec<Stream>,
    /// Present on the same host.
    pub neighbour: Option<Neighbour>,
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
}

/// Why a mesh did not come up.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// The door could not be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// As asked for.
        address: IpAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Some ranks did not connect in time.
    #[error("{}", missing(.ranks, *.timeout_s))]
    Missing {
        /// Who, where, and what went wrong last.
        ranks: Vec<(Rank, Address, String)>,
        /// How long they had.
        timeout_s: f64,
    },
    /// A rank of this host ended while memory was exchanged with it.
    #[error("rank {rank} (host {host}) left before all were connected: {source}")]
    Left {
        /// Who.
        rank: Rank,
        /// Where.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused something that every Linux has.
    #[error("cannot set up the wire: {0}")]
    Io(io::Error),
}

impl From<io::Error> for MeshError {
    fn from(error: io::Error) -> Self {
        Self::Io(explained(error))
    }
}

fn missing(ranks: &[(Rank, Address, String)], timeout_s: f64) -> String {
    let each: Vec<String> = ranks
        .iter()
        .map(|(rank, address, why)| {
            let doors: Vec<String> = address.tcp.iter().map(ToString::to_string).collect();
            format!("rank {rank} (host {}, {}): {why}", address.host, doors.join(" and "))
        })
        .collect();
    format!("not connected after {timeout_s:.0} s: {}", each.join("; "))
}

/// Accepts connections from higher ranks.
pub struct Door {
    addresses: Vec<SocketAddr>,
    closing: Arc<AtomicBool>,
    /// A caller could not be let in for want of a descriptor.
    starved: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    admitted: mpsc::Receiver<(Way, Stream)>,
}

impl Door {
    /// Listens on each of `addresses` at a port of the system's choice, and for ranks of this host.
    pub fn open(addresses: &[IpAddr], identity: Identity) -> Result<Self, MeshError> {
        let mut doors = Vec::new();
        let mut bound = Vec::new();
        for &address in addresses {
            let listen = |source| MeshError::Listen { address, source: explained(source) };
            let tcp = TcpListener::bind((address, 0)).map_err(listen)?;
            bound.push(tcp.local_addr().map_err(listen)?);
            tcp.set_nonblocking(true)?;
            doors.push(tcp);
        }
        let Some(first) = bound.first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on").into());
        };
        let local = unix::UnixListener::bind_addr(&local_name(&identity.job, identity.rank, first.port())?)?;
        local.set_nonblocking(true)?;
        let closing = Arc::new(AtomicBool::new(false));
        let (sender, admitted) = mpsc::channel();
        let starved = Arc::new(AtomicBool::new(false));
        let flags = [Arc::clone(&closing), Arc::clone(&starved)];
        let thread = thread::Builder::new()
            .name("hocket-door".into())
            .spawn(move || keep_door(&doors, &local, &identity, [&flags[0], &flags[1]], &sender))?;
        Ok(Self { addresses: bound, closing, starved, thread: Some(thread), admitted })
    }

    /// What peers connect to.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Links to all other ranks, by rank (`None` at our own place).
    pub fn connect(
        &self,
        identity: &Identity,
        peers: &[Address],
        arena: &Arena,
        waker: &Waker,
        timeout: Duration,
    ) -> Result<Vec<Option<Link>>, MeshError> {
        let own = identity.rank;
        let here = &peers[own.index()];
        let deadline = Instant::now() + timeout;
        let lanes = |peer: &Address| if peer.host == here.host { 1 } else { ways::lanes(here, peer) };
        let mut open: Vec<Vec<Option<Opened>>> =
            peers.iter().map(|peer| (0..lanes(peer)).map(|_| None).collect()).collect();
        open[own.index()].clear();
        let mut failures = Vec::new();
        let finish = |rank: Rank, stream, exchange| {
            finish(stream, arena, waker, exchange).map_err(|source| {
                let host = peers[rank.index()].host.clone();
                if is_met(&source) { source.into() } else { MeshError::Left { rank, host, source } }
            })
        };
        for (at, peer) in peers.iter().enumerate().take(own.index()) {
            let rank = Rank::from_index(at);
            for (lane, place) in open[at].iter_mut().enumerate() {
                let way = Way { from: own, to: rank, lane: lane as u32 };
                let near = peer.host == here.host;
                let towards = if near { None } else { Some(ways::towards(here, peer, lane)) };
                match call(identity, way, peer, towards, deadline) {
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
            let (Way { from, lane, .. }, stream) = match self.admitted.recv_timeout(left.min(DOOR_POLL)) {
                Ok(link) => link,
                Err(_) if self.starved.load(Ordering::Relaxed) => {
                    return Err(io::Error::from(rustix::io::Errno::MFILE).into());
                }
                Err(_) if left.is_zero() => break,
                Err(_) => continue,
            };
            // A rank that is not ours to admit, or a second time, is turned away by dropping its connection.
            let lanes = open.get_mut(from.index()).filter(|_| from > own);
            if let Some(place @ None) = lanes.and_then(|lanes| lanes.get_mut(lane as usize)) {
                *place = Some(finish(from, stream, Exchange::ReceiveFirst)?);
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
        if !failures.is_empty() {
            return Err(MeshError::Missing { ranks: failures, timeout_s: timeout.as_secs_f64() });
        }
        let link = |(at, lanes): (usize, Vec<Option<Opened>>)| {
            let (streams, neighbours): (Vec<_>, Vec<_>) = lanes.into_iter().flatten().unzip();
            let neighbour = neighbours.into_iter().flatten().next();
            (at != own.index()).then(|| Link { rank: Rank::from_index(at), streams, neighbour })
        };
        Ok(open.into_iter().enumerate().map(link).collect())
    }
}

/// A connection that is ready, and what came over it.
type Opened = (Stream, Option<Neighbour>);

impl Drop for Door {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in the door thread has been printed by the runtime; there is nothing to add here.
            drop(thread.join());
        }
    }
}

/// Abstract, so nothing is left in a file system; the port makes it unique in its network namespace.
fn local_name(job: &str, rank: Rank, port: u16) -> io::Result<unix::SocketAddr> {
    unix::SocketAddr::from_abstract_name(format!("hocket/{job}/{rank}/{port}"))
}

fn keep_door(
    doors: &[TcpListener],
    local: &unix::UnixListener,
    identity: &Identity,
    [closing, starved]: [&AtomicBool; 2],
    admitted: &mpsc::Sender<(Way, Stream)>,
) {
    let callers = Arc::new(AtomicUsize::new(0));
    let log = Arc::new(Log::new(identity.rank));
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: DOOR_POLL.as_nanos() as _ };
    while !closing.load(Ordering::Relaxed) {
        let mut fds: Vec<PollFd<'_>> = doors.iter().map(|door| PollFd::new(door, PollFlags::IN)).collect();
        fds.push(PollFd::new(local, PollFlags::IN));
        if !matches!(poll(&mut fds, Some(&timeout)), Ok(1..)) {
            continue;
        }
        let mut heard = Vec::new();
        let far = doors
            .iter()
            .map(|door| door.accept().map(|(stream, from)| (Stream::Tcp(stream), from.to_string())));
        let near = local.accept().map(|(stream, _)| (Stream::Unix(stream), "this host".to_owned()));
        for accepted in far.chain([near]) {
            let error = match accepted {
                Ok(caller) => {
                    heard.push(caller);
                    continue;
                }
                Err(error) => error,
            };
            if is_out_of_descriptors(&error) {
                starved.store(true, Ordering::Relaxed);
            }
            // The caller stays at the door, and asking again at once would burn a core.
            if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) {
                thread::sleep(DOOR_POLL);
            }
        }
        for (stream, from) in heard {
            if callers.fetch_add(1, Ordering::Relaxed) >= CALLERS_MAX {
                callers.fetch_sub(1, Ordering::Relaxed);
                log.turn_away(&from, &"too many callers at once");
                continue;
            }
            let (identity, admitted) = (identity.clone(), admitted.clone());
            let (callers, log) = (Arc::clone(&callers), Arc::clone(&log));
            let hearing = thread::Builder::new().name("hocket-caller".into()).spawn(move || {
                match admit(&identity, stream) {
                    // The mesh may be complete and gone; then dropping the stream turns the caller away.
                    Ok(link) => drop(admitted.send(link)),
                    Err(why) => log.turn_away(&from, &why),
                }
                callers.fetch_sub(1, Ordering::Relaxed);
            });
            if hearing.is_err() {
                thread::sleep(DOOR_POLL);
            }
        }
    }
}

/// Says on standard error who was turned away, in bounded lines: a thousand strangers a second must not fill a disk.
struct Log {
    rank: Rank,
    /// When the current second began, lines in it, callers that got none.
    state: Mutex<(Instant, u32, u64)>,
}

impl Log {
    fn new(rank: Rank) -> Self {
        Self { rank, state: Mutex::new((Instant::now(), 0, 0)) }
    }

    fn turn_away(&self, from: &str, why: &dyn std::fmt::Display) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, lines, unsaid) = &mut *state;
        if began.elapsed() >= Duration::from_secs(1) {
            (*began, *lines) = (Instant::now(), 0);
        }
        if *lines == LOG_LINES_MAX {
            *unsaid += 1;
            return;
        }
        *lines += 1;
        let more = match std::mem::take(unsaid) {
            0 => String::new(),
            unsaid => format!(" (and {unsaid} more before it)"),
        };
        let rank = self.rank;
        // Standard error is the log of last resort; failing to write there must not stop the job.
        drop(writeln!(io::stderr(), "hocket: rank {rank} turned away a connection from {from}: {why}{more}"));
    }
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

fn refused(error: HandshakeError) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

fn admit(identity: &Identity, stream: Stream) -> io::Result<(Way, Stream)> {
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut stream = match (stream, &identity.tls) {
        (Stream::Tcp(tcp), Some(tls)) => Stream::Tls(Box::new(TlsStream::accept(tcp, tls, deadline)?)),
        (stream, _) => stream,
    };
    let mut hello = [0; HELLO_BYTES];
    read_until(&mut stream, &mut hello, deadline)?;
    let acceptor =
        Acceptor::handle_hello(&identity.secret, identity.rank, &hello, nonce()?).map_err(refused)?;
    let binding = stream.binding().to_vec();
    let acceptor = acceptor.bound_to(&binding);
    write_now(&mut stream, &acceptor.challenge())?;
    let mut proof = [0; PROOF_BYTES];
    read_until(&mut stream, &mut proof, deadline)?;
    let way = acceptor.handle_proof(&proof).map_err(refused)?;
    write_now(&mut stream, &[WELCOME])?;
    Ok((way, stream))
}

fn write_now(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// Fills `buffer` before `deadline`, however slowly the bytes trickle in.
fn read_until(stream: &mut Stream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut have = 0;
    while have < buffer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it did not finish the handshake in time"));
        }
        stream.set_deadline(left)?;
        match stream.read(&mut buffer[have..]) {
            Ok(0) => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up during the handshake"));
            }
            Ok(bytes) => have += bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Calls the door of a lower rank until it answers or the deadline is over; within the host if it leads `towards` nowhere.
fn call(
    identity: &Identity,
    way: Way,
    peer: &Address,
    towards: Option<Towards>,
    deadline: Instant,
) -> io::Result<Stream> {
    loop {
        let attempt = attempt_call(identity, way, peer, towards, deadline);
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
    way: Way,
    peer: &Address,
    towards: Option<Towards>,
    deadline: Instant,
) -> io::Result<Stream> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let deadline = deadline.min(Instant::now() + HANDSHAKE_TIMEOUT);
    let mut stream = if let Some(towards) = towards {
        let tcp = towards.open(left)?;
        match &identity.tls {
            Some(tls) => Stream::Tls(Box::new(TlsStream::connect(tcp, tls, deadline)?)),
            None => Stream::Tcp(tcp),
        }
    } else {
        let port = peer.tcp.first().map_or(0, SocketAddr::port);
        Stream::Unix(unix::UnixStream::connect_addr(&local_name(&identity.job, way.to, port)?)?)
    };
    let binding = stream.binding().to_vec();
    let connector = Connector::new(&identity.secret, way, nonce()?).bound_to(&binding);
    write_now(&mut stream, &connector.hello())?;
    let mut challenge = [0; CHALLENGE_BYTES];
    read_until(&mut stream, &mut challenge, deadline)?;
    write_now(&mut stream, &connector.handle_challenge(&challenge).map_err(refused)?)?;
    let mut welcome = [0];
    read_until(&mut stream, &mut welcome, deadline)?;
    Ok(stream)
}

/// Who passes descriptors first: the connector, so that neither waits for the other.
#[derive(Clone, Copy)]
enum Exchange {
    SendFirst,
    ReceiveFirst,
}

fn finish(stream: Stream, arena: &Arena, waker: &Waker, exchange: Exchange) -> io::Result<Opened> {
    stream.set_deadline(HANDSHAKE_TIMEOUT)?;
    let neighbour = match &stream {
        Stream::Tcp(_) | Stream::Tls(_) => None,
        Stream::Unix(unix) => {
            let ours = [arena.fd(), waker.fd()];
            let [memory, bell] = match exchange {
                Exchange::SendFirst => {
                    pass_fd::send(unix, &ours)?;
                    pass_fd::receive(unix)?
                }
                Exchange::ReceiveFirst => {
                    let theirs = pass_fd::receive(unix)?;
                    pass_fd::send(unix, &ours)?;
                    theirs
                }
            };
            Some(Neighbour { arena: map_peer(memory.as_fd())?, waker: Waker::from_fd(bell) })
        }
    };
    stream.set_nonblocking()?;
    Ok((stream, neighbour))
}
