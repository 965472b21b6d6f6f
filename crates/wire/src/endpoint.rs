//! What a transport is, a way in which bytes move between two ranks, and a rank's end of one.

use crate::bell::Bell;
use crate::connection::{Stream, Terms};
use crate::identity::Address;
use crate::life::{Life, Lifetime, Watch};
use crate::link::{Link, Port};
use crate::memory::Arena;
use crate::poll::Waker;
use crate::shaper::EmulatedLinks;
use hocket_ids::Rank;
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A transport, before a rank opens it.
#[derive(Clone, Copy)]
pub struct Transport {
    /// What users call it.
    pub name: &'static str,
    /// Opens a rank's endpoint, whose links use that memory; `None` where the options do not ask for one. `InvalidInput`: they
    /// ask for what there is not, or exclude each other.
    pub open: fn(&Options, &Arc<Arena>) -> Opened,
    /// What it needs of this machine; `None` if every machine has it.
    pub needs: Option<fn() -> Need>,
}

/// What [`Transport::open`] returns.
pub type Opened = io::Result<Option<Box<dyn Endpoint>>>;

/// Something of a machine that a transport needs: its name, its parts or why it is missing, and a hint for then.
pub type Need = (&'static str, Result<String, String>, &'static str);

/// What a rank asks of its transports; the same on all ranks but for `host` and `bind`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The transport between hosts, by name, and a word for it: `fabric:efa`.
    pub wire: String,
    /// Name of our host, the same as in its address; no other host of the job has it.
    pub host: String,
    /// Addresses to listen on: one, or one per interface that connections are spread over.
    pub bind: Vec<IpAddr>,
    /// Ports to listen on; 0 to 0: any.
    pub ports: RangeInclusive<u16>,
    /// Connections between hosts are encrypted.
    pub tls: bool,
    /// Whether the job goes on without peers that are lost. Whose end neighbours then wait for before they use memory again
    /// that this rank may write to.
    pub elastic: Option<Lifetime>,
    /// Emulated network, where the kernel's own cannot be shaped.
    pub emulated_links: Option<EmulatedLinks>,
}

impl Options {
    /// The word for the transport of that name, which may be empty; `None` if another one is asked for.
    pub fn word_for(&self, name: &str) -> Option<&str> {
        let (asked, word) = self.wire.split_once(':').unwrap_or((&self.wire, ""));
        (asked == name).then_some(word)
    }
}

/// A rank's end of a transport, which its links share.
pub trait Endpoint: Send + Sync {
    /// Whether it leads from one of these hosts to the other.
    fn reaches(&self, own: &Address, peer: &Address) -> bool;

    /// Connections of a link between the two, at least and at most: the rank that calls chooses by the path.
    fn lanes(&self, _own: &Address, _peer: &Address) -> RangeInclusive<usize> {
        1..=1
    }

    /// Tells the other rank what it must know of this end, over a connection that is proved, and hears the same of it.
    fn meet(&self, stream: &mut Stream, own: Own<'_>, exchange: Exchange) -> io::Result<Join>;
}

/// This rank's side of its connections.
#[derive(Clone, Copy)]
pub struct Own<'a> {
    /// Its memory.
    pub arena: &'a Arena,
    /// Wakes its I/O thread.
    pub waker: &'a Waker,
    /// Its life, if ranks watch one another's: all or none.
    pub life: Option<&'a Life>,
    /// Its ends of transports: the same on all ranks.
    pub endpoints: &'a Endpoints,
}

/// The connector tells first, so that the two never wait for each other.
#[derive(Clone, Copy, Debug)]
pub enum Exchange {
    /// This rank called.
    SendFirst,
    /// The other rank called.
    ReceiveFirst,
}

/// Makes a link of its connections; it knows what the other rank has told. `Err`: why there is none.
pub type Join = Box<dyn FnOnce(Vec<Stream>, Pair<'_>) -> Result<Ends, String> + Send>;

/// This rank and the one at the other end of a link.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    /// The other rank.
    pub rank: Rank,
    /// Our place and its own among the ranks of their hosts.
    pub positions: (usize, usize),
    /// Our addresses and its own.
    pub addresses: (&'a Address, &'a Address),
    /// Our registered memory.
    pub arena: &'a Arena,
    /// Wakes our I/O thread.
    pub bell: &'a Arc<Bell>,
    /// What all ranks agree about.
    pub terms: Terms,
}

/// Both halves of a link, and the life of a neighbour that is watched.
pub type Ends = (Arc<dyn Link>, Box<dyn Port>, Option<Arc<Watch>>);

/// A rank's endpoints, the preferred one first.
pub struct Endpoints(pub(crate) Vec<Box<dyn Endpoint>>);

impl Endpoints {
    /// Opens those of `transports` that the options ask for; errors are those of [`Transport::open`].
    pub fn open(transports: &[Transport], options: &Options, arena: &Arc<Arena>) -> io::Result<Self> {
        if !transports.iter().any(|transport| options.word_for(transport.name).is_some()) {
            let known: Vec<&str> = transports.iter().map(|transport| transport.name).collect();
            return refused(format!("`{}` is no transport; there are {}", options.wire, known.join(", ")));
        }
        let opened = transports.iter().map(|transport| (transport.open)(options, arena));
        Ok(Self(opened.filter_map(Result::transpose).collect::<Result<_, _>>()?))
    }

    /// The one for links between the two.
    pub fn between(&self, own: &Address, peer: &Address) -> io::Result<&dyn Endpoint> {
        let found = self.0.iter().find(|endpoint| endpoint.reaches(own, peer));
        let none = || io::Error::other(format!("no transport leads from {} to {}", own.host, peer.host));
        found.map(Box::as_ref).ok_or_else(none)
    }
}

/// The error of options that cannot be.
pub(crate) fn refused<T>(what: String) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
