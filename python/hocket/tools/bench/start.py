"""CPU time of the ranks of one host for the programs of a job, at its start, against a rank that shares nothing."""

from __future__ import annotations

import dataclasses
import multiprocessing
import secrets
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, cast

from msgspec import Struct

from hocket.artefacts import shipped
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce
from hocket.errors import Error
from hocket.job.rendezvous import Job
from hocket.job.store.server import Server
from hocket.job.store.store import Store
from hocket.planning.buckets import buckets, plan_of
from hocket.policies.two_level import TwoLevelRing
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext, layout
from hocket.settings import Settings
from hocket.training.memory.buckets import of_plan, ordered
from hocket.training.programs import shared

HOST = "127.0.0.1"
TIMEOUT_S = 300.0


class StartCost(Struct, frozen=True, kw_only=True):
    """CPU seconds: of all ranks together, and of one that compiles everything itself. `source`: a plan or a policy."""

    source: str
    world: int
    buckets: int
    all_s: float
    alone_s: float

    @property
    def ratio(self) -> float:
        """Work of all ranks as a multiple of one rank's."""
        return self.all_s / self.alone_s


def measure(source: str, *, world: int = 8, buckets: int = 200, elements: int = 250_000) -> StartCost:
    """Measure a job with an empty cache, and one without a cache; each bucket has another length."""
    sizes = world, buckets, elements
    with tempfile.TemporaryDirectory() as directory:
        together = _start(source, sizes, dataclasses.replace(Settings(), cache=directory))
    without = _start(source, sizes, dataclasses.replace(Settings(), cache_bytes=0))
    return StartCost(
        source=source,
        world=world,
        buckets=buckets,
        all_s=sum(together),
        alone_s=statistics.median(without),
    )


def _start(source: str, sizes: tuple[int, int, int], settings: Settings) -> list[float]:
    """Return CPU seconds of each rank. Ranks are forked from this process, which has imported and read what they need."""
    shipped.tuning()
    context = multiprocessing.get_context("fork")
    secret = secrets.token_bytes(32)
    ends = [context.Pipe() for _ in range(sizes[0])]
    ranks = [
        context.Process(
            target=_rank,
            args=(source, rank, sizes),
            kwargs={"settings": settings, "secret": secret, "end": theirs},
        )
        for rank, (_, theirs) in enumerate(ends)
    ]
    for rank in ranks:
        rank.start()
    # The rank's threads begin after the fork.
    server = Server([HOST], 0, secret)
    try:
        for ours, theirs in ends:
            theirs.close()
            ours.send(server.port)
        return [_received(rank, ours) for rank, (ours, _) in enumerate(ends)]
    finally:
        for rank in ranks:
            rank.join(TIMEOUT_S)
        server.close()


def _received(rank: int, ours: Connection) -> float:
    try:
        if ours.poll(TIMEOUT_S):
            return cast("float", ours.recv())
    except EOFError:
        pass
    raise Error(f"rank {rank} of the benchmark did not start: its output says why")


def _rank(
    source: str,
    rank: int,
    sizes: tuple[int, int, int],
    *,
    settings: Settings,
    secret: bytes,
    end: Connection,
) -> None:
    world, count, elements = sizes
    names = [f"gradient {at}" for at in range(count)]
    gradients = {name: Gradient(name, (elements + at,), "f32") for at, name in enumerate(names)}
    hosts = ("host",) * world
    address = f"{HOST}:{end.recv()}"
    store = Store(address, secret, rank=rank, who=f"rank {rank}", timeout_s=TIMEOUT_S)
    job: Any = SimpleNamespace(rank=rank, world=world, hosts=hosts, store=store, settings=settings)
    began_s = time.process_time()
    _SOURCES[source](gradients, cast("Job", job))
    end.send(time.process_time() - began_s)
    store.leave()


def _of_policy(gradients: dict[str, Gradient], job: Job) -> None:
    policy = TwoLevelRing()
    # One bucket for each gradient.
    context = TraceContext.of(policy, Topology.of(job.hosts), {"fusion_bytes": 0})
    found = layout(policy, ordered(gradients), context)
    shared.of_policy(policy, found.buckets, context, job)


def _of_plan(gradients: dict[str, Gradient], job: Job) -> None:
    route = AllReduce(algorithm="ring")
    made = buckets([[each] for each in gradients.values()], route, range(job.world))
    of_plan(plan_of(made, job.world, label="ring"), gradients, job=job)


_SOURCES = {"plan": _of_plan, "policy": _of_policy}
