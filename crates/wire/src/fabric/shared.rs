//! The endpoint of a rank, which all of its links share.
//!
//! The `unsafe` here rests on one invariant: memory of an operation is in this rank's arena, whose mapping outlives the
//! endpoint, and the link that posts it leaves the bytes alone until the operation has ended. Bytes that others may use
//! before that are pieces of this module's own (`Piece`), which are used again only then.

use crate::memory::{Allocation, Arena, Region, Watcher};
use crate::poll::Poller;
use hocket_fabric::{Carrier, Completion, Destination, FabricError, Memory, Operation, Posting};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::PIECE_BYTES;

/// How often a fabric without a descriptor is polled without a pause after something moved: about 50 µs.
const SPIN_POLLS: u32 = 64;
/// The pause between polls after that, while operations are under way.
const PAUSE: Duration = Duration::from_micros(20);
/// The pause after a full queue, or a connection that is coming up.
const FULL_PAUSE: Duration = Duration::from_micros(100);
/// The pause where a descriptor reports everything: bounds how late an event is noticed that it did not report.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(5);

/// A piece's worth of registered memory.
#[derive(Debug)]
pub struct Piece(Allocation);

impl Piece {
    /// Its first `bytes`.
    pub fn region(&self, bytes: usize) -> Region {
        self.0.region().sub(0, bytes)
    }
}

/// What a post of an operation returns: `None` where the provider's queue is full.
pub type Posted = Result<Option<Operation>, FabricError>;

/// The endpoint of a rank.
pub struct Shared {
    inner: Mutex<Inner>,
    provider: String,
    address: Vec<u8>,
    arena: Arc<Arena>,
}

struct Inner {
    carrier: Box<dyn Carrier>,
    /// The link of each operation under way.
    owners: HashMap<Operation, u32>,
    /// What has ended, by link.
    ended: HashMap<u32, VecDeque<Completion>>,
    /// Operations of links that have ended, and their memory.
    adopted: HashMap<Operation, Option<Piece>>,
    spare: Vec<Piece>,
    links: u32,
    /// The next tag. Tags of a rank never repeat.
    tag: u64,
    watched: bool,
    /// When a link made progress, and which.
    polled_at: Duration,
    polled_by: u32,
    /// Polls since something moved.
    quiet_polls: u32,
    full: bool,
    /// Why nothing works any more.
    failed: Option<FabricError>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({})", self.provider)
    }
}

impl Shared {
    /// Of an endpoint whose operations use memory of `arena`. Fails where its messages are too small.
    pub fn new(carrier: Box<dyn Carrier>, arena: &Arc<Arena>) -> Result<Arc<Self>, String> {
        let (provider, max) = (carrier.provider().to_owned(), carrier.message_bytes_max());
        if max < PIECE_BYTES {
            return Err(format!("messages of {provider} hold {max} bytes; {PIECE_BYTES} are needed"));
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let inner = Inner {
            owners: HashMap::new(),
            ended: HashMap::new(),
            adopted: HashMap::new(),
            spare: Vec::new(),
            links: 0,
            // Strangers on the fabric cannot guess tags, and no message counts beyond 48 bits.
            tag: u64::from_le_bytes(random) >> 18 | 1,
            watched: false,
            polled_at: Duration::ZERO,
            polled_by: 0,
            quiet_polls: 0,
            full: false,
            failed: None,
            carrier,
        };
        let address = inner.carrier.address().to_vec();
        let shared = Arc::new(Self { inner: Mutex::new(inner), provider, address, arena: Arc::clone(arena) });
        let weak = Arc::downgrade(&shared);
        arena.watch(weak);
        Ok(shared)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The provider's name.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Our address, for other ranks.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// A new link to the end with that address: its number here, and where it sends to.
    pub fn attach(&self, address: &[u8]) -> Result<(u32, Destination), FabricError> {
        let mut inner = self.inner();
        let to = inner.carrier.insert(address)?;
        inner.links += 1;
        Ok((inner.links, to))
    }

    /// Tags for so many pieces: the first.
    pub fn tags(&self, pieces: usize) -> u64 {
        let mut inner = self.inner();
        let first = inner.tag;
        inner.tag += pieces as u64;
        first
    }

    /// Memory for a piece.
    pub fn piece(&self) -> io::Result<Piece> {
        if let Some(piece) = self.inner().spare.pop() {
            return Ok(piece);
        }
        Ok(Piece(self.arena.allocate(PIECE_BYTES)?))
    }

    /// Memory that no operation under way uses.
    pub fn put_back(&self, piece: Piece) {
        self.inner().spare.push(piece);
    }

    /// Prepares memory, where the provider asks for that.
    pub fn register(&self, region: &Region) -> Result<(), FabricError> {
        self.inner().carrier.register(memory_of(region))
    }

    /// Posts a receive of link `link`, into bytes that it leaves alone until that has ended.
    pub fn receive(&self, link: u32, region: &Region, tag: u64) -> Posted {
        self.post(link, region, |carrier, memory| {
            // SAFETY: the module's invariant.
            unsafe { carrier.receive(memory, tag) }
        })
    }

    /// Posts a send of link `link`, of bytes that it does not change until that has ended.
    pub fn send(&self, link: u32, to: Destination, region: &Region, tag: u64) -> Posted {
        self.post(link, region, |carrier, memory| {
            // SAFETY: the module's invariant.
            unsafe { carrier.send(to, memory, tag) }
        })
    }

    fn post(
        &self,
        link: u32,
        region: &Region,
        post: impl FnOnce(&mut dyn Carrier, Memory) -> Result<Posting, FabricError>,
    ) -> Posted {
        debug_assert!(region.is_of(self.arena.mapping()), "operations use the arena alone");
        let mut inner = self.inner();
        if let Some(failed) = &inner.failed {
            return Err(failed.clone());
        }
        let memory = memory_of(region);
        inner.carrier.register(memory)?;
        Ok(match post(&mut *inner.carrier, memory)? {
            Posting::Posted(operation) => {
                inner.owners.insert(operation, link);
                Some(operation)
            }
            Posting::Full => {
                inner.full = true;
                None
            }
        })
    }

    /// Operations of a link that ends, and their memory, which is used again once they have ended.
    pub fn adopt(&self, under_way: Vec<(Operation, Option<Piece>)>) {
        let mut inner = self.inner();
        for (operation, piece) in under_way {
            inner.carrier.cancel(operation);
            inner.owners.remove(&operation);
            inner.adopted.insert(operation, piece);
        }
    }

    /// Asks for the early end of an operation.
    pub fn cancel(&self, operation: Operation) {
        self.inner().carrier.cancel(operation);
    }

    /// Makes progress, once in a turn over all links; what has ended of link `link`. An error ends all links.
    pub fn poll(&self, link: u32, now: Duration) -> Result<VecDeque<Completion>, FabricError> {
        let mut inner = self.inner();
        if (inner.polled_at != now || inner.polled_by == link) && inner.failed.is_none() {
            (inner.polled_at, inner.polled_by) = (now, link);
            inner.advance();
        }
        let ended = inner.ended.remove(&link).unwrap_or_default();
        match &inner.failed {
            Some(failed) if ended.is_empty() => Err(failed.clone()),
            _ => Ok(ended),
        }
    }

    /// Registers the descriptor with the poller of all links, once, as part `part` of the link that asks first.
    pub fn watch(&self, poller: &Poller, number: u32, part: u32) -> io::Result<()> {
        let mut inner = self.inner();
        if std::mem::replace(&mut inner.watched, true) {
            return Ok(());
        }
        inner.carrier.descriptor().map_or(Ok(()), |descriptor| poller.add(descriptor, number, part))
    }

    /// Whether to poll again at once, and after which pause otherwise, while operations are under way.
    pub fn pause(&self) -> (bool, Option<Duration>) {
        let mut inner = self.inner();
        if std::mem::take(&mut inner.full) {
            return (false, Some(FULL_PAUSE));
        }
        if inner.owners.is_empty() {
            return (false, None);
        }
        match inner.carrier.descriptor() {
            Some(_) => (false, Some(DESCRIPTOR_PAUSE)),
            None => (inner.quiet_polls < SPIN_POLLS, Some(PAUSE)),
        }
    }

    /// Whether a thread that sleeps is woken by whatever happens, or need not be.
    pub fn may_sleep(&self) -> bool {
        let mut inner = self.inner();
        inner.carrier.descriptor().is_none() || inner.failed.is_some() || inner.carrier.may_sleep()
    }
}

impl Inner {
    fn advance(&mut self) {
        let mut ended = Vec::new();
        let polled = self.carrier.poll(&mut ended);
        self.quiet_polls = if ended.is_empty() { self.quiet_polls.saturating_add(1) } else { 0 };
        for completion in ended {
            if let Some(piece) = self.adopted.remove(&completion.operation) {
                self.spare.extend(piece);
                continue;
            }
            match self.owners.remove(&completion.operation) {
                Some(link) => self.ended.entry(link).or_default().push_back(completion),
                None => self.failed = Some(FabricError::Broken("it ended an operation twice".into())),
            }
        }
        if let Err(error) = polled {
            self.failed = Some(error);
        }
    }
}

impl Watcher for Shared {
    fn freed(&self, region: &Region) {
        // Failing to forget leaves pages pinned; the endpoint still closes.
        let _: Result<(), FabricError> = self.inner().carrier.forget(memory_of(region));
    }
}

fn memory_of(region: &Region) -> Memory {
    Memory { address: region.address(), len: region.len() }
}
