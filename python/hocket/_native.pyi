"""The extension module. Rust decides, Python reads well: conversions only, the GIL released while anything waits."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from typing_extensions import Buffer

from hocket.artefacts.plan import Schedule
from hocket.errors import Finding, PeerError
from hocket.policy.bucketing import Closing

__version__: str

TIMEOUT_MAX_S: float
"""The longest wait, in seconds; longer ones are taken for it."""

FAR_S: float
"""Round trip in seconds from which the wire's connections tolerate losses if there are any."""

class Memory(Buffer):
    """Registered memory: zero-filled, page-aligned, mapped by the ranks of the same host. Writable buffer of bytes."""

    def __len__(self) -> int: ...
    @property
    def address(self) -> int:
        """Of its first byte in this process."""

    @property
    def arena_offset(self) -> int:
        """Where it starts in this rank's arena: what the other ranks of the host find it by."""

class Window(Buffer):
    """A slice of registered memory that a library works on. Writable buffer of bytes."""

    def __len__(self) -> int: ...

class Engine:
    """One rank's executor and wire. All other methods but `connect` need the mesh to be up.

    `host` is the name of this host, which no other host of the job has: ranks with equal `host` use shared memory. PeerError has
    in its attributes which rank failed, on which host and why.
    """

    def __init__(
        self,
        *,
        rank: int,
        world: int,
        job: str,
        secret: bytes,
        host: str,
        bind: Sequence[str],
        threads: int = 1,
        trace: str | None = None,
        trace_steps: tuple[int, int | None] = (0, None),
        trace_bytes: int | None = None,
        emulated_links: tuple[str, Sequence[float], Sequence[Sequence[int]]] | None = None,
        checksum: bool = False,
        tls: bool = False,
        heartbeat_timeout_s: float = 30.0,
        elastic: bool = False,
        fabric: str | None = None,
    ) -> None:
        """Listen on each of `bind` (IPs, one for each interface that connections are spread over).

        `trace`: file to write the event records to: those of the steps from the first of `trace_steps` until before the second,
        and at most `trace_bytes`. `emulated_links`: emulated network as (file
        of sixteen zero bytes per link shared by all ranks, bit/s of each link, links that a frame crosses by destination rank).
        `checksum`: frames between hosts carry a CRC32C; `tls`: connections between hosts are encrypted; both alike on all ranks.
        `fabric`: efa, tcp, udp, shm or auto: libfabric carries payloads between hosts; alike on all ranks, and not with `tls`.
        `heartbeat_timeout_s`: a peer that is silent for so long while it is waited for fails the job.
        `elastic`, alike on all ranks: a peer that is lost ends the epoch instead; see `resume`. Needs pidfds (Linux 5.3)."""

    @property
    def addresses(self) -> list[str]:
        """`IP:PORT` that peers connect to, one for each of `bind`."""

    def connect(
        self,
        peers: Sequence[tuple[Sequence[str], str]],
        timeout_s: float,
        streams: Sequence[int] | None = None,
    ) -> None:
        """Join the mesh: `(addresses, host)` of every rank, by rank. RendezvousError: its `missing` has the ranks that did not
        come in time, its `rank` one that left.

        `streams`: connections per pair of interfaces to each rank, of which both ends say the same number; default 1."""

    @property
    def epoch(self) -> int:
        """The epoch of members in force, from 1; 0 before `connect`."""

    @property
    def members(self) -> list[int]:
        """Its members, by rank. Members of the first epoch have their ranks as numbers."""

    @property
    def lost(self) -> list[int]:
        """Members that were lost in it, in that order."""

    @property
    def gone(self) -> list[int]:
        """Those of the lost on this host whose processes have ended: they write to no memory any more."""

    def interrupt(self, reason: str) -> None:
        """End the epoch in force: waits raise EpochError, and nothing more starts."""

    def quiesce(self, reason: str, timeout_s: float) -> None:
        """End the epoch in force, and wait until nothing of it runs here and nothing here writes to any rank's memory."""

    def resume(
        self, epoch: int, members: Sequence[int], timeout_s: float, *, left: Sequence[int] = ...
    ) -> None:
        """Begin a later epoch of some of the members, by rank, over the connections that are there. All of them do the same, and
        only after all have quiesced; in between, memory may be restored. The programs of the epoch before are gone.

        A member of this host that the epoch shuts out must end first, as it may write to this rank's memory: its process is
        waited for, and killed after `timeout_s`. Members that have `left` in order may live on. EpochError: a member of the new
        epoch is lost already."""

    def allocate(self, size_bytes: int) -> Memory: ...
    def load(
        self,
        program: Program,
        buffers: Mapping[int, tuple[Memory, int]],
        *,
        priority: int,
        label: str,
        kernels: Mapping[str, int] = ...,
        number: int | None = None,
        others: Sequence[Mapping[int, tuple[Memory, int]]] = ...,
        cards: Sequence[int] | None = None,
    ) -> int:
        """Compile this rank's part. `buffers`: bound buffer id → (memory, byte offset); `others`: further sets of them, apart from
        the first, of which each launch uses one. All ranks of the program, which are the first of the job or all, load the same
        programs in the same order. Lower `priority` overtakes higher. Returns the program's number.

        `number`: for a program that only some ranks load: the same on these, from 2^31 up, and free; unloading frees it.

        `cards`: the network cards that its messages to other hosts may use, by number; None: whichever can send. UsageError,
        ProgramError: there is no such card.

        `kernels`: addresses of the user's kernels by name, each a C function `void (const void *const *inputs, const int64_t
        *input_bytes, void *const *outputs, const int64_t *output_bytes, const double *constants)` that lives as long as the
        engine, may be called from any thread, and keeps to the bytes that it is given."""

    def unload(self, program: int) -> None:
        """Free what a program holds; its last launch must have been waited for."""

    def state(self, program: int, name: str) -> Window | None:
        """The executor's own buffer of that name (state or scratch) in a loaded program."""

    def next_external(self, timeout_s: float) -> tuple[int, int, Window, Window | None] | None:
        """The next collective that waits for a library: program, op, its slice, and where an all-to-all goes; None: none came."""

    def complete_external(self, program: int, op: int) -> None:
        """The library has done it: what waits for it may go."""

    def launch(self, program: int, slot: int = 0, factor: float = 1.0) -> None:
        """Start an instance on one set of the program's memory, whose elements are multiplied with `factor` first; the previous one
        on the same set must be complete. One on another set is started when those before it are complete."""

    def wait(self, program: int, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Until all launches so far are complete. Ctrl-C works. `meanwhile` is called several times a second, and ends the wait
        with what it raises.

        PeerError: its `rank` failed; with `why` "timeout", the instance waits for the ranks in its `missing`. `program`, `launch`
        and `op` say where that was noticed."""

    def is_complete(self, program: int) -> bool:
        """Whether `wait` would return at once: all launches so far are complete."""

    def on_complete(
        self, program: int, callback: Callable[[Exception | None], None], timeout_s: float
    ) -> None:
        """Call `callback` once: with None when the launched instance is complete, or none runs; else with the PeerError that `wait`
        would raise, or a UsageError when the engine is closed meanwhile. A time-out may be half a second late.

        A thread of the engine's calls it, with the GIL; callbacks follow one another in the order in which launches end, and
        communication does not wait for them. A callback that raises ends the job with its reason. `close` returns after the
        last one. UsageError: the engine is closed."""

    def send(self, to: int, tag: int, memory: Memory, size_bytes: int, *, notice: bool = ...) -> int:
        """Offer the first bytes of `memory` to rank `to`: its number. They must not be written until it is complete. It is waited
        for by `wait_message`, or with `notice` by `next_message`."""

    def receive(
        self, source: int | None, tag: int, memory: Memory, size_bytes: int, *, notice: bool = ...
    ) -> int:
        """Receive what `source`, or anyone (None), sends with that tag (64 bits) into `memory`: its number. Sizes must be equal."""

    def next_message(self, timeout_s: float) -> tuple[int, int] | None:
        """The next complete message of those with a notice, and the rank at its other end; None: there was none in time. PeerError
        when the job has failed."""

    def give_up_message(self, number: int, timeout_s: float) -> PeerError:
        """Withdraw a receive that nothing was offered for. Returns the error to raise: whom the message waits for since
        `timeout_s`."""

    def wait_message(self, number: int, timeout_s: float) -> int:
        """Until it is complete; the rank at its other end. PeerError as `wait`; after a timeout a receive is withdrawn."""

    def non_finite(self) -> list[tuple[int, int, int]]:
        """(program, instance, element) of `record non_finite` ops that found NaN or infinity since the last call."""

    def bytes_sent(self) -> list[int]:
        """Payload bytes sent over TCP to each rank since the start."""

    def connections(self) -> list[tuple[int, int, int, int, int, int] | None]:
        """What the kernel said of the TCP connections to each rank, as one, when last looked at, which this asks for anew: smoothed
        and least round trip (microseconds), rate of delivery (byte/s), bytes acknowledged, time with something on its way
        (microseconds), segments sent again. None within a host, and the first time."""

    def mark(self, kind: str, iteration: int, start_ns: int, end_ns: int) -> None:
        """Add a span of this rank's step to the trace: `forward`, `backward`, `wait`, `optimizer`, `update`, `step`."""

    def abort(self, reason: str, cause: tuple[int, str] | None = None) -> None:
        """Tell all peers why this rank gives up; their waits raise PeerError with it, of this `rank` and with `why` "gave_up",
        or of the rank that is its `cause`, and with what that one did."""

    @property
    def blamed(self) -> PeerError | None:
        """Why the job does not go on, or this rank does not: the job's failure, or a wait that was over and that nothing has ended
        since."""

    def close(self, *, at_exit: bool = False) -> None:
        """Flush the trace and leave in order; idempotent. With `at_exit` the others hear of it as the process ends, and with which
        exit code, where the C library tells that. PeerError: the job fails meanwhile, but not because others of
        an elastic job leave with messages that this rank has asked for."""

class HostGroup:
    """Blocking collectives of ranks of one host, by the calling thread. All members call the same, in one order.

    Buffers are (address, bytes), anywhere in this process; they must be there, and nobody else may use them, until the call
    returns. Those in registered memory are reduced in place, without a copy. `op`: sum, product, min, max, and of
    integers and, or, xor; `dtype`: as programs have it.
    Roots are positions in the group.
    UsageError names a rank that calls something else; the `missing` of PeerError are the ranks that do not come in time. After
    either the group is broken.
    """

    AREA_BYTES: ClassVar[int]

    def __init__(
        self,
        engine: Engine,
        area: Memory,
        *,
        members: Sequence[tuple[int, int]],
        timeout_s: float,
        flat_bytes: tuple[int, int],
    ) -> None:
        """`area`: AREA_BYTES of our own; `members`: every member's rank and its area's `arena_offset`, in its order.

        `flat_bytes`: up to how many bytes every member reduces all by itself, in registered memory and in other: the same on all.
        """

    def other_memory(self) -> str | None:
        """How reductions take memory that is not registered; None before one mattered."""

    def set_timeout(self, timeout_s: float) -> None:
        """Bounds each wait from now on."""

    def leave(self) -> None:
        """Leave after the last call; idempotent, and what the end of this object does. UsageError from later calls.

        The area is freed once all members have left, since others may still be in the last call.
        """

    def barrier(self) -> None: ...
    def broadcast(self, buffer: tuple[int, int], root: int) -> None: ...
    def all_gather(self, own: tuple[int, int], outputs: Sequence[tuple[int, int]]) -> None: ...
    def gather(self, own: tuple[int, int], outputs: Sequence[tuple[int, int]], root: int) -> None: ...
    def scatter(self, inputs: Sequence[tuple[int, int]], output: tuple[int, int], root: int) -> None: ...
    def all_to_all(self, inputs: Sequence[tuple[int, int]], outputs: Sequence[tuple[int, int]]) -> None: ...
    def all_reduce(self, buffer: tuple[int, int], op: str, dtype: str) -> None: ...
    def reduce(self, buffer: tuple[int, int], op: str, dtype: str, root: int) -> None: ...
    def reduce_scatter(
        self, inputs: Sequence[tuple[int, int]], output: tuple[int, int], op: str, dtype: str
    ) -> None: ...
    def time_all_reduce(self, buffer: tuple[int, int], op: str, dtype: str, calls: int) -> list[int]:
        """Nanoseconds of each of `calls` all-reduces in a row, without Python between them: for benchmarks."""

class Group:
    """A model's leaves that a framework's runtime lends, turn by turn, on threads of its own; each bucket is launched by its last
    leaf. No Python runs between."""

    def __init__(self, engine: Engine, leaves: Sequence[tuple[str, int]], timeout_s: float) -> None:
        """`leaves`: names and sizes in bytes. `timeout_s`: for each launch, and for leaves that a turn lacks."""

    @property
    def number(self) -> int:
        """What compiled functions know it by; none is used twice in a process."""

    def load(
        self,
        buckets: Sequence[tuple[int, int]],
        places: Sequence[tuple[Memory, int, Sequence[tuple[int, int]]]],
    ) -> None:
        """`buckets[b]`: the program of bucket `b`, and of how many parts of leaves it is. `places`: by leaf, the memory, the byte
        there at which it begins, (bucket, index) of its parts. UsageError: a turn is not over, or leaves do not fit."""

    def begin(self, turn: int) -> None:
        """An execution begins whose leaves are of this turn, for the trace. Turns are numbered from 0 on."""

    def answer_begin(self, execution: Callable[[], int]) -> None:
        """For functions whose caller does not hand the turn to them: each execution calls `execution()` for it, on a thread of the
        runtime's. What that raises, the execution raises, in the runtime's words."""

    def wait(self, turn: int, timeout_s: float) -> None:
        """Until all turns before this one are over. PeerError: the group has failed, or the time is up."""

    def order(self) -> list[int]:
        """Leaves of the last turn that is over, in the order in which they came."""

    def close(self) -> None:
        """Whatever is lent ends with an error, and functions that know its number are refused. Idempotent."""

def xla_handlers() -> tuple[Any, Any]:
    """The capsules of the handlers for `jax.ffi.register_ffi_target`. Attributes of both: `group` (its number) and `leaf`.

    The first copies a gradient: operands gradient and turn (a scalar of uint32); its result is a scalar of uint32. The second gives
    the mean, which may be in the gradient's memory: operands gradient, turn, and a scalar of uint32 that depends on the results of
    the first of all gradients."""

def tensorflow_register(version: str) -> None:
    """Registers the ops `HocketBegin`, `HocketGive` and `HocketTakeBack` with the TensorFlow that the process has loaded, once.
    UsageError: it is another than Hocket knows; `version`: its own, for the message."""

class Readiness:
    """Counts gradients of one backward and launches each bucket's program when its last gradient is there."""

    def __init__(
        self,
        engine: Engine,
        buckets: Sequence[tuple[int, int]],
        on_first: Callable[[], None],
        adopt: Callable[[int, int, Any], None],
        twice: Callable[[int, int], None],
        refused: Callable[[Exception], bool | None],
        schedule: Schedule | None = None,
        places: tuple[int, Sequence[tuple[int, int, int, Sequence[int]]]] | None = None,
    ) -> None:
        """`buckets[b]`: the program of bucket `b`, and how many gradients it waits for. `on_first()` is called by the first hook of
        each backward, `adopt(bucket, index, parameter)` when a parameter's gradient is not the bucket's view (it copies and puts
        the view back), `twice(bucket, index)` when a gradient comes again after its bucket was launched, `refused(error)` when a
        bucket cannot be launched: it may raise a better error, else that one is raised, unless it returns True. Then whoever trains
        sees to it after backward.

        `schedule`: of turns of these buckets; None: every bucket is launched in every iteration. A program was loaded with as many
        sets of memory as a bucket has slots, which its turns take one after the other; `begin` and `finish` launch turns that are
        sent at those points. A launch's factor is 1 over the iterations that it sums, and what is due earlier goes first.
        `places`: where training goes on, the iteration of the period, and of each bucket the slot that is open, how
        many iterations it has summed, how many turns before it were reduced and not applied, and how many iterations each turn
        between these has summed, which is still to be launched. UsageError: no such schedule can be kept."""

    enabled: bool
    """False: hooks do nothing (gradient accumulation)."""

    timed: bool
    """To be set: whether `times` are kept."""

    def times(self) -> list[tuple[tuple[int, int], int]]:
        """(bucket, index) of the gradients that have come in this backward, and when, as `now_ns`; 0 where times were not kept."""

    def hook(
        self, places: Sequence[tuple[int, int]], view: object, others: Sequence[object] = ...
    ) -> Callable[[Any], None]:
        """The native callable for `parameter.register_post_accumulate_grad_hook`. `places`: (bucket, index) of each part of the
        gradient; `view` is its place in memory, `others` those in the slots after the first. `adopt` is called with the first of
        `places`."""

    def begin(self) -> None:
        """The next iteration has begun: what the schedule launches then leaves."""

    def hold(self) -> None:
        """From now on no turn ends: gradients are summed until `flush`."""

    def flush(self) -> None:
        """End all turns that have gradients, and launch whatever was not. Not within a backward."""

    def slot(self, bucket: int) -> int:
        """The slot that the bucket's gradients are added to."""

    def missing(self) -> list[tuple[int, int]]:
        """(bucket, index) of gradients that have not come in this backward."""

    def order(self) -> list[tuple[int, int]]:
        """(bucket, index) of the gradients that have come in this backward, in the order in which they came."""

    def finish(self) -> None:
        """Backward has ended: launch the buckets that still wait for gradients, as they are. What comes next is the next
        backward's; its first gradient raises UsageError when a bucket was not applied."""

    def wait(self, bucket: int, timeout_s: float) -> None:
        """Until the bucket's oldest launch that was not applied is complete, if there is one."""

    def applied(self, bucket: int) -> None:
        """What the bucket's launch reduced was used: its memory may fill again. UsageError when nothing was launched."""

    def progress(self, bucket: int) -> tuple[int, int, int]:
        """How often the bucket was ready, launched and applied."""

Range = tuple[int, int, int]
"""(buffer, start, stop)"""

Line = tuple[str, int] | None
"""File and line of the user's Python that made an op."""

class Builder:
    """Makes a program op by op, each rank's in its own sequential order; dependencies follow from memory."""

    def __init__(self, name: str, world: int) -> None: ...
    def buffer(self, rank: int, name: str, dtype: str, elements: int, kind: str, space: str = ...) -> int: ...
    def kernel(
        self, name: str, *, elementwise: bool, updates: bool, joins: str | None, constants: Sequence[float]
    ) -> int: ...
    def copy(self, rank: int, src: Range, dst: Range, *, casts: bool, source: Line) -> int: ...
    def reduce(self, rank: int, op: str, src: Range, dst: Range, *, source: Line) -> int: ...
    def scale(self, rank: int, factor: float, dst: Range, *, source: Line) -> int: ...
    def round(self, rank: int, to: str, dst: Range, *, source: Line) -> int: ...
    def record_non_finite(self, rank: int, src: Range, *, source: Line) -> int: ...
    def call(
        self, rank: int, kernel: int, inputs: Sequence[Range], outputs: Sequence[Range], *, source: Line
    ) -> int: ...
    def send(
        self, rank: int, src: Range, peer: int, tag: int, *, wire: str, count: Range | None, source: Line
    ) -> int: ...
    def recv(
        self,
        rank: int,
        dst: Range,
        peer: int,
        tag: int,
        *,
        wire: str,
        reduce: str | None,
        count: Range | None,
        source: Line,
    ) -> int: ...
    def collective(
        self,
        rank: int,
        what: str,
        of: Range,
        *,
        members: Sequence[int],
        op: str,
        scale: float,
        algorithm: str,
        numbers: Sequence[int],
        root: int | None,
        dst: Range | None,
        source: Line,
    ) -> int: ...
    def fence(self, rank: int) -> None:
        """The next op comes after all so far, and all later ones after it."""

    def ensure_all_reduce(self, buffer: int, members: Sequence[int], op: str, scale: float) -> None:
        """The buffer ends as `scale · op` over the members, the same bits on all."""

    def ensure_same(self, buffer: int, members: Sequence[int]) -> None:
        """The buffer ends as the same bits on all members, which depend on what each held."""

    def finish(self) -> Program: ...

class AlgorithmEntry:
    """What is known of an algorithm. `title`: in a sentence; `takes`: its numbers; `measured_as`: names in tunings; `does`:
    collectives that Hocket runs by it; `ordered`: its cost depends on the order of the ranks; `proposed`: plans propose it where
    nothing was measured.
    """

    name: str
    title: str
    takes: Literal["nothing", "sizes", "base", "servers"]
    measured_as: list[str]
    does: list[str]
    ordered: bool
    proposed: bool

def algorithms() -> list[AlgorithmEntry]:
    """All but libraries, simplest first."""

def fitting_algorithms(
    collective: str, hosts: Sequence[int], racks: Sequence[int]
) -> list[tuple[str, str, list[int]]]:
    """What can do a collective of a group, simplest first: the name that it is measured under, its own, its numbers.

    `hosts`, `racks`: numbers, by member. UsageError when they are not equally many, or for an unknown collective.
    """

def count_messages(
    name: str,
    numbers: Sequence[int],
    collective: str,
    *,
    members: int,
    elements: int | None,
    root: int,
) -> list[tuple[int, int, int, int]]:
    """What is sent: sender, receiver, elements, messages; a pair may come several times. Members by position.

    `elements` None: as many as all parts divide evenly. UsageError when the algorithm does not fit.
    """

class Owned:
    """Owners of a bucket's parts. `shares`: by member, in units of which there are as many as the sum. The first `workers` members
    have gradients, the others only own. `via`: `direct`; `two_level`, through the first of each group of workers, whose sizes are
    `stations`; `ring`, for members that all work and own equal shares. UsageError for what cannot be.
    """

    def __init__(self, *, shares: Sequence[int], workers: int, via: str, stations: Sequence[int]) -> None: ...
    def parts(self, elements: int) -> list[tuple[int, int, int]]:
        """Owner (by position), its first element, one past its last: in order, none empty."""

    def sent(self, elements: int | None) -> list[tuple[int, int, int, int]]:
        """What is sent to owners and back: sender, receiver, elements, messages; as `count_messages`."""

    def program(
        self, *, name: str, world: int, direction: str, elements: int, dtype: str, op: str, scale: float
    ) -> Program:
        """One bound buffer of each of `world` ranks, of which the first are the members. `direction`: `both` reduces it over the
        workers; `to_owners` leaves the reduction on owners, `from_owners` brings what they hold to all workers. Neither
        relabelled nor split; not verified.
        """

def verify_halves(to_owners: Program, from_owners: Program) -> None:
    """Raise ProgramError unless values that owners make of the reductions that one program brings them reach everybody by the
    other: both verified before, of the same owners, parts and ranks.
    """

TCP_S_PER_BYTE: float
REDUCE_S_PER_BYTE: float
CAST_S_PER_BYTE: float
COPY_S_PER_BYTE: float
MESSAGE_S: float
BUCKET_S: float
PART_ELEMENTS_MIN: int
SPLIT_WORTH: float

class Network:
    """The network between ranks, for plans, orders and simulations. UsageError for what contradicts itself."""

    def __init__(
        self,
        hosts: Sequence[int],
        links: Sequence[tuple[str, float, float, float, float, float]],
        routes: Sequence[tuple[int, int, Sequence[int], float]],
    ) -> None:
        """Hosts by rank: bytes between two pass through sockets. Links: as `hocket.artefacts.network.Link`. Routes: source,
        destination, indices of links, latency in seconds."""

Piece = tuple[float, float, float, float, Sequence[float]]
"""Of a bucket, in seconds: when ready, before and after the busiest resource has something of it, alone, and busy by resource."""

class PlanCost:
    """The routes of buckets, on a network. Each: algorithm and its numbers, or owners, or for rows an algorithm, the share of rows
    that a rank touches, the bytes of one, and whether they are added to a table; order; bytes of an element and of a chunk; None
    or the codec's bytes of an element and its ordered pairs of ranks. UsageError for one that does not fit.
    """

    def __init__(
        self,
        network: Network,
        routes: Sequence[
            tuple[
                tuple[str, Sequence[int]] | Owned | tuple[str, float, float, bool],
                Sequence[int],
                int,
                int,
                tuple[int, Sequence[tuple[int, int]]] | None,
            ]
        ],
    ) -> None: ...
    resources: list[int]
    """Of the links and engines that are evaluated: numbers of links, and, from their number on, of ranks."""

    def alone_s(self, route: int, elements: float) -> float:
        """Seconds of one bucket with the network to itself."""

    def piece(self, bucket: tuple[int, float, float, float]) -> Piece:
        """What a bucket asks of links and engines: route, elements, earliest start, and what its time alone is multiplied with."""

    def step(self, buckets: Sequence[tuple[int, float, float, float]]) -> tuple[float, list[float]]:
        """When the last bucket is done, and bytes by link. Buckets in order of priority: route, elements, earliest start, and what
        its time alone is multiplied with.
        """

def partition(gradients: Sequence[tuple[int, float]], rule: Closing) -> list[list[int]]:
    """Buckets of gradients, given in their order by kind and size, as their indices. One bucket of each kind is open at a time.
    Closed ones come first, the others in the order in which they were opened."""

PLAN_BUCKET_BYTES: list[int | None]
"""Sizes of buckets that `solve_plan` begins with; None: the whole model."""
PLAN_BUILDERS: list[str]
"""Names of the builders of plans that may mix routes."""

class PlanProposal:
    """A route that was considered. `exchange`: `all_reduce` by an algorithm with its numbers; `owned`
    (`direct`, `two_level`, `ring`) with the shares of the members of `order` and the sizes of stations; `gathered` by an
    algorithm. `codec`: index of the codec.
    """

    @property
    def exchange(self) -> tuple[str, str, list[int], list[int]]: ...
    @property
    def order(self) -> list[int]: ...
    @property
    def rule(self) -> str: ...
    @property
    def measured_as(self) -> str: ...
    @property
    def codec(self) -> int | None: ...
    @property
    def codec_links(self) -> list[tuple[int, int]]: ...
    @property
    def chunk_bytes(self) -> int: ...

class PlanSolution:
    """The fastest plan that was found. `buckets`, urgent ones first: parts (variable, first element, one after the last) and the
    index of the proposal. `uniform`: plans with one route for all buckets: proposal, index of the bucket size, seconds a step,
    simplest first; `chosen`: the index of the plan among these, None when it mixes routes. `bundlings`: index of a bucket size,
    and the variables of each bucket. `built`: the name of a builder, its seconds a step, and its buckets as in `buckets`.
    """

    @property
    def buckets(self) -> list[tuple[list[tuple[int, int, int]], int]]: ...
    @property
    def proposals(self) -> list[PlanProposal]: ...
    @property
    def step_s(self) -> float: ...
    @property
    def bound_s(self) -> float:
        """No plan of these routes takes less."""

    @property
    def least_s(self) -> float:
        """No plan takes less, whatever its routes: hosts and racks must send and receive so much."""

    @property
    def evaluations(self) -> int: ...
    @property
    def uniform(self) -> list[tuple[int, int, float]]: ...
    @property
    def chosen(self) -> int | None: ...
    @property
    def bundlings(self) -> list[tuple[int, list[list[int]]]]: ...
    @property
    def built(self) -> list[tuple[str, float, list[tuple[list[tuple[int, int, int]], int]]]]: ...

def solve_plan(
    network: Network,
    *,
    racks: Sequence[int],
    workers: int,
    orders: Sequence[tuple[str, tuple[str, Sequence[int]] | None, Sequence[int]]],
    codecs: Sequence[tuple[float, Sequence[tuple[int, int]]]],
    chunk_bytes: float,
    shared_chunk_bytes: float,
    admitted: Sequence[str] | None,
    classes: Sequence[tuple[float, tuple[float, float, bool] | None]],
    variables: Sequence[tuple[int, int, float, float]],
    backward_end_s: float,
    step_s: float,
    gates: bool,
    factors: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    seed: int,
    evaluations: int,
    splits: bool,
    searched: bool,
) -> PlanSolution:
    """The plan with the shortest step; the same one for the same arguments, on every machine.

    `racks`, by rank. The first `workers` ranks have gradients. `orders` of the workers, simplest first: the rule, the only
    algorithm that it is for, ranks. `codecs`: bytes of an element, and ordered pairs of ranks.
    `admitted`: algorithms, as they are measured, and `owned` for owners of parts; None: all. `classes`: bytes of an
    element; of gradients that may travel as rows the share of these, bytes of one, and whether they are added to a table.
    `variables`, in the order of the model: elements, class, ready, needed. `factors`, by the name under which an algorithm is
    measured: measured times over the model's, by elements, ascending. `splits`: whether a variable may be in several buckets.
    UsageError when these do not fit each other.
    """

STEP_TICKS: int
"""Ticks into which a step is cut for knapsacks."""

def pack(
    items: Sequence[tuple[int, Sequence[int], int]], until: Sequence[int], *, budget: int = ...
) -> tuple[list[int | None], int, int]:
    """The most profitable items that links can carry, each link until its end: by item its link, the profit, and what none exceeds.

    Items: when ready, time on each link, profit, in ticks. Links: one to four. `budget`: states that are looked at, at most.
    """

def algorithm_1(
    items: Sequence[tuple[int, Sequence[int], int]], *, begins: Sequence[int], until: Sequence[int]
) -> tuple[list[int | None], int]:
    """DeFT's Algorithm 1 for items in order of readiness, each link from its begin to its end: by item its link, and the profit.

    It ignores when all but the first item that it keeps are ready, so not all of what it returns may fit.
    """

SCHEDULE_SLOTS_MAX: int
"""Limit of turns of one bucket that are open at the same time: its memory has as many copies."""
SCHEDULE_PERIOD_MAX: int
"""Limit of a period's iterations."""

def schedule_faults(schedule: Schedule, buckets: int) -> list[str]:
    """Every fault of a schedule of so many buckets, in words."""

def schedule_slots(schedule: Schedule, buckets: int) -> list[int]:
    """Copies of each bucket's memory that a sound schedule needs."""

def schedule_launches(schedule: Schedule, buckets: int, count: int) -> list[tuple[int, int]]:
    """Launches in `count` iterations, as `SimulatedJob.scheduled` numbers them: bucket, and launches of it before."""

def staged_schedule(
    buckets: Sequence[tuple[float, float, Sequence[float]]], *, capacity_factor: float = 1.0
) -> Schedule:
    """DeFT's schedule of buckets, the input side first: seconds of forward, backward, and of transfer on each link.

    UsageError names a bucket that fits into no window, even `capacity_factor` times as long as computation takes.
    """

def schedule_front(
    pieces: Sequence[Piece],
    *,
    needed_s: Sequence[float],
    backward_end_s: float,
    step_s: float,
    delay_max: int,
    merge_max: int,
    gates: bool,
    together: bool,
    others: Sequence[Schedule] = ...,
) -> list[tuple[Schedule, float, float]]:
    """Schedules, seconds of an iteration and updates per iteration: no other is better in both of these and in its delay.

    `pieces`, in order of priority. `together`: all buckets have the same turns. `others` are candidates, too. UsageError for
    times or schedules that do not fit.
    """

def schedule_steady(
    pieces: Sequence[Piece],
    chosen: Schedule,
    *,
    needed_s: Sequence[float],
    backward_end_s: float,
    step_s: float,
) -> tuple[float, float]:
    """Seconds of an iteration with a schedule, and updates per iteration; as `schedule_front` predicts its own."""

class Draw:
    """Which positions of a data set's order each member draws in a step."""

    @property
    def slices(self) -> list[tuple[int, list[int]]]:
        """Member and positions, by rank; empty for some where fewer are left than there are members."""

class Sampler:
    """Who draws which samples, so that each counts once in a pass over the data, whoever is lost. What `draw` gives depends on what
    was committed alone. It is at the beginning of the next pass as soon as all of one are committed.

    UsageError where `at` and `returned` are of no such sampler.
    """

    def __init__(
        self, seed: int, samples: int, *, data_epoch: int = 0, at: int = 0, returned: Sequence[int] = ()
    ) -> None: ...
    @property
    def data_epoch(self) -> int:
        """Which pass, from zero."""

    @property
    def at(self) -> int:
        """Positions before it were drawn."""

    @property
    def returned(self) -> list[int]:
        """Positions that were drawn by members that were lost."""

    @property
    def left(self) -> int:
        """How many positions of this pass are not committed."""

    def copy(self) -> Sampler:
        """Another one at the same place."""

    def begin(self, data_epoch: int) -> None:
        """Another pass begins, whatever is left of the one before."""

    def draw(self, members: Sequence[int], batch: int, *, whole: bool) -> Draw:
        """The next step's: `batch` positions for each member, by rank. Where fewer are left, nobody draws any (`whole`), or they
        are shared evenly, as in the last two steps where less than one for each would remain."""

    def commit(self, draw: Draw, members: Sequence[int]) -> None:
        """The step counts, as the mean of these members: what others have drawn is drawn again at the end of the pass."""

    def samples(self, positions: Sequence[int]) -> list[int]:
        """The samples at these positions of this pass."""

class OrderProblem:
    """One collective between hosts, of which the order is looked for. Matrices are symmetric, C-contiguous f64, row by row, and
    their diagonals are not looked at. `network`: its ranks are the hosts; pairs share its links. UsageError says what does not fit.

    `algorithm`: one whose entry is `ordered`, with its `numbers`. `far_first`: the rounds of halving-doubling and BCube begin
    between ranks far apart.
    """

    def __init__(
        self,
        *,
        hosts: int,
        latency_s: Buffer,
        s_per_byte: Buffer | None,
        network: Network | None,
        algorithm: str,
        numbers: Sequence[int],
        size_bytes: float,
        chunk_bytes: float,
        far_first: bool,
    ) -> None: ...
    def cost_s(self, order: Sequence[int]) -> float:
        """Seconds that the collective takes; `order[rank] = host`."""

    def bound_s(self, cost_s: float) -> float:
        """Seconds that no order can beat, given what a good one takes."""

    def solve(
        self, given: Sequence[int], seed: int, restarts: int, effort: float, time_limit_s: float | None
    ) -> tuple[list[int], float, float, float, bool, bool]:
        """The best order found: itself, seconds in it, in the given one, and at least; whether no other can be better, and whether
        the search came to its end. Releases the GIL."""

    def amount(self, restarts: int, effort: float) -> int:
        """Steps that `solve` takes, about."""

    def done(self) -> int:
        """Steps done so far."""

    def stop(self) -> None:
        """Ends `solve` in another thread, which returns the best so far."""

class PassOptions:
    """What the passes of `crates/program/src/passes/pipeline.rs` decide by."""

    def __init__(
        self,
        *,
        chunk_bytes: int,
        order: Sequence[int] | None = None,
        codec: str | None = None,
        codec_links: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`chunk_bytes`: ops are split so that none is larger. `order`: physical rank `order[i]` plays logical rank `i`. `codec`:
        f16 or bf16, as which f32 messages over `codec_links` (source, destination) travel. ProgramError for another type."""

class Proofs:
    """Verifies programs one after the other. Those that differ from an earlier one in lengths alone share its proof."""

    shared: int
    """How many did."""

    def __init__(self) -> None:
        """Of none yet."""

    def verify(self, program: Program) -> None:
        """As `program.verify()`."""

class Program:
    """What all ranks do, immutable; passes give new programs. `str(program)` is its text form.

    Every method raises ProgramError when the program, or what is asked of it, makes no sense.
    """

    name: str
    world: int
    @staticmethod
    def parse(text: str) -> Program:
        """The program of a text; ProgramError names line and column."""

    @staticmethod
    def all_reduce(
        *,
        name: str,
        world: int,
        elements: int,
        dtype: str,
        op: str,
        scale: float,
        algorithm: str,
        sizes: Sequence[int],
        record_non_finite: bool,
    ) -> Program:
        """One bound buffer per rank and the all-reduce of it, not lowered."""

    @staticmethod
    def broadcast(
        *, world: int, size_bytes: int, sources: Sequence[int], targets: Sequence[int], algorithm: str
    ) -> Program:
        """The sources' bound buffers of bytes, which are the same, to the targets: a part from each source. Not lowered."""

    @staticmethod
    def gathered(
        *, name: str, world: int, algorithm: str, rows_max: int, elements: int, dtype: str, table: int
    ) -> Program:
        """Rows of sparse gradients, of all ranks to all, by an algorithm of all-gathers; not relabelled, not verified.

        Each rank binds four buffers and fills its own block of the first three, that of its place in the order:
        `rows` (`rows_max · elements` of `dtype` a block), `numbers` (`rows_max` i64: which row of the table each is),
        `counts` (two i64: rows, and elements of these). `table`, of `table` rows, ends as the sum of all ranks' rows,
        the same bits on all; with 0 rows there is none.
        """

    def compiled(self, options: PassOptions) -> Program:
        """After all passes; not verified."""

    def to_bytes(self, rank: int | None = None) -> bytes:
        """For `from_bytes` of the same build; with `rank`, only what that rank needs to run."""

    @staticmethod
    def from_bytes(data: bytes) -> Program:
        """What `to_bytes` gave, not verified; ProgramError for bytes that are no program."""

    def resized(self, name: str, buffer: int, elements: int) -> Program | None:
        """The same for ranks whose buffer of that number has `elements` elements; None where ops touch parts of it."""

    def packed(self, lengths: Sequence[int]) -> Program | None:
        """The same, where the elements of the bound buffer 0 lie in bound buffers 0, 1, … of these lengths, one after the other:
        they are copied together first, and apart at the end. None where the lengths are not those of the buffer."""

    def retained(self) -> Program:
        """The same, which leaves what it is given as it is: for each bound buffer there is one more, before all others, from which
        it is filled first. Nothing is promised of it."""

    def stages(self, options: PassOptions) -> dict[str, Program]:
        """After each pass, by its name, in order; not verified."""

    def findings(self) -> list[Finding]:
        """What the verifier finds wrong; empty for a program that may run."""

    def pairs(self) -> list[tuple[int, int]]:
        """Ordered pairs of ranks of which one sends to the other, ascending."""

    def verify(self) -> None:
        """Raise ProgramError with all findings, if there are any."""

    def show(self, path: Any = None) -> Any:
        """Write an SVG of the dataflow graph to `path` (default: `NAME.svg` here); returns where it is."""

    def buffers(self, rank: int) -> list[tuple[str, str, int, str, str]]:
        """By buffer of a rank: name, element type, elements, kind (`bound`, `scratch`, `state`, `shared_state`) and memory space
        (`host`, `device`)."""

    def ops(self, rank: int) -> list[dict[str, Any]]:
        """By op of a rank: its fields by name; `op` says which it is, slices are (buffer, start, stop)."""

TRACE_MAGIC: bytes
"""What a trace's record files begin with."""

TRACE_VERSION: int
TRACE_HEADER: str
"""As `struct` describes it: magic, version, bytes of a record, rank, world, records dropped."""

TRACE_FIELDS: list[tuple[str, str]]
"""A record's fields in order: name, and type as NumPy describes it."""

TRACE_RECORD_BYTES: int
TRACE_NO_PEER: int
"""`peer` of a record that involves no other rank."""

TRACE_KINDS: list[tuple[str, int]]
"""Names and numbers of what a record is about, ascending."""

TRACE_ENDS: list[str]
"""Why a record file ends before its run does, by number; the first: it does not."""

DLC_OPERATIONS: list[str]
"""Spellings of `operation` in DLC traces. Below DLC_SETUP_FIRST, position modulo 8 is push or pull (4), send or receive (2), of a
worker or a server (1)."""

DLC_SETUP_FIRST: int

def dlc_columns(
    text: bytes, *, first_line: int, last_id: int | None, workers: int | None, servers: int | None
) -> dict[str, Any]:
    """Whole lines of a DLC trace as columns: little-endian bytes by field, `id_dep` as bytes with `id_dep_ends` (i32). `problems`:
    (line, column, rule) of the first malformed lines, `problem_count` of all; `lines` read; the `last_id`."""

def fabric_providers() -> list[tuple[str, str, str]]:
    """libfabric's providers of tagged messages here: name, card or interface, version. UsageError: there is no libfabric."""

def cache_line_ns() -> float | None:
    """Nanoseconds for a cache line to go from one core to another; None with one core."""

def now_ns() -> int:
    """The clock of trace records: CLOCK_MONOTONIC, nanoseconds."""

def digests(pieces: Sequence[tuple[int, int]]) -> list[int]:
    """The CRC32C of each piece of memory, given as its address and its bytes. Another order of the bytes, or one flipped bit, gives
    another digest. The memory must be there, and nobody may write to it during the call, which releases the interpreter's lock."""

def repeat_kernel(
    name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer], constants: Sequence[float], times: int
) -> None:
    """Run a kernel `times` times on the same arrays, for benchmarks. Names are those of `run_kernel`, or `memcpy`, `copy`, and
    with the types of destination and source `cast.f16.f32`, `sum.f32.f16`, `max.f32`, `sum_many.f32`, `scale.f32`, `round.f32.f16`,
    `first_non_finite.f32`. UsageError: there is no such kernel; ProgramError: it does not take these arrays."""

def run_kernel(
    name: str,
    address: int | None,
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    constants: Sequence[float],
) -> None:
    """Run one kernel of whole slices on contiguous arrays; `address` of a user's, None for a built-in."""

Costs = tuple[float, float, float, float, float, float, bool]
"""Seconds per message sent and received, per byte reduced, cast, copied, and written to or read from a socket; whether data waits
for its receive."""

Launch = tuple[int, int, Sequence[float]]
"""Index of a program, priority (lower first), seconds after the phase's begin: by rank, or one for all."""

Phase = tuple[Sequence[Launch], Sequence[float], Sequence[float]]
"""Launches; the phase's least seconds and the seconds after all is done: by rank, one for all, or none."""

class SimulatedJob:
    """What every rank does. UsageError for times, launches or acts that do not fit each other."""

    @staticmethod
    def phases(world: int, phases: Sequence[Phase]) -> SimulatedJob:
        """Phases one after the other on each rank: nothing outlasts its phase."""

    @staticmethod
    def scheduled(
        world: int,
        schedule: Schedule,
        buckets: Sequence[tuple[int, int, float, float]],
        *,
        backward_end_s: float,
        step_s: float,
        count: int,
        pace: Sequence[float],
    ) -> SimulatedJob:
        """`count` iterations by a schedule. `buckets`: program, priority, and when it is needed and ready, in seconds after forward
        began. A launch that is due earlier goes first, and then by priority. `pace`: factors on computation, one for all ranks or
        by rank.
        """

class SimulatedProgram:
    """A program of all ranks with its routes and costs, or a pattern whose ops are computed."""

    @staticmethod
    def compile(program: Program, network: Network, costs: Costs) -> SimulatedProgram:
        """ProgramError names the first op at which ranks diverge; UsageError a route that is missing."""

    @staticmethod
    def ring(world: int, size_bytes: int, network: Network, costs: Costs) -> SimulatedProgram:
        """Ring all-reduce of `size_bytes` a rank in rank order; cannot be recorded."""

    @staticmethod
    def all_to_all(world: int, size_bytes: int, network: Network, costs: Costs) -> SimulatedProgram:
        """All parts of `size_bytes` a rank in flight at once; cannot be recorded."""

    @staticmethod
    def messages(
        world: int,
        messages: Sequence[tuple[int, int, int, Sequence[int], float]],
        switches: Sequence[int],
        network: Network,
        costs: Costs,
    ) -> SimulatedProgram:
        """Traffic without a program: source, destination, bytes, messages that it comes after, seconds since the last of those;
        messages cost nothing at `switches`. By rank, ops are in the order of messages: a wait and a send at the source, a
        receive at the destination; a wait alone for one from a rank to itself. UsageError for what makes no sense."""

    def __len__(self) -> int:
        """Ops of all ranks."""

class Simulation:
    """What came of a job, in virtual time."""

    @property
    def end_s(self) -> float:
        """When the last rank ended."""

    @property
    def phase_ends_s(self) -> list[list[float]]:
        """By phase, then by rank."""

    @property
    def launches_s(self) -> list[tuple[float, float]]:
        """First start and last end of each launch, phase by phase."""

    @property
    def link_bytes(self) -> list[float]:
        """By link."""

    @property
    def messages(self) -> int:
        """Received."""

    @property
    def events(self) -> int:
        """Of the virtual clock."""

    def records(self, rank: int) -> bytes:
        """As they lie in a trace file, `program` being the launch; empty unless recorded."""

def simulate(
    network: Network,
    programs: Sequence[SimulatedProgram],
    job: SimulatedJob,
    *,
    rendezvous: bool,
    seed: int,
    jitter: float,
    slow: Sequence[tuple[int, float]],
    changes: Sequence[tuple[float, int, float]],
    recorded: bool,
) -> Simulation:
    """Run a job. `slow`: rank and factor; `changes`: seconds, link, bit/s
    from then on.

    SimulationError when nothing moves and ranks have not ended.
    """

class MemberAction:
    """What a machine of elastic jobs wants done.

    A participant's kinds: `send` (`bytes`: a note), `quiesce` (start nothing, let what runs end, then say `quiesced`), `barrier`
    (enter that of `step`), `commit` (`step` stands), `restore` and `redo` (reduce `step` again from what was given), `enter` (begin
    `epoch` with `members`), `exit` (take no further part: `why`); `prepare` and `fetch` are of members that join. A coordinator's:
    `send` (`bytes`: an order for `member`), `write` (`epoch` of `members` without those `evicted`, from `step` on: append `bytes`
    to the journal, then say `written`), `kill` (the process of `member`, and `why`), `let_go` (the script of `member` has ended
    before others'), `wait` (for others to join: `step` members are left, and
    `members` are lost), `end` (the job: `why`; `members` are lost).
    """

    @property
    def kind(self) -> str: ...
    @property
    def bytes(self) -> builtins.bytes | None: ...
    @property
    def member(self) -> int | None: ...
    @property
    def step(self) -> int | None: ...
    @property
    def epoch(self) -> int | None: ...
    @property
    def members(self) -> list[int]: ...
    @property
    def evicted(self) -> list[int]: ...
    @property
    def why(self) -> str | None: ...

class Participant:
    """A member's side of an elastic job, without I/O: events in, actions out. `now_s`: on one monotonic clock."""

    def __init__(
        self, *, member: int, host: int, founds: bool, coordinator_patience_s: float, now_s: float
    ) -> None:
        """On the host of that number. `founds`: it has the state that all begin with, and is no joiner. `coordinator_patience_s`:
        how long it waits for a decision while it cannot hear the coordinator."""

    @property
    def in_force(self) -> int | None:
        """The epoch that it trains in; None while it has stopped, or waits for one."""

    def linked(self, now_s: float) -> list[MemberAction]:
        """The coordinator can be heard."""

    def unlinked(self, now_s: float) -> list[MemberAction]:
        """It cannot be heard any more."""

    def order(self, body: builtins.bytes, now_s: float) -> list[MemberAction]:
        """The coordinator says something. RendezvousError: nothing that one says."""

    def lost(self, member: int, now_s: float) -> list[MemberAction]:
        """A peer cannot be heard."""

    def gone(self, member: int, now_s: float) -> list[MemberAction]:
        """The process of a member on this host has ended."""

    def quiesced(self, now_s: float) -> list[MemberAction]:
        """Nothing runs here any more."""

    def waits(self, now_s: float) -> list[MemberAction]:
        """The script has come to where it follows what is decided."""

    def overdue(self, now_s: float) -> list[MemberAction]:
        """The script has waited for other members as long as it may."""

    def ended(self, now_s: float) -> list[MemberAction]:
        """The script has ended, and makes no more steps."""

    @property
    def vote(self) -> int:
        """The newest epoch that it is ready for."""

    def loaded(self, epoch: int, now_s: float) -> list[MemberAction]:
        """It is ready for an epoch that was proposed."""

    def leave_asked(self, now_s: float) -> list[MemberAction]:
        """It is to leave in order."""

    def prepared(self, step: int, vote: int, now_s: float) -> list[MemberAction]:
        """All sums of a step are here. `vote`: the smallest of all members'."""

    def done(self, step: int, now_s: float) -> list[MemberAction]:
        """The barrier of a step is complete here."""

    def tick(self, now_s: float) -> list[MemberAction]:
        """Time passes."""

def read_journal(records: builtins.bytes) -> tuple[list[MemberAction], int]:
    """The decisions in a coordinator's journal, as actions `write`, and how many of its bytes are whole: a crash may have torn the
    last record. UsageError: damage that no crash leaves."""

class Coordinator:
    """The one that decides which members go on, without I/O."""

    def __init__(
        self,
        *,
        founders: int,
        members_min: int,
        members_max: int,
        heartbeat_s: float,
        join_patience_s: float,
        rejoin_patience_s: float,
        now_s: float,
        history: builtins.bytes,
    ) -> None:
        """Of a job that `founders` begin, and that takes joiners while it has fewer than `members_max`. When fewer than
        `members_min` are left, it waits for joiners for `rejoin_patience_s`, then ends. A member that does not report within
        `heartbeat_s` is left behind, and so is a joiner whose epoch has not begun within `join_patience_s`. `history`: records of
        its journal so far. UsageError: they are damaged."""

    def note(self, member: int, body: builtins.bytes, now_s: float) -> list[MemberAction]:
        """A member says something. RendezvousError: nothing that one says."""

    def unlinked(self, member: int, now_s: float) -> list[MemberAction]:
        """A member's connection has ended, or it cannot be heard."""

    def gone(self, member: int, now_s: float) -> list[MemberAction]:
        """A member's process has ended."""

    def written(self, now_s: float) -> list[MemberAction]:
        """What it wanted to be written is."""

    def tick(self, now_s: float) -> list[MemberAction]:
        """Time passes."""

def evicted(complaints: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """`complaints` are pairs of who cannot hear whom. Who has to go so that nobody complains of anybody who stays, and of how many
    complaints each is the object at that moment: first whoever has most, then the younger."""

class Liveness:
    """Whether the other end of a connection can be heard, without I/O. `now_s`: on a monotonic clock."""

    def __init__(self, *, silence_max_s: float, now_s: float) -> None:
        """It has just been heard."""

    def heard(self, now_s: float) -> None:
        """Something has come from it."""

    def poll(self, now_s: float) -> Literal["ask", "lost"] | None:
        """Time passes: it should be asked for a sign, or has been silent for `silence_max_s` in spite of that. A time in which this
        is not called counts as a second at most."""

class Tls:
    """One side of a TLS 1.3 session without certificates and without I/O; any key of the other side is accepted, so that what makes
    it a peer is a proof that covers `binding`."""

    def __init__(self, *, connects: bool) -> None:
        """The side that connects begins: `send` gives its first message."""

    @property
    def binding(self) -> bytes | None:
        """32 bytes that only the two ends of this session know; None while they shake hands."""

    @property
    def ended(self) -> bool:
        """Whether the other side said that nothing more comes."""

    def receive(self, data: bytes) -> bytes:
        """The plain bytes in what came; then see what there is to `send`. RendezvousError: it is not TLS, or was changed."""

    def send(self, plain: bytes = b"") -> bytes:
        """What goes to the other side: `plain` sealed, once hands are shaken, and what the session itself has to say."""
