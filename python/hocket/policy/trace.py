"""Tracing: runs a policy's handlers for every rank, and makes buckets and a verified program for each.

There are two steps: `layout` runs `on_tensor_ready` to learn which gradients are enqueued, and puts them into buckets;
`Programs` traces both handlers for each bucket. The results are the same on every rank, since each rank runs the
handlers of all ranks.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hocket._native import PassOptions, Program, Proofs
from hocket.artefacts import shipped
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.tuning import Tuning
from hocket.errors import Error, PolicyError, ProgramError
from hocket.policy import declared, handles, sources
from hocket.policy.bucketing import Bucket, Gradient, bucketed
from hocket.policy.context import Context, settle
from hocket.policy.kernels import Kernel
from hocket.policy.observed import Assumptions, Guard, Snapshot, Source
from hocket.policy.policy import DEFAULTS, Policy, Value
from hocket.policy.recorder import Draft, Pending, Recorder
from hocket.policy.topology import Topology

CHUNK_BYTES_MIN = 64
"""Least size of a chunk: smaller chunks make programs with too many ops to run."""

BUCKET = 0
"""Number of the bucket's own buffer on each rank."""

NEGOTIATIONS_MAX = 100
"""Limit of negotiations in one handler; more mean an endless loop."""


def frozen(policy: Policy, assumptions: Assumptions) -> Policy:
    """Return a policy with the same attributes, under a class that refuses to set one after a statistic was used."""
    kind = type(policy)

    def refuse(name: str) -> None:
        if assumptions.looked:
            raise sources.refusal(
                f"{kind.__name__} keeps `{name}` after it looked at statistics: nothing would guard it later\n"
                "hint: ask again in each handler; what stays is an agreed value (`cx.agreed`) or `cx.state`"
            )

    class Frozen(kind):  # type: ignore[valid-type,misc]  # the user's own
        def __setattr__(self, name: str, value: object) -> None:
            refuse(name)
            super().__setattr__(name, value)

        def __delattr__(self, name: str) -> None:
            refuse(name)
            super().__delattr__(name)

    Frozen.__name__, Frozen.__qualname__ = kind.__name__, kind.__qualname__
    made: Policy = object.__new__(Frozen)
    made.__dict__ = policy.__dict__
    return made


@dataclass(frozen=True)
class TraceContext:
    """Facts that handlers may use: topology, agreed values, and statistics at the start of the epoch."""

    topology: Topology
    agreed: Mapping[str, Value] = field(default_factory=dict)
    snapshot: Snapshot = ()
    tuning: Tuning = field(default_factory=shipped.tuning)
    """Tuning that decides the algorithm under `auto`."""

    @classmethod
    def of(
        cls,
        policy: Policy,
        topology: Topology,
        agreed: Mapping[str, Value] | None = None,
        snapshot: Snapshot = (),
        tuning: Tuning | None = None,
    ) -> TraceContext:
        """Make a context; the defaults are the policy's own parameters and the tuning that comes with Hocket.

        PolicyError if one of the policy's declarations is invalid.
        """
        declared.check(policy)
        values = {**DEFAULTS, **policy.parameters, **(agreed or {})}
        return cls(
            topology, values, snapshot or [{} for _ in range(topology.world)], tuning or shipped.tuning()
        )

    def number(self, name: str) -> int:
        """An agreed whole number."""
        value = self.agreed[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise PolicyError(f"the agreed value `{name}` is {value!r}: it is a whole number from 0 on")
        return value


@dataclass(frozen=True)
class Trace:
    """The recorded ops of all ranks' handlers on one bucket."""

    draft: Draft
    program: Program

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Assumptions of the trace."""
        return tuple(self.draft.assumptions.guards)


@dataclass(frozen=True)
class Traced:
    """A program, the assumptions of its trace, and the user's kernels in it."""

    program: Program
    guards: tuple[Guard, ...]
    kernels: Mapping[str, Kernel]
    starts: Mapping[str, tuple[int, int]]
    """State buffers that start as a slice of the bucket."""
    by_gradient: bool = False
    """True if `on_tensor_ready` works on each gradient, which may begin as soon as that is there."""


@dataclass(frozen=True)
class Layout:
    """Buckets, and the assumptions under which `on_tensor_ready` enqueued gradients."""

    buckets: tuple[Bucket, ...]
    guards: tuple[Guard, ...]


def layout(policy: Policy, gradients: Sequence[Gradient], context: TraceContext) -> Layout:
    """Buckets of the gradients that `on_tensor_ready` enqueues, in the order of backward.

    Raises PolicyError when ranks enqueue differently: buckets are the same on all.
    """
    ordered = sorted(gradients, key=lambda each: each.backward_order)
    priorities: dict[str, int] = {}
    guards: list[Guard] = []
    for gradient in ordered:
        if is_plain(policy):
            priorities[gradient.name] = gradient.backward_order
            continue
        enqueued, taken = _enqueued(policy, gradient, context)
        guards += taken
        other = next((rank for rank, each in enumerate(enqueued) if each != enqueued[0]), None)
        if other is not None:
            raise PolicyError(
                f"{_handler(policy, 'on_tensor_ready')}: rank 0 and rank {other} enqueue `{gradient.name}` differently\n"
                "hint: buckets are the same on all ranks: decide by agreed values or orders"
            )
        if enqueued[0]:
            priorities[gradient.name] = enqueued[0][0]
    queued = [gradient for gradient in ordered if gradient.name in priorities]
    grouped = bucketed(
        queued, context.number("fusion_bytes"), first_bytes=context.number("first_fusion_bytes")
    )
    buckets = tuple(Bucket(tuple(each), min(priorities[one.name] for one in each)) for each in grouped)
    return Layout(buckets, tuple(guards))


def is_plain(policy: Policy) -> bool:
    """Return whether `on_tensor_ready` is the default, which enqueues and records nothing."""
    return type(policy).on_tensor_ready is Policy.on_tensor_ready


class Programs:
    """The programs of a policy's buckets. Work that is equal for several buckets is done once.

    If no handler read a bucket's length, its trace is reused for buckets of other lengths. Programs that differ only in
    lengths share one proof (`crates/program/src/verify/alike.rs`).
    """

    def __init__(self, policy: Policy, context: TraceContext) -> None:
        """Begin without programs."""
        self._policy, self._context = policy, context
        self._proofs = Proofs()
        self._known: dict[tuple[str, int], Trace] = {}
        """Traces by element type and number of elements."""
        self._general: dict[str, tuple[int, Trace]] = {}
        """Elements and trace of a bucket whose length no handler read, by element type."""

    def program(self, bucket: Bucket, *, name: str = "bucket") -> Traced:
        """Trace, compile and verify the program of one bucket.

        Raises PolicyError with file and line if tracing fails, if a handler raises (with its traceback), or if the
        program would lose, double, race or deadlock.
        """
        return self.compiled(self.trace(bucket, name=name))

    def trace(self, bucket: Bucket, *, name: str = "bucket") -> Trace:
        """Trace one bucket; the same object for buckets that do not differ."""
        # A handler of gradients may use names and orders; a handler of buckets knows only type and length.
        if not is_plain(self._policy):
            return _trace(self._policy, bucket, self._context, name)
        signature = (bucket.dtype, bucket.elements)
        if signature not in self._known:
            self._known[signature] = self._resized(bucket, name) or _trace(
                self._policy, bucket, self._context, name
            )
        trace = self._known[signature]
        if not trace.draft.knows_lengths:
            self._general.setdefault(bucket.dtype, (bucket.elements, trace))
        return trace

    def _resized(self, bucket: Bucket, name: str) -> Trace | None:
        if bucket.dtype not in self._general:
            return None
        elements, trace = self._general[bucket.dtype]
        item_bytes = ITEM_BYTES[bucket.dtype]
        if not trace.draft.would_choose(elements * item_bytes, bucket.elements * item_bytes):
            return None
        program = trace.program.resized(name, BUCKET, bucket.elements)
        return None if program is None else Trace(trace.draft, program)

    def compiled(self, trace: Trace) -> Traced:
        """Compile and verify the program of a trace."""
        draft = trace.draft
        try:
            program = trace.program.compiled(pass_options(self._context))
            self._proofs.verify(program)
        except ProgramError as error:
            # If a pass refuses a program, the verifier often finds the cause, and names the user's lines.
            findings = error.findings or tuple(trace.program.findings())
            why = str(error) if error.findings else "\n".join(map(str, findings)) or str(error)
            raise PolicyError(
                f"{_handler(self._policy, 'on_buffer_ready')} is refused: {why}", findings=findings
            ) from None
        by_gradient = not is_plain(self._policy)
        return Traced(program, trace.guards, dict(draft.kernels), dict(draft.starts), by_gradient)


def bucket_program(policy: Policy, bucket: Bucket, context: TraceContext, *, name: str = "bucket") -> Traced:
    """Make the program of one bucket; see `Programs.program`."""
    return Programs(policy, context).program(bucket, name=name)


def stages(
    policy: Policy, bucket: Bucket, context: TraceContext, *, name: str = "bucket"
) -> dict[str, Program]:
    """The program after each pass, by the pass's name, in order; not verified."""
    traced = _trace(policy, bucket, context, name).program
    return {"trace": traced, **traced.stages(pass_options(context))}


def pass_options(context: TraceContext) -> PassOptions:
    """Options of the passes.

    Handlers name physical ranks and convert explicitly, so there is no order and no codec.
    """
    return PassOptions(chunk_bytes=max(CHUNK_BYTES_MIN, context.number("chunk_bytes")))


def _enqueued(
    policy: Policy, gradient: Gradient, context: TraceContext
) -> tuple[list[list[int]], list[Guard]]:
    """Priorities by rank with which its handler enqueues a gradient, and the guards; discards the ops."""
    found: dict[int, list[int]] = {}

    def run(handlers: Policy, draft: Draft, rank: int) -> None:
        recorder = Recorder(draft, rank)
        place = recorder.bound("bucket", gradient.elements, gradient.dtype).place
        mine = found[rank] = []

        def enqueue(_grad: handles.Gradient, priority: int | None) -> None:
            mine.append(gradient.backward_order if priority is None else int(priority))

        handlers.on_tensor_ready(Context(recorder, enqueue), _gradient(recorder, gradient, place))

    draft = _negotiated(policy, "on_tensor_ready", context, name="layout", run_rank=run)
    most = max(len(each) for each in found.values())
    if most > 1:
        raise PolicyError(f"{_handler(policy, 'on_tensor_ready')}: enqueues `{gradient.name}` {most} times")
    return [found[rank] for rank in sorted(found)], draft.assumptions.guards


def _trace(policy: Policy, bucket: Bucket, context: TraceContext, name: str) -> Trace:
    def run_rank(handlers: Policy, draft: Draft, rank: int) -> None:
        recorder = Recorder(draft, rank)
        buffer = recorder.bound("bucket", bucket.elements, bucket.dtype)

        def record_non_finite(place: tuple[int, int, int]) -> None:
            if bucket.dtype in ("f64", "f32", "f16", "bf16") and place[1] < place[2]:
                draft.builder.record_non_finite(rank, place, source=None)

        if is_plain(policy):
            record_non_finite(buffer.place)
        start = 0
        for gradient in () if is_plain(policy) else bucket.gradients:
            place = (buffer.place[0], start, start + gradient.elements)
            start += gradient.elements
            # Of the whole bucket, it would keep what writes to this gradient until the others are there.
            record_non_finite(place)
            handlers.on_tensor_ready(
                Context(recorder, lambda _grad, _priority: None), _gradient(recorder, gradient, place)
            )
        handlers.on_buffer_ready(Context(recorder, None), buffer)

    ranks = list(context.topology.ranks)
    draft = _negotiated(policy, "on_buffer_ready", context, name=name, run_rank=run_rank)
    match policy.contract:
        case "mean":
            draft.builder.ensure_all_reduce(BUCKET, ranks, "sum", 1.0 / len(ranks))
        case "same":
            draft.builder.ensure_same(BUCKET, ranks)
        case "none":
            pass
        case other:
            raise PolicyError(f"{type(policy).__name__}.contract is {other!r}\nhint: mean, same or none")
    return Trace(draft, draft.builder.finish())


def _negotiated(
    policy: Policy,
    handler: str,
    context: TraceContext,
    *,
    name: str,
    run_rank: Callable[[Policy, Draft, int], None],
) -> Draft:
    """Run a handler for all ranks, from the start again after each negotiation, until none is open."""
    ranks = range(context.topology.world)
    results: list[float | Source] = []
    while True:
        draft = Draft(
            name,
            context.topology,
            context.agreed,
            context.snapshot,
            negotiated=results,
            tuning=context.tuning,
        )
        handlers = frozen(policy, draft.assumptions)
        for rank in ranks:
            try:
                run_rank(handlers, draft, rank)
            except Pending:
                continue
            except Error:
                raise
            except Exception as error:
                text = "".join(traceback.format_exception(error)).rstrip()
                raise PolicyError(
                    f"{_handler(policy, handler)} raised for rank {rank} of {context.topology.world}:\n{text}"
                ) from error
        draft.assumptions.closed = True
        if not draft.requests:
            return draft
        if len(draft.requests) < len(ranks):
            missing = next(rank for rank in ranks if rank not in draft.requests)
            place = next(iter(draft.requests.values()))[2]
            raise PolicyError(
                f"{place}: rank {missing} does not negotiate here\nhint: all ranks negotiate in one order"
            )
        results.append(settle([draft.requests[rank] for rank in ranks]))
        if len(results) > NEGOTIATIONS_MAX:
            raise PolicyError(f"{_handler(policy, handler)} negotiates more than {NEGOTIATIONS_MAX} times")


def _gradient(recorder: Recorder, gradient: Gradient, place: tuple[int, int, int]) -> handles.Gradient:
    return handles.Gradient(
        recorder,
        place,
        gradient.dtype,
        name=gradient.name,
        shape=gradient.shape,
        backward_order=gradient.backward_order,
        forward_order=gradient.forward_order,
    )


def _handler(policy: Policy, name: str) -> str:
    code = getattr(type(policy), name).__code__
    return f"{type(policy).__name__}.{name} ({code.co_filename}:{code.co_firstlineno})"
