//! Both ends of a link, of each kind.

use super::bed::{FIRST, Halves, Pair, SILENCE_MAX};
use crate::bell::Bell;
use crate::connection::tls::{Credentials, TlsStream};
use crate::connection::{Stream, Terms};
use crate::endpoint::{self, Endpoints, Exchange, Options, Own};
use crate::fabric::Fabric;
use crate::identity::Address;
use crate::life::{Life, Lifetime};
use crate::memory::Arena;
use crate::reference;
use crate::transports::ALL;
use hocket_fabric::Carrier;
use hocket_ids::Rank;
use hocket_protocol::liveness::Patience;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A name, and what makes a pair.
pub type Kind = (&'static str, fn() -> Pair);

/// Links whose payloads land in place from a fabric, where no epoch ends before the job does.
pub const IN_PLACE: [Kind; 3] = [
    ("tcp;ofi_rxm in place", || Wanted { elastic: false, ..of("fabric:tcp") }.pair()),
    ("shm in place, with checksums", || {
        Wanted { elastic: false, checksums: true, ..of("fabric:shm") }.pair()
    }),
    ("udp;ofi_rxd in place", || Wanted { elastic: false, ..of("fabric:udp") }.pair()),
];

/// Every other link.
pub const KINDS: [Kind; 12] = [
    ("tcp;ofi_rxm", || of("fabric:tcp").pair()),
    ("tcp;ofi_rxm with checksums", || Wanted { checksums: true, ..of("fabric:tcp") }.pair()),
    ("shm", || of("fabric:shm").pair()),
    ("udp;ofi_rxd", || of("fabric:udp").pair()),
    ("tcp", || of("tcp").pair()),
    ("tcp, three lanes", || Wanted { lanes: 3, ..of("tcp") }.pair()),
    ("tcp with checksums", || Wanted { lanes: 2, checksums: true, ..of("tcp") }.pair()),
    ("tls", || Wanted { connect: encrypted, ..of("tcp") }.pair()),
    ("tls, two lanes", || Wanted { lanes: 2, connect: encrypted, ..of("tcp") }.pair()),
    ("shared memory", || shared_memory([None, None])),
    ("reference", || of("reference:1").pair()),
    ("reference, another order", || of("reference:2").pair()),
];

/// A pair that the transports of the list make, as they do for engines.
#[derive(Clone, Copy)]
struct Wanted {
    wire: &'static str,
    hosts: [&'static str; 2],
    lanes: usize,
    checksums: bool,
    elastic: bool,
    connect: fn() -> [Stream; 2],
}

const fn of(wire: &'static str) -> Wanted {
    Wanted { wire, hosts: ["a", "b"], lanes: 1, checksums: false, elastic: true, connect: plain }
}

/// Between ranks of one host; each watches the life of the other.
pub fn shared_memory(lives: [Option<&Life>; 2]) -> Pair {
    let connect = || {
        let (one, other) = UnixStream::pair().unwrap();
        [one, other].map(Stream::Unix)
    };
    let wanted = Wanted { hosts: ["a", "a"], connect, ..of("tcp") };
    Pair::new(|arenas, bells| wanted.join(&wanted.open(arenas), lives, arenas, bells))
}

/// Over these endpoints of a fabric.
pub fn over(carriers: [Box<dyn Carrier>; 2], checksums: bool, in_place: bool) -> Pair {
    Pair::new(move |arenas, bells| {
        let mut arena = arenas.iter();
        let endpoints = carriers.map(|carrier| {
            let fabric = Fabric::new(carrier, arena.next().unwrap(), in_place).unwrap();
            Endpoints(vec![Box::new(fabric)])
        });
        Wanted { checksums, ..of("fabric") }.join(&endpoints, [None, None], arenas, bells)
    })
}

impl Wanted {
    fn pair(self) -> Pair {
        Pair::new(|arenas, bells| self.join(&self.open(arenas), [None, None], arenas, bells))
    }

    /// By a list with one transport more, which is a folder and a line.
    fn open(self, arenas: &[Arc<Arena>; 2]) -> [Endpoints; 2] {
        let list = [&[reference::TRANSPORT], ALL].concat();
        let options = Options {
            wire: self.wire.into(),
            host: "a".into(),
            bind: vec![[127, 0, 0, 1].into()],
            ports: 0..=0,
            tls: false,
            elastic: self.elastic.then_some(Lifetime::Engine),
            emulated_links: None,
        };
        arenas.each_ref().map(|arena| Endpoints::open(&list, &options, arena).unwrap())
    }

    /// Both ends meet over each connection, and make their links.
    fn join(
        self,
        endpoints: &[Endpoints; 2],
        lives: [Option<&Life>; 2],
        arenas: &[Arc<Arena>; 2],
        bells: &[Arc<Bell>; 2],
    ) -> [Halves; 2] {
        let addresses = self.hosts.map(|host| {
            let tcp = vec![([127, 0, 0, 1], 1).into()];
            Address { tcp, host: host.into(), streams: self.lanes }
        });
        let mut lanes: [Vec<(Stream, endpoint::Join)>; 2] = [Vec::new(), Vec::new()];
        let between = |own: usize| endpoints[own].between(&addresses[own], &addresses[1 - own]).unwrap();
        assert_eq!(between(0).lanes(&addresses[0], &addresses[1]), self.lanes..=self.lanes);
        for _ in 0..self.lanes {
            let meet = |own: usize, mut stream: Stream| {
                let (arena, endpoints) = (&arenas[own], &endpoints[own]);
                let ours = Own { arena, waker: bells[own].waker(), life: lives[own], endpoints };
                let exchange = [Exchange::SendFirst, Exchange::ReceiveFirst][own];
                let join = between(own).meet(&mut stream, ours, exchange).unwrap();
                stream.set_nonblocking().unwrap();
                (stream, join)
            };
            let [one, other] = (self.connect)();
            thread::scope(|scope| {
                let other = scope.spawn(|| meet(1, other));
                lanes[0].push(meet(0, one));
                lanes[1].push(other.join().unwrap());
            });
        }
        let mut lanes = lanes.into_iter();
        [0, 1].map(|own| {
            let (streams, mut joins): (Vec<_>, Vec<_>) = lanes.next().unwrap().into_iter().unzip();
            let pair = endpoint::Pair {
                rank: Rank(1 - own as u32),
                positions: (own, 1 - own),
                addresses: (&addresses[own], &addresses[1 - own]),
                arena: &arenas[own],
                bell: &bells[own],
                terms: Terms { checksums: self.checksums, patience: Patience::of(SILENCE_MAX), epoch: FIRST },
            };
            let (link, port, _) = joins.pop().unwrap()(streams, pair).unwrap();
            (link, port)
        })
    }
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
