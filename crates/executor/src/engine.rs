//! One rank's executor as seen by its owner: memory, programs, launches, waits.

use crate::arrival::add;
use crate::compile::{compile, own_bytes, refuse_spaces};
use crate::core::Core;
use crate::error::Error;
use crate::external::External;
use crate::failure::Who;
use crate::instruction::{Action, peers_of};
use crate::io_thread::{Ports, run};
use crate::loaded::{Begun, Launch, Loaded, NonFinite, Set};
use crate::lock::lock;
use crate::options::Options;
use crate::peer::{Peer, Peers};
use crate::peer_table::{LOCAL_WORLD_MAX, PeerTable};
use crate::sets::{apart, bound, bound_of};
use hocket_ids::{BufferId, Member, Rank};
use hocket_kernels::Function;
use hocket_program::Program;
use hocket_protocol::why::Why;
use hocket_trace::{Kind, Record, Recorder};
use hocket_wire::bell::Bell;
use hocket_wire::clock::now_ns;
use hocket_wire::identity::{Address, Identity};
use hocket_wire::memory::{Allocation, Arena, Mapping, Region};
use hocket_wire::mesh::Listener;
use hocket_wire::poll::{Poller, Waker};
use hocket_wire::shaper::Shaper;
use hocket_wire::shm::claims::CLAIMS_BYTES;
use hocket_wire::shm::mailbox::reserved_bytes;
use hocket_wire::tcp::Info;
use hocket_wire::tcp::tls::Credentials;
use hocket_wire::transports::{Local, link};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest interval between checks whether a wait was interrupted.
pub(crate) const WAKE: Duration = Duration::from_millis(100);

/// One rank's executor and wire.
pub struct Engine {
    pub(crate) core: Arc<Core>,
    arena: Arc<Arena>,
    identity: Identity,
    world: usize,
    addresses: Vec<std::net::SocketAddr>,
    shaper: Option<Arc<Shaper>>,
    silence_max: Duration,
    listener: Mutex<Option<Listener>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Opens the listener; the mesh comes up with [`Self::connect`].
    pub fn new(options: Options) -> Result<Self, Error> {
        if options.rank.index() >= options.world {
            return Err(Error::Usage(format!("rank {} in a world of {}", options.rank, options.world)));
        }
        if options.threads == 0 {
            return Err(Error::Usage("an executor needs at least one thread".into()));
        }
        if options.silence_max.is_zero() {
            return Err(Error::Usage("a peer must be allowed some silence".into()));
        }
        let arena = Arena::new(reserved_bytes(LOCAL_WORLD_MAX))?;
        let recorder = options
            .trace
            .as_ref()
            .map(|path| Recorder::create(path, options.rank.0, options.world as u32))
            .transpose()?;
        let tls = options.tls.then(Credentials::new).transpose();
        let tls = tls.map_err(|cause| Error::System(format!("cannot set up TLS: {cause}")))?.map(Arc::new);
        let identity = Identity {
            rank: options.rank,
            job: options.job,
            secret: options.secret,
            tls,
            checksums: options.checksum,
        };
        let listener = Listener::open(&options.bind, identity.clone()).map_err(Error::from)?;
        let bell = Arc::new(Bell::new(arena.mapping(), Waker::new()?));
        let own = Who { rank: options.rank, host: options.host };
        let core = Core::new(own, options.threads - 1, bell, recorder);
        Ok(Self {
            core: Arc::new(core),
            arena,
            identity,
            world: options.world,
            addresses: listener.addresses().to_vec(),
            shaper: options.emulated_links.map(Shaper::open).transpose()?.map(Arc::new),
            silence_max: options.silence_max,
            listener: Mutex::new(Some(listener)),
            threads: Mutex::default(),
        })
    }

    /// Our rank.
    pub fn rank(&self) -> Rank {
        self.identity.rank
    }

    /// Our host's name.
    pub fn host(&self) -> &str {
        &self.core.own.host
    }

    /// Registered memory of a rank of this host, ours included, once the mesh is up.
    pub fn arena(&self, rank: Rank) -> Option<Arc<Mapping>> {
        if rank == self.identity.rank {
            return Some(Arc::clone(self.arena.mapping()));
        }
        self.core.peers.get()?.get(rank)?.link.memory().map(Arc::clone)
    }

    /// The epoch of the membership: 0 before the mesh is up.
    pub fn epoch(&self) -> u32 {
        self.core.peers.get().map_or(0, |peers| peers.table.epoch())
    }

    /// The addresses that peers connect to.
    pub fn addresses(&self) -> &[std::net::SocketAddr] {
        &self.addresses
    }

    /// Joins the mesh of all ranks and starts the threads: this begins the first epoch.
    pub fn connect(&self, peers: &[Address], timeout: Duration) -> Result<(), Error> {
        if peers.len() != self.world {
            return Err(Error::Usage(format!("{} addresses for a world of {}", peers.len(), self.world)));
        }
        let own = self.identity.rank;
        let before = PeerTable::before(Member(own.0.into()));
        let members = peers.iter().enumerate().map(|(at, peer)| (Member(at as u64), peer.clone()));
        let table = before.next(members.collect())?;
        let mut listener =
            lock(&self.listener).take().ok_or_else(|| Error::Usage("connected already".into()))?;
        // Anything that a system limit may forbid comes before there are peers, which would have to be told.
        let bell = &self.core.bell;
        let poller = Poller::new(bell.waker())?;
        let connected = self.spawn_threads()?;
        let dialled = before.change(&table).dialled;
        let opened = listener.connect(
            &self.identity,
            &table.addresses(),
            &dialled,
            &self.arena,
            bell.waker(),
            timeout,
        )?;
        let local = Local {
            arena: &self.arena,
            bell,
            position: table.position(own.index()),
            checksums: self.identity.checksums,
            silence_max: self.silence_max,
            shaper: self.shaper.as_ref(),
        };
        let mut ports = Ports::new();
        let mut known: Vec<Option<Peer>> = (0..self.world).map(|_| None).collect();
        for (rank, connections) in dialled.into_iter().zip(opened) {
            let (link, port) = link(rank, connections, table.position(rank.index()), &local);
            port.watch(&poller, ports.len() as u32)?;
            ports.push((rank, port));
            let who = Who { rank, host: table.host_of(rank).to_owned() };
            known[rank.index()] = Some(Peer { who, link });
        }
        if self.core.peers.set(Peers::new(table, known)).is_err() {
            return Err(Error::Usage("connected already".into()));
        }
        connected
            .send((poller, ports, listener))
            .map_err(|_| Error::System("the I/O thread has ended before it began".into()))
    }

    /// Starts the workers and the I/O thread, which begins with the ports that are sent to it.
    fn spawn_threads(&self) -> Result<mpsc::Sender<(Poller, Ports, Listener)>, Error> {
        let (connected, arrival) = mpsc::channel();
        let mut threads = lock(&self.threads);
        let core = Arc::clone(&self.core);
        let io = thread::Builder::new().name("hocket-io".into());
        threads.push(io.spawn(move || {
            // The sender is dropped when the mesh does not come up.
            if let Ok((poller, ports, listener)) = arrival.recv() {
                run(&core, &poller, ports, listener);
            }
        })?);
        for worker in 0..self.core.workers {
            let core = Arc::clone(&self.core);
            let thread = thread::Builder::new().name(format!("hocket-work-{worker}"));
            threads.push(thread.spawn(move || core.work_until_closed())?);
        }
        Ok(connected)
    }

    /// Registered memory, zero-filled.
    pub fn allocate(&self, bytes: usize) -> Result<Allocation, Error> {
        Ok(self.arena.allocate(bytes)?)
    }

    /// Compiles our part of `program`, which may be of the world's first ranks alone; `sets` are the regions of its bound
    /// buffers, of which each launch uses one set, `kernels` the user's kernels by name. No two sets overlap.
    pub fn load(
        &self,
        program: &Program,
        sets: &[HashMap<BufferId, Region>],
        kernels: &HashMap<String, Function>,
        priority: u32,
        label: &str,
        number: Option<u32>,
    ) -> Result<u32, Error> {
        let wrong = |what: String| Error::Program { name: program.name.clone(), what };
        let Some(peers) = self.core.peers.get() else {
            return Err(Error::Usage("programs are loaded after `connect`".into()));
        };
        if sets.is_empty() {
            return Err(wrong("no memory is given".into()));
        }
        let world = peers.table.world();
        let ranks = program.world();
        if ranks > world || self.identity.rank.index() >= ranks {
            let rank = self.identity.rank;
            return Err(wrong(format!(
                "made for {ranks} ranks, loaded by rank {rank} of a world of {world}"
            )));
        }
        refuse_spaces(program).map_err(wrong)?;
        let rank = self.identity.rank;
        let mut scratch = Vec::new();
        let mut regions = vec![Vec::new(); sets.len()];
        for (at, wanted) in own_bytes(program, rank).into_iter().enumerate() {
            let buffer = &program.ranks[rank.index()].buffers[at];
            if let Some(wanted) = wanted {
                let allocation = self.allocate(wanted)?;
                for own in &mut regions {
                    own.push(allocation.region().clone());
                }
                scratch.push((buffer.name.clone(), allocation));
            } else {
                for (own, given) in regions.iter_mut().zip(sets) {
                    own.push(bound(buffer, given.get(&BufferId::from_index(at))).map_err(wrong)?);
                }
            }
        }
        let bound: Vec<_> = regions.iter().map(|own| bound_of(program, rank, own)).collect();
        apart(&bound).map_err(wrong)?;
        let bytes = bound[0].iter().map(|(region, _)| region.len() as u64).sum();
        let mut functions = Vec::with_capacity(program.kernels.len());
        for kernel in &program.kernels {
            let known = kernels.get(&kernel.name).copied().or_else(|| Function::builtin(&kernel.name));
            functions.push(known.ok_or_else(|| wrong(format!("there is no kernel `{}`", kernel.name)))?);
        }
        let mut loaded = Vec::with_capacity(sets.len());
        for (regions, bound) in regions.iter().zip(bound) {
            let mut instructions = compile(program, rank, regions, &functions)?;
            for peer in peers_of(&instructions).into_iter().filter_map(|rank| peers.get(rank)) {
                for region in regions {
                    peer.register(region)?;
                }
            }
            for instruction in &mut instructions {
                if let Action::InPlace(own) = &mut instruction.action {
                    self.core.shares_memory(own).map_err(wrong)?;
                    if own.own == 0 {
                        own.claims = Some(self.allocate(2 * CLAIMS_BYTES)?);
                    }
                }
            }
            loaded.push(Set { instructions, bound });
        }
        let make = |number| Loaded::new(number, label.to_owned(), priority, loaded, bytes, scratch);
        add(&self.core, number, make).map_err(Error::Usage)
    }

    /// A state buffer of a loaded program.
    pub fn state(&self, program: u32, name: &str) -> Result<Option<Region>, Error> {
        Ok(self.loaded(program)?.state(name))
    }

    /// The next collective for a library to execute, if there is one in time.
    pub fn next_external(&self, timeout: Duration) -> Option<External> {
        self.core.externals.next(timeout)
    }

    /// The library has executed that collective.
    pub fn complete_external(&self, program: u32, op: u32) -> Result<(), Error> {
        self.core.complete_external(program, op)
    }

    /// Frees a program's resources; its number stays taken. Call only after waiting for its last launch.
    pub fn unload(&self, program: u32) -> Result<(), Error> {
        let loaded = self.loaded(program)?;
        if !loaded.is_complete() {
            return Err(Error::Usage(format!("`{}` is unloaded while its last launch runs", loaded.label)));
        }
        self.core.programs.remove(program);
        Ok(())
    }

    /// Launches an instance of a loaded program on its first set; returns at once.
    pub fn launch(&self, program: u32) -> Result<(), Error> {
        self.launch_on(program, 0, 1.0)
    }

    /// Launches an instance on one of the program's sets, whose elements are multiplied with `factor` first; returns at
    /// once. It starts when launches of the other sets are complete that were asked for before.
    ///
    /// [`Error::Usage`]: the set is in use, or there is none of that number.
    pub fn launch_on(&self, program: u32, set: u32, factor: f64) -> Result<(), Error> {
        let loaded = self.loaded(program)?;
        if let Some(failure) = self.core.failure() {
            return Err(failure);
        }
        if let Some(gone) = self.core.gone(&loaded) {
            return Err(gone.into());
        }
        if set >= loaded.sets() {
            let what =
                format!("`{}` has {} sets of memory: there is no set {set}", loaded.label, loaded.sets());
            return Err(Error::Usage(what));
        }
        let launch = Launch { set, factor, asked_ns: now_ns() };
        if launch.scales() && loaded.has_integers() {
            return Err(Error::Usage(format!("`{}` has integers, which are not scaled", loaded.label)));
        }
        match loaded.launch(launch) {
            Begun::Now => self.core.begin(program),
            Begun::Later => {}
            Begun::Refused => {
                return Err(Error::Usage(format!(
                    "`{}` is launched while its last launch runs",
                    loaded.label
                )));
            }
        }
        Ok(())
    }

    /// Offers `region` to `to`; the region must not be written until the message is complete. Returns the message's
    /// number. [`Self::wait_message`] waits for it, or with `notice` [`Self::next_message`].
    pub fn send(&self, to: Rank, tag: u64, region: Region, notice: bool) -> Result<u32, Error> {
        self.check_peer(to, &region)?;
        Ok(self.core.send_message(to, tag, region, notice))
    }

    /// Receives a message with that tag from `from`, or from anyone, into `region`, which has the same size. Returns
    /// its number.
    pub fn receive(&self, from: Option<Rank>, tag: u64, region: Region, notice: bool) -> Result<u32, Error> {
        if let Some(from) = from {
            self.check_peer(from, &region)?;
        } else {
            self.check_mesh()?.all().flatten().try_for_each(|peer| peer.register(&region))?;
        }
        Ok(self.core.receive_message(from, tag, region, notice))
    }

    /// Waits for a message; returns its peer. `interrupted` is as in [`Self::wait`] and ends with `Ok(None)`. A receive
    /// that runs out of time is withdrawn.
    pub fn wait_message(
        &self,
        number: u32,
        timeout: Duration,
        mut interrupted: impl FnMut() -> bool,
    ) -> Result<Option<Rank>, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(peer) = lock(&self.core.messages).remove_done(number) {
                return Ok(Some(peer));
            }
            if let Some(failure) = self.core.failure() {
                return Err(failure);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.give_up_message(number, timeout));
            }
            self.core.wait_for_change(left.min(WAKE), || !lock(&self.core.messages).is_done(number));
            if interrupted() {
                return Ok(None);
            }
        }
    }

    /// Waits for the next complete message among those with a notice; returns it with its peer, or `None` when the time
    /// is up.
    pub fn next_message(&self, timeout: Duration) -> Result<Option<(u32, Rank)>, Error> {
        if let Some(message) = self.next_notice() {
            return Ok(Some(message));
        }
        self.core.wait_for_change(timeout, || !lock(&self.core.messages).has_notice());
        match self.next_notice() {
            Some(message) => Ok(Some(message)),
            None => self.core.failure().map_or(Ok(None), Err),
        }
    }

    fn next_notice(&self) -> Option<(u32, Rank)> {
        lock(&self.core.messages).next_notice()
    }

    /// Withdraws a receive that was offered nothing; the error says whom the message has awaited since `timeout`.
    pub fn give_up_message(&self, number: u32, timeout: Duration) -> Error {
        let (who, waits_for) = self.core.message_waits_for(number);
        lock(&self.core.messages).withdraw(number);
        let what = format!(
            "rank {}: a message is not complete after {} s: it waits for {waits_for}",
            self.identity.rank,
            timeout.as_secs_f64()
        );
        Error::Timeout { what, location: None, missing: who.into_iter().collect() }
    }

    fn check_mesh(&self) -> Result<&Peers, Error> {
        match self.core.peers.get() {
            Some(peers) => self.core.failure().map_or(Ok(peers), Err),
            None => Err(Error::Usage("messages are sent after `connect`".into())),
        }
    }

    fn check_peer(&self, rank: Rank, region: &Region) -> Result<(), Error> {
        let own = self.identity.rank;
        let peer = self.check_mesh()?.get(rank);
        let peer =
            peer.ok_or_else(|| Error::Usage(format!("a message between rank {own} and rank {rank}")))?;
        if peer.link.has_left() {
            return Err(peer.failed(Why::Left, None, "left the job").into());
        }
        peer.register(region)
    }

    /// Non-finite findings since the last call.
    pub fn non_finite(&self) -> Vec<NonFinite> {
        std::mem::take(&mut lock(&self.core.non_finite))
    }

    /// Payload bytes sent to each rank over connections; zero for ourselves and for neighbours.
    pub fn bytes_sent(&self) -> Vec<u64> {
        let peers = self.core.peers.get().into_iter().flat_map(Peers::all);
        peers.map(|peer| peer.map_or(0, |peer| peer.link.sent_bytes())).collect()
    }

    /// Latest statistics of the connections to each rank, refreshed soon after this call. `None` for ourselves, for
    /// neighbours, and before the first refresh.
    pub fn connections(&self) -> Vec<Option<Info>> {
        let peers = self.core.peers.get().into_iter().flat_map(Peers::all);
        let seen = peers.map(|peer| peer?.link.info()).collect();
        self.core.wake();
        seen
    }

    /// Adds a span of this rank's step to the trace.
    pub fn mark(&self, kind: Kind, iteration: u32, start_ns: u64, end_ns: u64) {
        if let Some(recorder) = &self.core.recorder {
            let times = Record { ready_ns: start_ns, start_ns, end_ns, ..Record::default() };
            recorder.push(&Record { instance: iteration, kind, ..times });
        }
    }

    /// Tells all peers why this rank gives up.
    pub fn abort(&self, reason: &str) {
        self.core.give_up(reason);
    }

    /// Shuts down in order; idempotent.
    pub fn close(&self) {
        self.core.closing.store(true, Ordering::Release);
        // A lost wake-up would only cost the bound of a sleep; the threads check the flag by themselves.
        drop(self.core.bell.waker().wake());
        for thread in lock(&self.threads).drain(..) {
            // A completion callback may hold the last reference to the engine: then its thread ends by itself.
            if thread.thread().id() != thread::current().id() {
                // The runtime has printed a panic of that thread; the job failed with it.
                drop(thread.join());
            }
        }
        self.core.notify_closed();
        drop(lock(&self.listener).take());
        if let Some(recorder) = &self.core.recorder
            && let Err(error) = recorder.finish()
        {
            self.core.fail_here(None, format_args!("the trace cannot be written: {error}"));
        }
    }

    /// The failure of the job, if it failed.
    pub fn failure(&self) -> Option<Error> {
        self.core.failure()
    }

    pub(crate) fn loaded(&self, program: u32) -> Result<Arc<Loaded>, Error> {
        self.core.programs.get(program).ok_or_else(|| Error::Usage(format!("there is no program {program}")))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
