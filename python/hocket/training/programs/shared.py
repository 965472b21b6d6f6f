"""Sharing of policies' programs among the ranks of a host: the first rank compiles, the others read from the cache.

Every rank traces one bucket, which exposes a policy that depends on anything but its context. The first rank of each host then
traces all buckets, compiles and verifies them, and writes an entry for each rank of its host to the cache. The other ranks get
digests of these entries through the store, with a digest of all traces, which must be equal on all hosts. A rank that cannot read
its entry compiles for itself and compares the digest. If the entries exist from an earlier run, nothing is compiled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from hocket import typed
from hocket._native import Program
from hocket.errors import PolicyError, ProgramError
from hocket.job.known import cache
from hocket.job.known.cache import Cache
from hocket.job.rendezvous import Job
from hocket.policy.bucketing import Bucket
from hocket.policy.observed import Guard
from hocket.policy.policy import Policy
from hocket.policy.trace import Programs, Trace, TraceContext, is_plain
from hocket.training.memory.buckets import CompiledBucket
from hocket.training.memory.host_programs import ranks_of_host


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Message of a rank to the others: digests of its first trace and of all traces, and the entry of each rank."""

    first: str
    traces: str | None = None
    entries: dict[int, tuple[str, str]] = {}
    """Name in the cache, and digest of the content."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Programs of one rank, and for each bucket the index of its program, and its `starts`."""

    programs: bytes
    buckets: list[tuple[int, dict[str, tuple[int, int]]]]


def of_policy(
    policy: Policy, buckets: Sequence[Bucket], context: TraceContext, job: Job, *, portable: bool = True
) -> tuple[list[CompiledBucket], list[Guard]]:
    """Return the programs of a policy for some buckets, equal on all ranks, and the assumptions of their traces.

    `portable`: no assumption so far is bound to this process. PolicyError if ranks would make different programs.
    """
    programs = Programs(policy, context)
    work = _Work(policy, context, buckets, programs, job)
    first = work.trace(0) if buckets else None
    kept = Cache.of(job.settings)
    alone = not portable or (first is not None and not _portable(first))
    host = ranks_of_host(job)
    made: list[CompiledBucket] | None = None
    refused: PolicyError | None = None
    offer = Offer(first=work.digest([] if first is None else [first]))
    if alone or job.rank == host[0]:
        try:
            made, offer = work.offered(kept, [] if alone else host, offer.first)
        except PolicyError as error:
            # The others find the same fault themselves, instead of reading that this rank is gone.
            refused = error
    offers = [
        typed.of_builtins(each, Offer, strict=False)
        for each in job.store.gather(
            "policy/offer", job.rank, job.world, msgspec.to_builtins(offer), job.settings.timeout_s
        )
    ]
    _agree(policy, offers)
    if refused is not None:
        raise refused
    if made is None:
        made = work.taken(kept, offers[host[0]])
    if made is None:
        traces = work.traces()
        offers[job.rank] = Offer(first=offer.first, traces=work.digest(traces))
        _agree(policy, offers)
        made = work.compiled(traces)
    return made, work.guards()


def alone(
    policy: Policy, buckets: Sequence[Bucket], context: TraceContext, job: Job
) -> tuple[list[CompiledBucket], list[Guard]]:
    """Return the programs and assumptions that this rank makes for itself: where ranks may be lost, none waits for another. They
    have compared their traces when they met."""
    work = _Work(policy, context, buckets, Programs(policy, context), job)
    made = work.compiled(work.traces())
    return made, work.guards()


class _Work:
    """Traces and programs of one epoch's buckets."""

    def __init__(
        self, policy: Policy, context: TraceContext, buckets: Sequence[Bucket], programs: Programs, job: Job
    ) -> None:
        self._policy, self._context, self._buckets = policy, context, buckets
        self._programs, self._job = programs, job
        self._traced: dict[int, Trace] = {}

    def trace(self, at: int) -> Trace:
        if at not in self._traced:
            self._traced[at] = self._programs.trace(self._buckets[at], name=f"bucket.{at}")
        return self._traced[at]

    def traces(self) -> list[Trace]:
        return [self.trace(at) for at in range(len(self._buckets))]

    def compiled(self, traces: list[Trace]) -> list[CompiledBucket]:
        compiled = {
            id(trace): self._programs.compiled(trace)
            for trace in {id(each): each for each in traces}.values()
        }
        buckets_and_traces = zip(self._buckets, traces, strict=True)
        return [CompiledBucket.traced(bucket, compiled[id(trace)]) for bucket, trace in buckets_and_traces]

    def digest(self, traces: list[Trace]) -> str:
        digest = hashlib.sha256(_digest(traces).encode())
        digest.update(msgspec.msgpack.encode([(each.gradients, each.priority) for each in self._buckets]))
        digest.update(str(self._context.number("chunk_bytes")).encode())
        digest.update(repr(self._job.relays()).encode())
        return digest.hexdigest()

    def guards(self) -> list[Guard]:
        taken = [guard for each in self._traced.values() for guard in each.guards]
        # Buckets may share a trace, and its guards.
        return list({id(guard): guard for guard in taken}.values())

    def offered(self, kept: Cache, host: list[int], first: str) -> tuple[list[CompiledBucket], Offer]:
        """Return this rank's buckets, and the offer to the ranks of `host`."""
        traces = self.traces()
        entries: dict[int, tuple[str, str]] = {}
        made = None
        if kept.bytes_max and host and all(map(_portable, traces)):
            made, entries = self._shared(kept, host, traces)
        offer = Offer(first=first, traces=self.digest(traces), entries=entries)
        return self.compiled(traces) if made is None else made, offer

    def _shared(
        self, kept: Cache, host: list[int], traces: list[Trace]
    ) -> tuple[list[CompiledBucket] | None, dict[int, tuple[str, str]]]:
        digest = self.digest(traces).encode()
        names = {rank: cache.key(b"policy", digest, str(rank).encode()) for rank in host}
        contents = {rank: kept.get(name) for rank, name in names.items()}
        made = self._read(contents[self._job.rank])
        if made is None or None in contents.values():
            contents = self._written(host, traces)
            made = self._read(contents[self._job.rank])
        held = kept.put_all(
            {names[rank]: content for rank, content in contents.items() if content is not None}
        )
        entries = {rank: (names[rank], _hash(content or b"")) for rank, content in contents.items()}
        return made, entries if held else {}

    def _written(self, host: list[int], traces: list[Trace]) -> dict[int, bytes | None]:
        """Return the entry of each rank of a host, with the parts of these ranks alone."""
        each_once = {id(trace): trace for trace in traces}
        places = {of: at for at, of in enumerate(each_once)}
        programs = [self._programs.compiled(trace).program for trace in each_once.values()]
        # A part of a program lacks what others pass on.
        if relays := self._job.relays():
            programs = [each.relayed(relays) for each in programs]
        rows = [(places[id(trace)], dict(trace.draft.starts)) for trace in traces]
        parts = zip(host, Program.parts_to_bytes(programs, host), strict=True)
        return {rank: msgspec.msgpack.encode(Entry(own, rows)) for rank, own in parts}

    def taken(self, kept: Cache, offer: Offer) -> list[CompiledBucket] | None:
        """Return the buckets of this rank's entry, if it is the offered one."""
        if self._job.rank not in offer.entries:
            return None
        name, digest = offer.entries[self._job.rank]
        content = kept.get(name)
        return self._read(content) if content is not None and _hash(content) == digest else None

    def _read(self, content: bytes | None) -> list[CompiledBucket] | None:
        if content is None:
            return None
        try:
            entry = typed.of_msgpack(content, Entry)
            programs = Program.parts_from_bytes(entry.programs)
            return [
                CompiledBucket(
                    bucket.gradients,
                    bucket.priority,
                    programs[at],
                    {},
                    starts,
                    by_gradient=not is_plain(self._policy),
                )
                for bucket, (at, starts) in zip(self._buckets, entry.buckets, strict=True)
            ]
        except (msgspec.DecodeError, ProgramError, IndexError, ValueError):
            return None


def _agree(policy: Policy, offers: list[Offer]) -> None:
    """Raise a PolicyError that names a rank whose traces differ from rank 0's, if there is one."""
    traced = next((each.traces for each in offers if each.traces is not None), None)
    for rank, each in enumerate(offers):
        if each.first != offers[0].first or each.traces not in (None, traced):
            raise PolicyError(
                f"{type(policy).__name__} makes other programs on rank {rank} than on rank 0\n"
                "hint: handlers are run for all ranks: they may depend on `cx` alone, not on files, time or chance"
            )


def _portable(trace: Trace) -> bool:
    """Return whether other processes can use the trace: guards and kernels are this process's, all ranks open libraries."""
    return not (trace.guards or trace.draft.kernels or trace.draft.libraries)


def _digest(traces: Sequence[Trace]) -> str:
    """Return a digest of traces; a repeated trace is hashed once."""
    known: dict[int, bytes] = {}
    digest = hashlib.sha256()
    for trace in traces:
        if id(trace) not in known:
            known[id(trace)] = hashlib.sha256(trace.program.to_bytes()).digest()
        digest.update(known[id(trace)] + repr(sorted(trace.draft.starts.items())).encode())
    return digest.hexdigest()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
