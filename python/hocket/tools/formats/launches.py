"""Records of a rank as iterations: start of computation, launch and end of each program, end of the step.

Formats that describe a run as computation and collectives keep these. An iteration begins where its step does, or, without spans of
the step, where the previous iteration's programs were done. A launch belongs to the iteration in which it was launched: the number
of a program's launch says nothing where gradients of several iterations travel together or another epoch has loaded other programs.
It may end iterations later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hocket.artefacts.trace import Kind

if TYPE_CHECKING:
    from hocket.artefacts.trace import Records


@dataclass(frozen=True)
class Launch:
    """Launch of one program in one iteration; nanoseconds."""

    program: int
    instance: int
    ready_ns: int
    end_ns: int
    bytes: int


@dataclass(frozen=True)
class Iteration:
    """Iteration; `launches` by `ready_ns`."""

    number: int
    start_ns: int
    end_ns: int
    launches: tuple[Launch, ...]


def iterations(records: Records) -> list[Iteration]:
    """Return the iterations of a rank's records that launched a program, in order."""
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
    columns = (spans[name].tolist() for name in names)
    for number, values in zip(_steps_at(records, spans).tolist(), zip(*columns, strict=True), strict=True):
        by_number.setdefault(number, []).append(Launch(*values))
    found: list[Iteration] = []
    for number, launches in sorted(by_number.items()):
        launches.sort(key=lambda launch: (launch.ready_ns, launch.program))
        last_ns = max(launch.end_ns for launch in launches)
        before_ns = found[-1].end_ns if found else launches[0].ready_ns
        start_ns, end_ns = known.get(number, (min(before_ns, launches[0].ready_ns), last_ns))
        # A late launch ends after its step, which does not wait for the launch.
        ends_ns = end_ns if number in known else max(end_ns, last_ns)
        found.append(Iteration(number, start_ns, ends_ns, tuple(launches)))
    return found


def numbers(records: Records) -> npt.NDArray[np.int64]:
    """Return the iteration of each record. Messages and ops are of the one in which their program was launched."""
    found = records["instance"].astype(np.int64)
    steps = records["kind"] == Kind.STEP
    if not steps.any():
        return found
    launches = records[records["kind"] == Kind.INSTANCE]
    keys, first = np.unique(_keys(launches), return_index=True)
    of_launch = _steps_at(records, launches)[first]
    parts = records["kind"] < Kind.STEP
    own = _keys(records[parts])
    at = np.minimum(np.searchsorted(keys, own), max(len(keys) - 1, 0))
    known = (keys[at] == own) if len(keys) else np.zeros(len(own), bool)
    of_part = _steps_at(records, records[parts])
    of_part[known] = of_launch[at[known]]
    found[parts] = of_part
    return found


def _keys(records: Records) -> npt.NDArray[np.uint64]:
    found: npt.NDArray[np.uint64] = (
        records["program"].astype(np.uint64) << np.uint64(32) | records["instance"]
    )
    return found


def _steps_at(records: Records, launches: Records) -> npt.NDArray[np.int64]:
    """Return the step in which each launch was ready, or the first one after which it was; without steps, its own number."""
    steps = records[records["kind"] == Kind.STEP]
    if not len(steps):
        return launches["instance"].astype(np.int64)
    steps = steps[np.argsort(steps["start_ns"], kind="stable")]
    at = np.searchsorted(steps["start_ns"], launches["ready_ns"], side="right") - 1
    found: npt.NDArray[np.int64] = steps["instance"].astype(np.int64)[np.maximum(at, 0)]
    return found


def launch_times(records: Records) -> dict[tuple[int, int], int]:
    """Return, by program and instance, its launch in nanoseconds; without a launch's record, when its first message was ready."""
    moments: dict[tuple[int, int], int] = {}
    for kinds in ((Kind.INSTANCE,), (Kind.SEND, Kind.RECV)):
        chosen = records[np.isin(records["kind"], kinds)]
        chosen = chosen[np.argsort(chosen["ready_ns"], kind="stable")]
        columns = (chosen[name].tolist() for name in ("program", "instance", "ready_ns"))
        for program, instance, ready_ns in zip(*columns, strict=True):
            moments.setdefault((program, instance), ready_ns)
    return moments


def without_messages(records: Records) -> tuple[int, int]:
    """Return the number of launches, and of those without recorded messages: ranks of one host may reduce in shared memory."""
    launches = records[records["kind"] == Kind.INSTANCE]
    messages = records[np.isin(records["kind"], (Kind.SEND, Kind.RECV))]
    own, sent = _keys(launches), _keys(messages)
    return len(own), int((~np.isin(own, sent)).sum())


def messages_of(records: Records) -> dict[tuple[int, int], Records]:
    """Return the messages of each (program, instance), by start."""
    chosen = records[np.isin(records["kind"], (Kind.SEND, Kind.RECV))]
    if not len(chosen):
        return {}
    ordered = chosen[np.lexsort((chosen["op"], chosen["start_ns"], chosen["instance"], chosen["program"]))]
    change = (np.diff(ordered["program"].astype(np.int64)) != 0) | (
        np.diff(ordered["instance"].astype(np.int64)) != 0
    )
    parts = np.split(ordered, np.flatnonzero(change) + 1)
    return {(int(part["program"][0]), int(part["instance"][0])): part for part in parts}
