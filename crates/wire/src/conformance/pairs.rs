//! Both ends of a link, of each kind.

use super::bed::{FIRST, Halves, Pair, SILENCE_MAX};
use crate::bell::Bell;
use crate::fabric::{FabricLink, FabricPort, Shared};
use crate::life::Watch;
use crate::link::{Link, Port};
use crate::reference;
use crate::shm::link::{ShmLink, ShmPort};
use crate::tcp::tls::{Credentials, TlsStream};
use crate::tcp::{Stream, TcpLink, TcpPort, Terms};
use hocket_fabric::{Carrier, Choice, Endpoint};
use hocket_ids::Rank;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A name, and what makes a pair.
pub type Kind = (&'static str, fn() -> Pair);

/// Links whose payloads land in place from a fabric, where no epoch ends before the job does.
pub const IN_PLACE: [Kind; 3] = [
    ("tcp;ofi_rxm in place", || fabric(Choice::Tcp, false, true)),
    ("shm in place, with checksums", || fabric(Choice::Shm, true, true)),
    ("udp;ofi_rxd in place", || fabric(Choice::Udp, false, true)),
];

/// Every other link.
pub const KINDS: [Kind; 12] = [
    ("tcp;ofi_rxm", || fabric(Choice::Tcp, false, false)),
    ("tcp;ofi_rxm with checksums", || fabric(Choice::Tcp, true, false)),
    ("shm", || fabric(Choice::Shm, false, false)),
    ("udp;ofi_rxd", || fabric(Choice::Udp, false, false)),
    ("tcp", || tcp(1, false, plain)),
    ("tcp, three lanes", || tcp(3, false, plain)),
    ("tcp with checksums", || tcp(2, true, plain)),
    ("tls", || tcp(1, false, encrypted)),
    ("tls, two lanes", || tcp(2, false, encrypted)),
    ("shared memory", || shared_memory([None, None])),
    ("reference", || reference_of(1)),
    ("reference, another order", || reference_of(2)),
];

fn terms(checksums: bool) -> Terms {
    Terms { checksums, silence_max: SILENCE_MAX, epoch: FIRST }
}

fn reference_of(seed: u64) -> Pair {
    Pair::new(|_, bells| {
        reference::pair(seed, SILENCE_MAX, FIRST, bells)
            .map(|(link, port)| (link as Arc<dyn Link>, Box::new(port) as Box<dyn Port>))
    })
}

fn plain() -> [Stream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [one, listener.accept().unwrap().0].map(Stream::Tcp)
}

fn encrypted() -> [Stream; 2] {
    let [Stream::Tcp(one), Stream::Tcp(other)] = plain() else { unreachable!("plain sockets") };
    let deadline = Instant::now() + Duration::from_secs(10);
    let calling = thread::spawn(move || TlsStream::connect(one, &Credentials::new().unwrap(), deadline));
    let other = TlsStream::accept(other, &Credentials::new().unwrap(), deadline).unwrap();
    [calling.join().unwrap().unwrap(), other].map(|stream| Stream::Tls(Box::new(stream)))
}

fn tcp(lanes: usize, checksums: bool, connect: fn() -> [Stream; 2]) -> Pair {
    Pair::new(|_, bells| {
        let mut streams = [Vec::new(), Vec::new()];
        for _ in 0..lanes {
            for (end, stream) in streams.iter_mut().zip(connect()) {
                stream.set_nonblocking().unwrap();
                end.push(stream);
            }
        }
        let mut streams = streams.into_iter();
        [0, 1].map(|own| -> Halves {
            let bell = Arc::clone(&bells[own]);
            let link = Arc::new(TcpLink::new(Rank(1 - own as u32), lanes, 1, checksums, bell));
            let streams = streams.next().unwrap();
            let port = TcpPort::new(Arc::clone(&link), streams, terms(checksums), None);
            (link, Box::new(port))
        })
    })
}

fn fabric(choice: Choice, checksums: bool, in_place: bool) -> Pair {
    let open =
        || -> Box<dyn Carrier> { Box::new(Endpoint::open(choice, IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap()) };
    over([open(), open()], checksums, in_place)
}

/// Over these endpoints.
pub fn over(carriers: [Box<dyn Carrier>; 2], checksums: bool, in_place: bool) -> Pair {
    Pair::new(move |arenas, bells| {
        let mut carriers = carriers.into_iter();
        let shared = [0, 1].map(|own| Shared::new(carriers.next().unwrap(), &arenas[own]).unwrap());
        let mut streams = plain().into_iter();
        [0, 1].map(|own| -> Halves {
            let stream = streams.next().unwrap();
            stream.set_nonblocking().unwrap();
            let (rank, bell) = (Rank(1 - own as u32), Arc::clone(&bells[own]));
            let link = Arc::new(FabricLink::new(rank, Arc::clone(&shared[own]), checksums, bell));
            let address = shared[1 - own].address();
            let port =
                FabricPort::new(Arc::clone(&link), stream, address, terms(checksums), in_place).unwrap();
            (link, Box::new(port))
        })
    })
}

/// Between ranks of one host; each watches that life of the other.
pub fn shared_memory(mut lives: [Option<Arc<Watch>>; 2]) -> Pair {
    Pair::new(move |arenas, bells| {
        let (one, other) = UnixStream::pair().unwrap();
        let mut streams = [one, other].into_iter();
        [0, 1].map(|own| -> Halves {
            let other = 1 - own;
            let theirs = crate::memory::map_peer(arenas[other].fd()).unwrap();
            let waker = crate::poll::Waker::from_fd(bells[other].waker().fd().try_clone_to_owned().unwrap());
            let bell = Bell::new(&theirs, waker);
            let rank = Rank(other as u32);
            let link =
                Arc::new(ShmLink::new(rank, &arenas[own], (theirs, bell), own, Arc::clone(&bells[own])));
            let stream = Stream::Unix(streams.next().unwrap());
            stream.set_nonblocking().unwrap();
            let port = ShmPort::new(Arc::clone(&link), stream, other, terms(false), lives[own].take());
            (link, Box::new(port))
        })
    })
}
