"""The program that `hocket probe` runs on every host: `python -m hocket.tools.probe.agent [ORDER]`, as ranks of a job.

The first rank of each host measures for its host; the others only count as slots. ORDER is JSON: the options, and the number of
finished steps in the job's store. Rank 0 prints events as JSON, the last of which has the cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import msgspec

from hocket import typed
from hocket.artefacts.cluster import Cluster
from hocket.errors import Error
from hocket.job import rendezvous
from hocket.job.store.store import Store
from hocket.tools.probe.network import probe
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.probe.sampled import ROW_SHARE
from hocket.tools.probe.steps import Step
from hocket.tools.probe.trains import TRAINS_BYTES

STEP_TIMEOUT_S = 20.0
"""Longest wait for the other hosts at one step, beyond the measurement itself: more than all deadlines together."""

LINE_BYTES = 1 << 15
"""Size of a piece of an event: half of what the launcher passes on as one line."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's options: `saved` finished steps are in the store, under `saved_key`."""

    options: ProbeOptions = ProbeOptions()
    saved: int = 0


def saved_key(number: int) -> str:
    """The store's key of a finished step."""
    return f"probe/saved/{number}"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Progress, a note for people, a finished step, or the result."""

    done: int
    total: int
    what: str
    cluster: Cluster | None = None
    note: str = ""
    step: Step | None = None


@dataclass
class _Hosts:
    """The hosts of a job: `rank` is this host's place among them, `world` their number."""

    store: Store
    rank: int
    world: int
    timeout_s: float

    def gather(self, name: str, value: Any) -> list[Any]:
        return self.store.gather(f"probe/{name}", self.rank, self.world, value, self.timeout_s)


@dataclass
class _Saved(Sequence[Step]):
    """Finished steps, fetched from the store on access."""

    store: Store
    steps: int

    def __len__(self) -> int:
        return self.steps

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Step]: ...
    def __getitem__(self, at: int | slice) -> Step | Sequence[Step]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(self.steps))]
        return typed.of_builtins(self.store.get(saved_key(at), STEP_TIMEOUT_S), Step)


def run_agent(order: Order) -> None:
    """Take part in the probe of the job that the environment describes."""
    with rendezvous.join() as job:
        hosts = list(dict.fromkeys(job.hosts))
        if job.hosts.index(job.host) != job.rank:
            return
        measuring_s = (
            2 + len(hosts) * ROW_SHARE
        ) * order.options.pair_s + TRAINS_BYTES * 8 / order.options.limit_bit_per_s
        timeout_s = STEP_TIMEOUT_S + measuring_s
        cluster = probe(
            _Hosts(job.store, hosts.index(job.host), len(hosts), timeout_s),
            name=job.host,
            address=job.bind,
            slots=job.hosts.count(job.host),
            options=order.options,
            saved=_Saved(job.store, order.saved),
            keep=_keep if job.rank == 0 else None,
            progress=_report if job.rank == 0 else None,
            note=_note if job.rank == 0 else None,
        )
        if job.rank == 0:
            _print(Event(done=1, total=1, what="done", cluster=cluster))


def _report(done: int, total: int, what: str) -> None:
    _print(Event(done=done, total=total, what=what))


def _note(what: str) -> None:
    _print(Event(done=1, total=1, what="done", note=what))


def _keep(step: Step) -> None:
    _print(Event(done=0, total=1, what="step", step=step))


def lines_of(event: Event) -> bytes:
    """An event as printed: in lines short enough for any launcher to pass on whole, all but the last marked with `+`.

    >>> lines_of(Event(done=1, total=2, what="x"))
    b'={"done":1,"total":2,"what":"x","cluster":null,"note":"","step":null}\\n'
    """
    data = msgspec.json.encode(event)
    parts = [data[at : at + LINE_BYTES] for at in range(0, len(data), LINE_BYTES)]
    return b"".join(b"+" + part + b"\n" for part in parts[:-1]) + b"=" + parts[-1] + b"\n"


def _print(event: Event) -> None:
    sys.stdout.buffer.write(lines_of(event))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        run_agent(typed.of_json(sys.argv[1], Order) if len(sys.argv) > 1 else Order())
    except Error as error:
        sys.exit(f"error: {error}")
