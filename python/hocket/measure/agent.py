"""What `hocket probe` runs on every host: `python -m hocket.measure.agent`, as ranks of a job.

The first rank of each host measures for it; the others only count as its slots.
Rank 0 reports through the store: events under `probe/event-I`, in order, the last with the cluster.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.errors import Error
from hocket.launch import rendezvous
from hocket.launch.store import Store
from hocket.measure.network import probe

STEP_TIMEOUT_S = 20.0
"""Longest wait for the other hosts at one step: more than the longest measurement and its own deadlines."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Progress, or the result."""

    done: int
    total: int
    what: str
    cluster: Cluster | None = None


@dataclass
class _Hosts:
    """The hosts of a job: `rank` is this host's place among them, `world` how many they are."""

    store: Store
    rank: int
    world: int

    def gather(self, name: str, value: Any) -> list[Any]:
        return self.store.gather(f"probe/{name}", self.rank, self.world, value, STEP_TIMEOUT_S)


@dataclass
class _Reporter:
    """Rank 0's events in the store."""

    store: Store
    sent: int = 0

    def progress(self, done: int, total: int, what: str) -> None:
        self.send(Event(done=done, total=total, what=what))

    def send(self, event: Event) -> None:
        self.store.set(f"probe/event-{self.sent}", msgspec.to_builtins(event))
        self.sent += 1


def run_agent() -> None:
    """Take part in the probe of the job that the environment describes."""
    with rendezvous.join() as job:
        places = job.store.gather("probe/place", job.rank, job.world, job.identity, STEP_TIMEOUT_S)
        hosts = list(dict.fromkeys(places))
        if places.index(job.identity) != job.rank:
            return
        reporter = _Reporter(job.store)
        cluster = probe(
            _Hosts(job.store, hosts.index(job.identity), len(hosts)),
            name=job.host,
            address=job.bind,
            slots=places.count(job.identity),
            progress=reporter.progress if job.rank == 0 else None,
        )
        if job.rank == 0:
            reporter.send(Event(done=1, total=1, what="done", cluster=cluster))


if __name__ == "__main__":
    try:
        run_agent()
    except Error as error:
        sys.exit(f"error: {error}")
