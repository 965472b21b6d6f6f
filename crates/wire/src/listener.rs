//! Brings up a rank's links to all others. A listener admits callers that prove the job's secret, and the rank calls
//! the listeners of lower ranks (`meeting`), over several connections where a transport has lanes. Each transport tells over
//! them what the other end must know (`transports`).
//!
//! The listener stays open while the rank lives, so that strangers are rejected and logged instead of left hanging
//! (`callers`). A mesh that does not come up sends the reason to the ranks that are already connected.

use crate::callers::{keep_listening, turn_away};
use crate::connection::{Stream, give_up};
use crate::endpoint::Own;
use crate::identity::{Address, Identity};
use crate::limits::explained;
use crate::meeting::Meeting;
use crate::mesh::{Agree, Mesh, MeshError, local_name};
use crate::poll::Waker;
use hocket_ids::Rank;
use hocket_protocol::handshake::LaneId;
use hocket_protocol::why::Why;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::unix::net as unix;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Connections of a rank beyond which paths get no further ones of their own accord: many a host allows a process 1024
/// descriptors.
const CONNECTIONS_MAX: usize = 256;

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
        let mut lanes = vec![0..=0; peers.len()];
        for rank in dialled {
            let peer = &peers[rank.index()];
            let (least, most) = shared.endpoints.between(here, peer)?.lanes(here, peer).into_inner();
            lanes[rank.index()] = least..=most.min(CONNECTIONS_MAX / peers.len()).max(least);
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
