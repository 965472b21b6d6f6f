//! `Engine`: one rank's executor for Python. Waits release the GIL.

use crate::at_exit::close_at_exit;
use crate::departed::Departed;
use crate::exceptions::{Raised, raise};
use crate::kernels::functions;
use crate::memory::{Buffers, Memory, Window, regions};
use crate::notifier::Notifier;
use crate::peers::{Connection, addresses, allowed, parsed, telling};
use crate::program::Program;
use crate::trace::span;
use crate::waits::{duration, interruptible};
use hocket_executor::{
    EmulatedLinks, Engine as Executor, Error, Lifetime, Options, Sending, Way, WireOptions,
};
use hocket_ids::{Member, Rank};
use hocket_protocol::liveness::Patience;
use hocket_protocol::why::Why;
use hocket_trace::{Bounds, Wanted};
use hocket_wire::connection::Info;
use hocket_wire::mesh::Agree;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A collective for a library to execute: program, op, slice, destination.
type Waiting = (u32, u32, Window, Option<Window>);

/// One rank's executor and wire. All other methods but `connect` need the mesh to be up.
///
/// `host` is the name of this host, which no other host of the job has: ranks with equal `host` use shared memory. `PeerError` has
/// in its attributes which rank failed, on which host and why.
#[pyclass(module = "hocket._native", frozen)]
pub struct Engine {
    pub executor: Arc<Executor>,
    notifier: Notifier,
    /// Areas of groups that this rank has left.
    pub departed: Arc<Departed>,
}

#[pymethods]
impl Engine {
    /// Listen on each of `bind` (IPs, one for each interface that connections are spread over), at the first free one of `ports`
    /// (first and last; zeros: any).
    ///
    /// `trace`: file to write the event records to: those of the steps from the first of `trace_steps` until before the second, and
    /// at most `trace_bytes`. `emulated_links`: emulated network as (file of sixteen zero bytes per link shared by all ranks, bit/s
    /// of each link, links that a frame crosses by destination rank). `checksum`: frames between hosts carry a CRC32C; `tls`:
    /// connections between hosts are encrypted; both alike on all ranks. `wire`: tcp, fabric:efa, fabric:auto, …: it carries
    /// payloads between hosts; alike on all ranks, and not with `tls`. `heartbeat_timeout_s`: a peer that is silent for so long
    /// while it is waited for fails the job; with `silence_by_path` also one whose host acknowledges nothing for three of TCP's
    /// time-outs. `elastic`, alike on all ranks: a peer that is lost ends the epoch instead; see
    /// `resume`. Needs pidfds (Linux 5.3).
    #[new]
    #[pyo3(signature = (*, rank, world, job, secret, host, bind, ports = (0, 0), threads = 1, trace = None, trace_steps = (0, None), trace_bytes = None, emulated_links = None, checksum = false, tls = false, heartbeat_timeout_s = 30.0, silence_by_path = false, elastic = false, wire = "tcp".into()))]
    #[expect(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        rank: u32,
        world: usize,
        job: String,
        secret: Vec<u8>,
        host: String,
        bind: Vec<String>,
        ports: (u16, u16),
        threads: usize,
        trace: Option<PathBuf>,
        trace_steps: (u32, Option<u32>),
        trace_bytes: Option<u64>,
        emulated_links: Option<(PathBuf, Vec<f64>, Vec<Vec<usize>>)>,
        checksum: bool,
        tls: bool,
        heartbeat_timeout_s: f64,
        silence_by_path: bool,
        elastic: bool,
        wire: String,
    ) -> PyResult<Self> {
        let wrong = |text: &str| format!("bind: `{text}` is not an IP address (rank {rank} on {host})");
        let bind = parsed(py, bind, wrong)?;
        let emulated = |(table, links_bit_per_s, routes)| EmulatedLinks { table, links_bit_per_s, routes };
        let (rank, emulated_links) = (Rank(rank), emulated_links.map(emulated));
        let bounds = Bounds { first: trace_steps.0, stop: trace_steps.1, bytes_max: trace_bytes };
        let elastic = elastic.then_some(Lifetime::Process);
        let options = Options {
            rank,
            world,
            job,
            secret,
            threads,
            trace: trace.map(|path| Wanted { path, bounds }),
            wire: WireOptions { wire, host, bind, ports: ports.0..=ports.1, tls, elastic, emulated_links },
            checksum,
            patience: Patience { silence_max: duration(py, heartbeat_timeout_s)?, by_path: silence_by_path },
        };
        let executor = Executor::new(options).map_err(|cause| raise(py, &cause.of(rank)))?;
        Ok(Self { executor: Arc::new(executor), notifier: Notifier::default(), departed: Arc::default() })
    }

    /// `IP:PORT` that peers connect to, one for each of `bind`.
    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.executor.addresses().iter().map(ToString::to_string).collect()
    }

    /// Join the mesh: `(addresses, host)` of every rank, by rank. `RendezvousError`: its `missing` has the ranks that did not come
    /// in time, its `rank` one that left.
    ///
    /// `streams`: connections per pair of interfaces to each rank, of which both ends say the same number; 0: as the path needs,
    /// which is the default.
    /// `agree`, given to all ranks or none: tells all ranks which calls of this one were not answered, as (rank, why), and returns
    /// those of all ranks, by caller. Ranks of which one can call the other are then connected by its call, and what programs send
    /// between others goes through ranks that both reach (`relays`).
    #[pyo3(signature = (peers, timeout_s, streams = None, agree = None))]
    fn connect(
        &self,
        py: Python<'_>,
        peers: Vec<(Vec<String>, String)>,
        timeout_s: f64,
        streams: Option<Vec<usize>>,
        agree: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        let addresses = addresses(py, peers, streams)?;
        let mut raised = None;
        let mut tell = agree.map(|agree| telling(agree, &mut raised));
        let agree = tell.as_mut().map(|tell| tell as Agree<'_>);
        let connected = py.detach(|| self.executor.connect(&addresses, timeout, agree));
        drop(tell);
        match (connected, raised) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(raised)) => Err(raised),
            (Err(cause), None) => Err(raise(py, &cause.of(self.executor.rank()))),
        }
    }

    /// Pairs of ranks of which neither can call the other, the lower one first, each with the ranks between them.
    #[getter]
    fn relays(&self) -> Vec<(u32, u32, Vec<u32>)> {
        let plain = |ranks: Vec<Rank>| ranks.into_iter().map(|rank| rank.0).collect();
        self.executor.relays().into_iter().map(|(one, other, way)| (one.0, other.0, plain(way))).collect()
    }

    /// The epoch of members in force, from 1; 0 before `connect`.
    #[getter]
    fn epoch(&self) -> u64 {
        self.executor.epoch()
    }

    /// Its members, by rank. Members of the first epoch have their ranks as numbers.
    #[getter]
    fn members(&self) -> Vec<u64> {
        self.executor.members().into_iter().map(|member| member.0).collect()
    }

    /// Members that were lost in it, in that order.
    #[getter]
    fn lost(&self) -> Vec<u64> {
        self.executor.lost().into_iter().map(|(member, _)| member.0).collect()
    }

    /// Those of the lost on this host whose processes have ended: they write to no memory any more.
    #[getter]
    fn gone(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let gone = self.executor.gone().raised(py)?;
        Ok(gone.into_iter().map(|member| member.0).collect())
    }

    /// End the epoch in force: waits raise `EpochError`, and nothing more starts.
    fn interrupt(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.executor.interrupt(reason).raised(py)
    }

    /// End the epoch in force, and wait until nothing of it runs here and nothing here writes to any rank's memory.
    fn quiesce(&self, py: Python<'_>, reason: &str, timeout_s: f64) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        py.detach(|| self.executor.quiesce(reason, timeout)).raised(py)
    }

    /// Begin a later epoch of some of the members, by rank, over the connections that are there. All of them do the same, and only
    /// after all have quiesced; in between, memory may be restored. The programs of the epoch before are gone.
    ///
    /// A member of this host that the epoch shuts out must end first, as it may write to this rank's memory: its process is waited
    /// for, and killed after `timeout_s`. Members that have `left` in order may live on. `EpochError`: a member of the new epoch is
    /// lost already.
    #[pyo3(signature = (epoch, members, timeout_s, *, left = vec![]))]
    fn resume(
        &self,
        py: Python<'_>,
        epoch: u64,
        members: Vec<u64>,
        timeout_s: f64,
        left: Vec<u64>,
    ) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        let [members, left] = [members, left].map(|each| each.into_iter().map(Member).collect::<Vec<_>>());
        py.detach(|| self.executor.resume(epoch, &members, &left, timeout)).raised(py)
    }

    fn allocate(&self, py: Python<'_>, size_bytes: usize) -> PyResult<Memory> {
        let allocation = self.executor.allocate(size_bytes).raised(py)?;
        Ok(Memory::new(allocation, &self.executor))
    }

    /// Compile this rank's part. `buffers`: bound buffer id, but of those of a device → (memory, byte offset); `others`: further sets of them, apart from the
    /// first, of which each launch uses one. All ranks of the program, which are the first of the job or all, load the same
    /// programs in the same order. Lower `priority` overtakes higher. Returns the program's number.
    ///
    /// `number`: for a program that only some ranks load: the same on these, from 2^31 up, and free; unloading frees it.
    ///
    /// `cards`: the network cards that its messages to other hosts may use, by number; None: whichever can send. `UsageError`,
    /// `ProgramError`: there is no such card.
    ///
    /// `gradients`: elements of each gradient in the only bound buffer, where what works on one of them may run before the others
    /// are there; empty: nothing may.
    ///
    /// `kernels`: addresses of the user's kernels by name, each a C function `void (const void *const *inputs, const int64_t
    /// *input_bytes, void *const *outputs, const int64_t *output_bytes, const double *constants)` that lives as long as the engine,
    /// may be called from any thread, and keeps to the bytes that it is given.
    #[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "Python's are keywords")]
    #[pyo3(signature = (program, buffers: "collections.abc.Mapping[int, tuple[Memory, int]]", *, priority, label,
        kernels: "collections.abc.Mapping[str, int]" = HashMap::new(), number = None,
        others: "collections.abc.Sequence[collections.abc.Mapping[int, tuple[Memory, int]]]" = Vec::new(), cards = None,
        gradients: "collections.abc.Sequence[int]" = Vec::new()))]
    fn load(
        &self,
        py: Python<'_>,
        program: &Program,
        buffers: Buffers,
        priority: u32,
        label: &str,
        kernels: HashMap<String, usize>,
        number: Option<u32>,
        others: Vec<Buffers>,
        cards: Option<Vec<u32>>,
        gradients: Vec<usize>,
    ) -> PyResult<u32> {
        let sending = Sending { priority, cards: allowed(py, cards, label)? };
        let functions = functions(py, kernels)?;
        let sets = std::iter::once(buffers).chain(others).map(|set| regions(py, set));
        let sets = sets.collect::<PyResult<Vec<_>>>()?;
        let program = program.inner();
        let load = || {
            let loaded = self.executor.load(program, &sets, &functions, sending, label, number)?;
            self.executor.split(loaded, &gradients).map(|()| loaded)
        };
        py.detach(load).raised(py)
    }

    /// Start an instance; the previous one must be complete.
    fn launch(&self, py: Python<'_>, program: u32) -> PyResult<()> {
        self.executor.launch(program).raised(py)
    }

    /// Until all launches so far are complete. Ctrl-C works. `meanwhile` is called several times a second, and ends the wait with
    /// what it raises.
    ///
    /// `PeerError`: its `rank` failed; with `why` "timeout", the instance waits for the ranks in its `missing`. `program`, `launch`
    /// and `op` say where that was noticed.
    #[pyo3(signature = (program, timeout_s, meanwhile: "collections.abc.Callable[[], None] | None" = None))]
    #[expect(clippy::needless_pass_by_value, reason = "conversions from Python give values")]
    fn wait(
        &self,
        py: Python<'_>,
        program: u32,
        timeout_s: f64,
        meanwhile: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let timeout = duration(py, timeout_s)?;
        let wait = |interrupted: &mut dyn FnMut() -> bool| self.executor.wait(program, timeout, interrupted);
        interruptible(py, meanwhile.as_ref(), wait).map(drop)
    }

    /// Whether `wait` would return at once: all launches so far are complete.
    fn is_complete(&self, py: Python<'_>, program: u32) -> PyResult<bool> {
        self.executor.is_complete(program).raised(py)
    }

    /// Call `callback` once: with None when the launched instance is complete, or none runs; else with the `PeerError` that `wait`
    /// would raise, or a `UsageError` when the engine is closed meanwhile. A time-out may be half a second late.
    ///
    /// A thread of the engine's calls it, with the GIL; callbacks follow one another in the order in which launches end, and
    /// communication does not wait for them. A callback that raises ends the job with its reason. `close` returns after the last
    /// one. `UsageError`: the engine is closed.
    #[pyo3(signature = (program, callback: "collections.abc.Callable[[Exception | None], None]", timeout_s))]
    fn on_complete(&self, py: Python<'_>, program: u32, callback: Py<PyAny>, timeout_s: f64) -> PyResult<()> {
        self.notifier.on_complete(py, &self.executor, program, callback, duration(py, timeout_s)?)
    }

    /// Free what a program holds; its last launch must have been waited for.
    fn unload(&self, py: Python<'_>, program: u32) -> PyResult<()> {
        self.executor.unload(program).raised(py)
    }

    /// The executor's own buffer of that name (state or scratch) in a loaded program.
    fn state(&self, py: Python<'_>, program: u32, name: &str) -> PyResult<Option<Window>> {
        let region = self.executor.state(program, name).raised(py)?;
        Ok(region.map(|region| Window::new(region, &self.executor)))
    }

    /// The next collective that waits for a library: program, op, its slice, and where an all-to-all goes; None: none came.
    fn next_external(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<Waiting>> {
        let timeout = duration(py, timeout_s)?;
        let window = |region| Window::new(region, &self.executor);
        let next = py.detach(|| self.executor.next_external(timeout));
        Ok(next.map(|next| (next.program, next.op, window(next.slice), next.dst.map(window))))
    }

    /// The next copy from the device, or with `up` to it: program, op, and the host's end of it; None: none came.
    fn next_staged(&self, py: Python<'_>, timeout_s: f64, up: bool) -> PyResult<Option<(u32, u32, Window)>> {
        let timeout = duration(py, timeout_s)?;
        let way = if up { Way::Up } else { Way::Down };
        let next = py.detach(|| self.executor.next_staged(way, timeout));
        Ok(next.map(|next| (next.program, next.op, Window::new(next.host, &self.executor))))
    }

    /// The library has done it: what waits for it may go.
    fn complete_external(&self, py: Python<'_>, program: u32, op: u32) -> PyResult<()> {
        py.detach(|| self.executor.complete_external(program, op)).raised(py)
    }

    /// The device has copied it: what waits for it may go. Must follow `next_staged`, whose epoch of members does not end before.
    fn complete_staged(&self, py: Python<'_>, program: u32, op: u32) -> PyResult<()> {
        py.detach(|| self.executor.complete_staged(program, op)).raised(py)
    }

    /// Offer the first bytes of `memory` to rank `to`: its number. They must not be written until it is complete. It is waited for
    /// by `wait_message`, or with `notice` by `next_message`.
    #[pyo3(signature = (to, tag, memory, size_bytes, *, notice = false))]
    fn send(
        &self,
        py: Python<'_>,
        to: u32,
        tag: u64,
        memory: &Memory,
        size_bytes: usize,
        notice: bool,
    ) -> PyResult<u32> {
        let region = memory.first(py, size_bytes)?;
        self.executor.send(Rank(to), tag, region, notice).raised(py)
    }

    /// Receive what `source`, or anyone (None), sends with that tag (64 bits) into `memory`: its number. Sizes must be equal.
    #[pyo3(signature = (source, tag, memory, size_bytes, *, notice = false))]
    fn receive(
        &self,
        py: Python<'_>,
        source: Option<u32>,
        tag: u64,
        memory: &Memory,
        size_bytes: usize,
        notice: bool,
    ) -> PyResult<u32> {
        let region = memory.first(py, size_bytes)?;
        self.executor.receive(source.map(Rank), tag, region, notice).raised(py)
    }

    /// The next complete message of those with a notice, and the rank at its other end; None: there was none in time. `PeerError`
    /// when the job has failed.
    fn next_message(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<(u32, u32)>> {
        let timeout = duration(py, timeout_s)?;
        let next = py.detach(|| self.executor.next_message(timeout)).raised(py)?;
        Ok(next.map(|(number, peer)| (number, peer.0)))
    }

    /// Withdraw a receive that nothing was offered for. Returns the error to raise: whom the message waits for since `timeout_s`.
    #[pyo3(signature = (number, timeout_s) -> "hocket.errors.PeerError")]
    fn give_up_message(&self, py: Python<'_>, number: u32, timeout_s: f64) -> PyResult<Py<PyAny>> {
        let timeout = duration(py, timeout_s)?;
        let cause = py.detach(|| self.executor.give_up_message(number, timeout));
        Ok(raise(py, &cause).into_value(py).into_any())
    }

    /// Until it is complete; the rank at its other end. `PeerError` as `wait`; after a timeout a receive is withdrawn.
    fn wait_message(&self, py: Python<'_>, number: u32, timeout_s: f64) -> PyResult<u32> {
        let timeout = duration(py, timeout_s)?;
        let wait = |over: &mut dyn FnMut() -> bool| self.executor.wait_message(number, timeout, over);
        Ok(interruptible(py, None, wait)?.map_or(u32::MAX, |rank| rank.0))
    }

    /// (program, instance, element) of `record non_finite` ops that found NaN or infinity since the last call.
    fn non_finite(&self) -> Vec<(u32, u32, usize)> {
        let found = self.executor.non_finite();
        found.into_iter().map(|found| (found.program, found.instance, found.element)).collect()
    }

    /// Payload bytes sent over TCP to each rank since the start.
    fn bytes_sent(&self) -> Vec<u64> {
        self.executor.bytes_sent()
    }

    /// What the kernel said of the TCP connections to each rank, as one, when last looked at, which this asks for anew: smoothed
    /// and least round trip (microseconds), rate of delivery (byte/s), bytes acknowledged, time with something on its way
    /// (microseconds), segments sent again. None within a host, and the first time.
    fn connections(&self) -> Vec<Option<Connection>> {
        self.executor.connections().into_iter().map(|seen| seen.map(|info| info.numbers())).collect()
    }

    /// The TCP connections to each rank: their number, the least round trip (microseconds), and how they stand to random losses:
    /// `plain`, `bears` (they tolerate them), or `refused` (they should, and this system does not let them). None within a host.
    fn paths(&self) -> Vec<Option<(u32, u32, &'static str)>> {
        let path = |info: Info| (info.connections, info.round_trip_us_min, info.bearing.name());
        self.executor.connections().into_iter().map(|info| info.map(path)).collect()
    }

    /// Add a span of this rank's step to the trace: `forward`, `backward`, `wait`, `optimizer`, `update`, `step`.
    fn mark(&self, py: Python<'_>, kind: &str, iteration: u32, start_ns: u64, end_ns: u64) -> PyResult<()> {
        let kind = span(py, kind)?;
        self.executor.mark(kind, iteration, start_ns, end_ns);
        Ok(())
    }

    /// Tell all peers why this rank gives up; their waits raise `PeerError` with it, of this `rank` and with `why` `gave_up`, or of
    /// the rank that is its `cause`, and with what that one did.
    #[pyo3(signature = (reason, cause = None))]
    fn abort(&self, py: Python<'_>, reason: &str, cause: Option<(u32, String)>) {
        py.detach(|| match cause {
            None => self.executor.abort(reason),
            Some((rank, why)) => {
                let why = Why::from_name(&why).unwrap_or(Why::Failed);
                self.executor.abort_because(reason, (Rank(rank), why));
            }
        });
    }

    /// Why the job does not go on, or this rank does not: the job's failure, or a wait that was over and that nothing has ended
    /// since.
    #[getter]
    fn blamed(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let cause = Error::from(self.executor.blamed()?);
        Some(raise(py, &cause).into_value(py).into_any())
    }

    /// Flush the trace and leave in order; idempotent. With `at_exit` the others hear of it as the process ends, and with which
    /// exit code, where the C library tells that. `PeerError`: the job fails meanwhile, but not because others of an elastic job
    /// leave with messages that this rank has asked for.
    #[pyo3(signature = (*, at_exit = false))]
    fn close(&self, py: Python<'_>, at_exit: bool) -> PyResult<()> {
        let failed_before = self.executor.failure().is_some();
        py.detach(|| {
            if !(at_exit && close_at_exit(&self.executor)) {
                self.executor.close();
            }
            self.notifier.close();
        });
        // What others interrupt as they leave, too, nobody goes on with.
        let cause = self.executor.failure().filter(|cause| !matches!(cause, Error::Interrupted { .. }));
        cause.filter(|_| !failed_before).map_or(Ok(()), |cause| Err(raise(py, &cause)))
    }
}
