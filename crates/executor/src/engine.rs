//! One rank's executor as seen by its owner: memory, programs, launches, waits.

use crate::arrival::add;
use crate::compile::{compile, own_bytes, refuse_spaces};
use crate::core::{Core, Lasting};
use crate::early::Go;
use crate::error::Error;
use crate::external::{External, Staged};
use crate::failure::{Failure, Who};
use crate::instruction::{Action, Way, peers_of};
use crate::launch::{Begun, Launch};
use crate::loaded::{Loaded, NonFinite, Sending, Set};
use crate::lock::lock;
use crate::options::Options;
use crate::peer::Peers;
use crate::peer_table::LOCAL_WORLD_MAX;
use crate::sets::{apart, bound, bound_of, scaled_of};
use crate::threads::Threads;
use hocket_ids::{BufferId, Rank};
use hocket_kernels::Function;
use hocket_program::{Program, Space};
use hocket_protocol::liveness::Patience;
use hocket_protocol::why::Why;
use hocket_trace::{Kind, Record, Recorder};
use hocket_wire::bell::{Bell, reserved_bytes};
use hocket_wire::claims::CLAIMS_BYTES;
use hocket_wire::clock::now_ns;
use hocket_wire::connection::Info;
use hocket_wire::connection::tls::Credentials;
use hocket_wire::endpoint::{self, Endpoints};
use hocket_wire::identity::Identity;
use hocket_wire::life::{Life, Lifetime};
use hocket_wire::listener::Listener;
use hocket_wire::memory::{Allocation, Arena, Mapping, Region};
use hocket_wire::poll::Waker;
use hocket_wire::transports::ALL;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// The number of the first epoch of members.
const FIRST_EPOCH: u64 = 1;

/// Longest interval between checks whether a wait was interrupted.
pub(crate) const WAKE: Duration = Duration::from_millis(100);

/// One rank's executor and wire.
pub struct Engine {
    /// Of the epoch in force.
    core: RwLock<Arc<Core>>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) identity: Identity,
    host: String,
    pub(crate) world: usize,
    addresses: Vec<std::net::SocketAddr>,
    pub(crate) endpoints: Endpoints,
    pub(crate) patience: Patience,
    pub(crate) elastic: Option<Lifetime>,
    /// What neighbours watch, until this rank writes to their memory no more.
    pub(crate) life: Mutex<Option<Life>>,
    /// Taken when the mesh comes up.
    pub(crate) listener: Mutex<Option<Listener>>,
    pub(crate) threads: Mutex<Threads>,
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
        if options.patience.silence_max.is_zero() {
            return Err(Error::Usage("a peer must be allowed some silence".into()));
        }
        let arena = Arena::new(reserved_bytes(LOCAL_WORLD_MAX))?;
        let endpoints = Endpoints::open(ALL, &options.wire, &arena).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Error::Usage(error.to_string()),
            _ => error.into(),
        })?;
        let endpoint::Options { host, bind, ports, tls, elastic, .. } = options.wire;
        let recorder = options
            .trace
            .as_ref()
            .map(|wanted| Recorder::create(wanted, options.rank.0, options.world as u32))
            .transpose()?
            .map(Arc::new);
        let tls = tls.then(Credentials::new).transpose();
        let tls = tls.map_err(|cause| Error::System(format!("cannot set up TLS: {cause}")))?.map(Arc::new);
        let identity = Identity {
            rank: options.rank,
            job: options.job,
            secret: options.secret,
            tls,
            checksums: options.checksum,
        };
        let listener = Listener::open(&bind, &ports, identity.clone()).map_err(Error::from)?;
        let bell = Arc::new(Bell::new(arena.mapping(), Waker::new()?));
        let own = Who { rank: options.rank, host: host.clone() };
        let lasting = Lasting { workers: options.threads - 1, bell, recorder, elastic: elastic.is_some() };
        let core = Core::new(own, FIRST_EPOCH, lasting);
        let life = elastic.map(Life::new).transpose();
        let life = life.map_err(|cause| {
            Error::System(format!("neighbours cannot watch this process (Linux 5.3 has pidfds): {cause}"))
        })?;
        Ok(Self {
            core: RwLock::new(Arc::new(core)),
            arena,
            identity,
            host,
            world: options.world,
            addresses: listener.addresses().to_vec(),
            endpoints,
            patience: options.patience,
            elastic,
            life: Mutex::new(life),
            listener: Mutex::new(Some(listener)),
            threads: Mutex::default(),
        })
    }

    /// The state of the epoch in force.
    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.core.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another epoch is in force.
    pub(crate) fn replace_core(&self, core: &Arc<Core>) {
        *self.core.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(core);
    }

    /// Our rank in the epoch in force.
    pub fn rank(&self) -> Rank {
        self.core().own.rank
    }

    /// Our host's name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Registered memory of a rank of this host, ours included, once the mesh is up.
    pub fn arena(&self, rank: Rank) -> Option<Arc<Mapping>> {
        let core = self.core();
        if rank == core.own.rank {
            return Some(Arc::clone(self.arena.mapping()));
        }
        core.peers.get()?.get(rank)?.link.memory().map(Arc::clone)
    }

    /// The epoch of the membership: 0 before the mesh is up.
    pub fn epoch(&self) -> u64 {
        self.core().peers.get().map_or(0, |peers| peers.table.epoch())
    }

    /// The addresses that peers connect to.
    pub fn addresses(&self) -> &[std::net::SocketAddr] {
        &self.addresses
    }

    /// Registered memory, zero-filled.
    pub fn allocate(&self, bytes: usize) -> Result<Allocation, Error> {
        Ok(self.arena.allocate(bytes)?)
    }

    /// Compiles our part of `program`, which may be of the world's first ranks alone; `sets` are the regions of its bound
    /// buffers of the host, of which each launch uses one set, `kernels` the user's kernels by name. No two sets overlap.
    pub fn load(
        &self,
        program: &Program,
        sets: &[HashMap<BufferId, Region>],
        kernels: &HashMap<String, Function>,
        sending: Sending,
        label: &str,
        number: Option<u32>,
    ) -> Result<u32, Error> {
        let wrong = |what: String| Error::Program { name: program.name.clone(), what };
        let core = self.core();
        let Some(peers) = core.peers.get() else {
            return Err(Error::Usage("programs are loaded after `connect`".into()));
        };
        if sets.is_empty() {
            return Err(wrong("no memory is given".into()));
        }
        let world = peers.table.world();
        let ranks = program.world();
        let rank = core.own.rank;
        if ranks > world || rank.index() >= ranks {
            return Err(wrong(format!(
                "made for {ranks} ranks, loaded by rank {rank} of a world of {world}"
            )));
        }
        refuse_spaces(program).map_err(wrong)?;
        if let Some((one, other)) = peers.relays.broken(program) {
            return Err(wrong(format!(
                "rank {one} and rank {other} cannot reach each other, and the rank between them has no part in it"
            )));
        }
        let relayed =
            (!peers.relays.is_empty()).then(|| program.relayed(|from, to| peers.relays.between(from, to)));
        let program = relayed.as_ref().unwrap_or(program);
        let mut scratch = Vec::new();
        let mut regions = vec![Vec::new(); sets.len()];
        for (at, wanted) in own_bytes(program, rank).into_iter().enumerate() {
            let buffer = &program.ranks[rank.index()].buffers[at];
            if let Some(wanted) = wanted {
                let allocation = self.allocate(wanted)?;
                for own in &mut regions {
                    own.push(Some(allocation.region().clone()));
                }
                scratch.push((buffer.name.clone(), allocation));
            } else {
                for (own, given) in regions.iter_mut().zip(sets) {
                    own.push(match buffer.space {
                        Space::Device => None,
                        Space::Host => {
                            Some(bound(buffer, given.get(&BufferId::from_index(at))).map_err(wrong)?)
                        }
                    });
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
                peer.has_cards(sending.cards).map_err(wrong)?;
                regions.iter().flatten().try_for_each(|region| peer.register(region))?;
            }
            for instruction in &mut instructions {
                if let Action::InPlace(own) = &mut instruction.action {
                    core.shares_memory(own).map_err(wrong)?;
                    if own.own == 0 {
                        own.claims = Some(self.allocate(2 * CLAIMS_BYTES)?);
                    }
                }
            }
            loaded.push(Set { instructions, bound, scaled: scaled_of(program, rank, regions) });
        }
        let make = |number| Loaded::new(number, label.to_owned(), sending, loaded, bytes, scratch);
        add(&core, number, make).map_err(Error::Usage)
    }

    /// Lets what works on one gradient run before the others are there ([`Self::launch_early`]); `gradients`: elements of each, in
    /// the program's only bound buffer. Call before its first launch.
    pub fn split(&self, program: u32, gradients: &[usize]) -> Result<(), Error> {
        self.loaded(program)?.split(gradients);
        Ok(())
    }

    /// Pairs of ranks that have no link, the lower one first, and the ranks through which their messages go.
    pub fn relays(&self) -> Vec<(Rank, Rank, Vec<Rank>)> {
        self.core().peers.get().map(|peers| peers.relays.all()).unwrap_or_default()
    }

    /// A state buffer of a loaded program.
    pub fn state(&self, program: u32, name: &str) -> Result<Option<Region>, Error> {
        Ok(self.loaded(program)?.state(name))
    }

    /// The next collective for a library to execute, if there is one in time.
    pub fn next_external(&self, timeout: Duration) -> Option<External> {
        self.core().externals.next(timeout)
    }

    /// The next copy between the device and the host, if there is one in time. Until [`Self::complete_staged`], which must
    /// follow, it counts as running here: [`Self::quiesce`] waits for it.
    pub fn next_staged(&self, way: Way, timeout: Duration) -> Option<Staged> {
        let core = self.core();
        let staged = core.staged(way).next(timeout)?;
        core.note_busy().then_some(staged)
    }

    /// That collective was executed.
    pub fn complete_external(&self, program: u32, op: u32) -> Result<(), Error> {
        self.core().complete_external(program, op)
    }

    /// That copy was executed.
    pub fn complete_staged(&self, program: u32, op: u32) -> Result<(), Error> {
        // The epoch is still that of the copy, as it cannot end before.
        let core = self.core();
        let completed = core.complete_staged(program, op);
        core.note_quiet();
        completed
    }

    /// Frees a program's resources; its number stays taken. Call only after waiting for its last launch.
    pub fn unload(&self, program: u32) -> Result<(), Error> {
        let core = self.core();
        let loaded = core.loaded(program)?;
        if !loaded.is_complete() {
            return Err(Error::Usage(format!("`{}` is unloaded while its last launch runs", loaded.label)));
        }
        core.programs.remove(program);
        Ok(())
    }

    /// Launches an instance of a loaded program on its first set, ahead of all that a later iteration needs; returns at once.
    pub fn launch(&self, program: u32) -> Result<(), Error> {
        self.launch_on(program, 0, 1.0, 0)
    }

    /// Launches an instance on one of the program's sets, whose elements are multiplied with `factor` first, or, where the
    /// program is retained, what is copied of them; returns at once. It starts when launches of the other sets are complete that were asked for before. `due`: the iteration that
    /// needs it; ranks that give others make one another wait.
    ///
    /// [`Error::Usage`]: the set is in use, or there is none of that number.
    pub fn launch_on(&self, program: u32, set: u32, factor: f64, due: u32) -> Result<(), Error> {
        let core = self.core();
        let loaded = core.loaded(program)?;
        let launch = launch_of(&core, &loaded, set, factor, due)?;
        if launch.scales() && loaded.has_integers() {
            return Err(Error::Usage(format!("`{}` has integers, which are not scaled", loaded.label)));
        }
        if launch.scales() && loaded.has_libraries_on_device() {
            return Err(Error::Usage(format!(
                "`{}` leaves collectives to the device's library, which does not scale what several iterations or steps add up to\n\
                 hint: leave them to `gloo` or the native wire, or let each iteration's gradients travel by themselves",
                loaded.label
            )));
        }
        match loaded.launch(launch) {
            Begun::Now => core.begin(program, Go::Whole),
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

    /// Begins a launch on one of the program's sets before all of its gradients are there, if none runs and the program has work
    /// on single gradients: that of each runs once [`Self::gradient_is_there`], the rest once [`Self::all_are_there`].
    ///
    /// [`Error::Usage`]: there is no set of that number.
    pub fn launch_early(&self, program: u32, set: u32, due: u32) -> Result<bool, Error> {
        let core = self.core();
        let loaded = core.loaded(program)?;
        let claimed = loaded.launch_early(launch_of(&core, &loaded, set, 1.0, due)?);
        if claimed {
            core.begin(program, Go::Early);
        }
        Ok(claimed)
    }

    /// A gradient of the launch that began early is there.
    pub fn gradient_is_there(&self, program: u32, gradient: u32) {
        self.core().begin(program, Go::Gradient(gradient));
    }

    /// All gradients of the launch that began early are there.
    pub fn all_are_there(&self, program: u32) -> Result<(), Error> {
        let core = self.core();
        core.loaded(program)?.note_asked(now_ns());
        core.begin(program, Go::Rest);
        core.failure().map_or(Ok(()), Err)
    }

    /// Non-finite findings since the last call.
    pub fn non_finite(&self) -> Vec<NonFinite> {
        std::mem::take(&mut lock(&self.core().non_finite))
    }

    /// Payload bytes sent to each rank over connections; zero for ourselves and for neighbours.
    pub fn bytes_sent(&self) -> Vec<u64> {
        let core = self.core();
        let peers = core.peers.get().into_iter().flat_map(Peers::all);
        peers.map(|peer| peer.map_or(0, |peer| peer.link.sent_bytes())).collect()
    }

    /// Latest statistics of the connections to each rank, refreshed soon after this call. `None` for ourselves, for
    /// neighbours, and before the first refresh.
    pub fn connections(&self) -> Vec<Option<Info>> {
        let core = self.core();
        let peers = core.peers.get().into_iter().flat_map(Peers::all);
        let seen = peers.map(|peer| peer?.link.info()).collect();
        core.wake();
        seen
    }

    /// Adds a span of this rank's step to the trace.
    pub fn mark(&self, kind: Kind, iteration: u32, start_ns: u64, end_ns: u64) {
        if let Some(recorder) = &self.core().recorder {
            let times = Record { ready_ns: start_ns, start_ns, end_ns, ..Record::default() };
            recorder.mark(&Record { instance: iteration, kind, ..times });
        }
    }

    /// Tells all peers why this rank gives up.
    pub fn abort(&self, reason: &str) {
        self.core().give_up(reason, None);
    }

    /// The same, because of what another rank did.
    pub fn abort_because(&self, reason: &str, (rank, why): (Rank, Why)) {
        self.core().give_up(reason, Some((rank, why)));
    }

    /// The failure to be told if that rank has left the job, and is needed: "rank 2 on b left the job" `what`.
    pub fn left(&self, rank: Rank, what: &str) -> Option<Failure> {
        let core = self.core();
        let peer = core.peers.get()?.get(rank)?;
        peer.link.has_left().then(|| peer.left(None, what))
    }

    /// Fails the job: all ranks hear of it, and which rank is at fault.
    pub fn fail(&self, failure: Failure) {
        self.core().fail(failure);
    }

    pub(crate) fn loaded(&self, program: u32) -> Result<Arc<Loaded>, Error> {
        self.core().loaded(program)
    }
}

/// A launch that may be claimed: the job has not failed, and all peers are here.
fn launch_of(core: &Core, loaded: &Loaded, set: u32, factor: f64, due: u32) -> Result<Launch, Error> {
    if let Some(failure) = core.failure() {
        return Err(failure);
    }
    if let Some(gone) = core.gone(loaded) {
        return Err(core.refused(gone));
    }
    if set >= loaded.sets() {
        let what = format!("`{}` has {} sets of memory: there is no set {set}", loaded.label, loaded.sets());
        return Err(Error::Usage(what));
    }
    let traced = core.recorder.as_ref().is_some_and(|recorder| recorder.is_on());
    Ok(Launch { set, factor, due, traced, asked_ns: now_ns() })
}
