"""What `hocket probe` runs on every host: `python -m hocket.measure.agent`, as ranks of a job.

The first rank of each host measures for it; the others only count as its slots.
Rank 0 prints events, one JSON object a line, the last of which has the cluster.
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
    """Progress, something to know, or the result."""

    done: int
    total: int
    what: str
    cluster: Cluster | None = None
    note: str = ""


@dataclass
class _Hosts:
    """The hosts of a job: `rank` is this host's place among them, `world` how many they are."""

    store: Store
    rank: int
    world: int

    def gather(self, name: str, value: Any) -> list[Any]:
        return self.store.gather(f"probe/{name}", self.rank, self.world, value, STEP_TIMEOUT_S)


def run_agent() -> None:
    """Take part in the probe of the job that the environment describes."""
    with rendezvous.join() as job:
        places = job.store.gather("probe/place", job.rank, job.world, job.identity, STEP_TIMEOUT_S)
        hosts = list(dict.fromkeys(places))
        if places.index(job.identity) != job.rank:
            return
        cluster = probe(
            _Hosts(job.store, hosts.index(job.identity), len(hosts)),
            name=job.host,
            address=job.bind,
            slots=places.count(job.identity),
            progress=_report if job.rank == 0 else None,
            note=_note if job.rank == 0 else None,
        )
        if job.rank == 0:
            _print(Event(done=1, total=1, what="done", cluster=cluster))


def _report(done: int, total: int, what: str) -> None:
    _print(Event(done=done, total=total, what=what))


def _note(what: str) -> None:
    _print(Event(done=1, total=1, what="done", note=what))


def _print(event: Event) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        run_agent()
    except Error as error:
        sys.exit(f"error: {error}")
