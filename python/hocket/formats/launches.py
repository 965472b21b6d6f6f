"""A rank's records as iterations: start of computation, launch and end of each program, end of the step.

Formats that describe a run as computation and collectives keep these. An iteration begins where its step does, or,
without spans of the step, where the previous iteration's programs were done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hocket.artefacts.trace import Kind

if TYPE_CHECKING:
    from hocket.artefacts.trace import Records


@dataclass(frozen=True)
class Launch:
    """One program in one iteration; nanoseconds."""

    program: int
    instance: int
    ready_ns: int
    end_ns: int
    bytes: int


@dataclass(frozen=True)
class Iteration:
    """One iteration; `launches` by `ready_ns`."""

    number: int
    start_ns: int
    end_ns: int
    launches: tuple[Launch, ...]


def iterations(records: Records) -> list[Iteration]:
    """The iterations of a rank's records that launched a program, in order."""
    spans = records[records["kind"] == Kind.INSTANCE]
    steps = records[records["kind"] == Kind.STEP]
    known = {
        number: (start, end)
        for number, start, end in zip(
            *(steps[name].tolist() for name in ("instance", "start_ns", "end_ns")), strict=True
        )
    }
    by_number: dict[int, list[Launch]] = {}
    names = ("program", "instance", "ready_ns", "end_ns", "bytes")
    for values in zip(*(spans[name].tolist() for name in names), strict=True):
        launch = Launch(*values)
        by_number.setdefault(launch.instance, []).append(launch)
    found: list[Iteration] = []
    for number, launches in sorted(by_number.items()):
        launches.sort(key=lambda launch: (launch.ready_ns, launch.program))
        last_ns = max(launch.end_ns for launch in launches)
        before_ns = found[-1].end_ns if found else launches[0].ready_ns
        start_ns, end_ns = known.get(number, (min(before_ns, launches[0].ready_ns), last_ns))
        found.append(Iteration(number, start_ns, max(end_ns, last_ns), tuple(launches)))
    return found


def launch_times(records: Records) -> dict[tuple[int, int], int]:
    """By program and instance: its launch, nanoseconds; without a record of that, when its first message was ready."""
    moments: dict[tuple[int, int], int] = {}
    for kinds in ((Kind.INSTANCE,), (Kind.SEND, Kind.RECV)):
        chosen = records[np.isin(records["kind"], kinds)]
        chosen = chosen[np.argsort(chosen["ready_ns"], kind="stable")]
        columns = (chosen[name].tolist() for name in ("program", "instance", "ready_ns"))
        for program, instance, ready_ns in zip(*columns, strict=True):
            moments.setdefault((program, instance), ready_ns)
    return moments


def without_messages(records: Records) -> tuple[int, int]:
    """Number of launches, and how many of them recorded no message: ranks of one host may reduce in shared memory."""
    launches = records[records["kind"] == Kind.INSTANCE]
    messages = records[np.isin(records["kind"], (Kind.SEND, Kind.RECV))]
    own, sent = (
        each["program"].astype(np.uint64) << np.uint64(32) | each["instance"] for each in (launches, messages)
    )
    return len(own), int((~np.isin(own, sent)).sum())


def messages_of(records: Records) -> dict[tuple[int, int], Records]:
    """The messages of each (program, instance), by start."""
    chosen = records[np.isin(records["kind"], (Kind.SEND, Kind.RECV))]
    if not len(chosen):
        return {}
    ordered = chosen[np.lexsort((chosen["op"], chosen["start_ns"], chosen["instance"], chosen["program"]))]
    change = (np.diff(ordered["program"].astype(np.int64)) != 0) | (
        np.diff(ordered["instance"].astype(np.int64)) != 0
    )
    parts = np.split(ordered, np.flatnonzero(change) + 1)
    return {(int(part["program"][0]), int(part["instance"][0])): part for part in parts}
