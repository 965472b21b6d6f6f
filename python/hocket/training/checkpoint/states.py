"""State of buckets' programs, which goes on from launch to launch: the residual of an error feedback, a factor of PowerSGD.

State with one element per element of its bucket belongs to parameters, wherever they lie: it goes on in other buckets, and in
another job. Other state belongs to a bucket with just these elements, and starts anew in any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.training.memory.buckets import Launch, LoadedBucket, launches_of

Rows = np.ndarray[Any, Any]
"""One row of bytes for each element."""

Ranges = tuple[tuple[str, int, int], ...]
"""Parameters, each with its first element and its end."""


class OfParameter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State `name` of elements `start` to `stop` of a parameter. `shared`: the same on all ranks."""

    name: str
    shared: bool
    parameter: str
    start: int
    stop: int
    rows: Any


class OfBucket(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State `name` of a bucket of these elements."""

    name: str
    shared: bool
    ranges: Ranges
    rows: Any


class _State(NamedTuple):
    name: str
    shared: bool
    rows: Rows
    launch: Launch

    @property
    def by_parameter(self) -> bool:
        return len(self.rows) == self.launch.compiled.elements

    def parts(self) -> Iterator[tuple[str, int, int, Rows]]:
        at = 0
        for parameter, start, stop in self.launch.compiled.ranges:
            yield parameter, start, stop, self.rows[at : at + stop - start]
            at += stop - start


@dataclass
class Held:
    """State of some buckets, by parameter or by bucket."""

    parameters: list[OfParameter] = field(default_factory=list)
    buckets: list[OfBucket] = field(default_factory=list)

    def shared_only(self) -> Held:
        """Return the state without this rank's own part."""
        return Held(
            [each for each in self.parameters if each.shared], [each for each in self.buckets if each.shared]
        )

    def digest(self) -> str:
        """Return a digest of the state that all ranks have in common."""
        found = hashlib.blake2b(digest_size=16)
        for parameter in self.shared_only().parameters:
            of = (parameter.name, parameter.parameter, parameter.start, parameter.stop)
            found.update(repr(of).encode() + np.ascontiguousarray(parameter.rows).tobytes())
        for bucket in self.shared_only().buckets:
            found.update(repr((bucket.name, bucket.ranges)).encode())
            found.update(np.ascontiguousarray(bucket.rows).tobytes())
        return found.hexdigest()


def held(buckets: Sequence[LoadedBucket], engine: _native.Engine, rank: int) -> Held:
    """Return the buckets' state as it is in memory, without a copy: none of their programs may run."""
    found = Held()
    for each in _states(buckets, engine, rank):
        if each.by_parameter:
            found.parameters += [
                OfParameter(
                    name=each.name, shared=each.shared, parameter=name, start=start, stop=stop, rows=rows
                )
                for name, start, stop, rows in each.parts()
            ]
        else:
            ranges = each.launch.compiled.ranges
            found.buckets.append(OfBucket(name=each.name, shared=each.shared, ranges=ranges, rows=each.rows))
    return found


def put(before: Held, buckets: Sequence[LoadedBucket], engine: _native.Engine, rank: int) -> list[str]:
    """Restore held state into these buckets; return the state that starts anew, in words."""
    of_parameters: dict[tuple[str, str], list[OfParameter]] = {}
    for each in before.parameters:
        of_parameters.setdefault((each.name, each.parameter), []).append(each)
    of_buckets = {(each.name, each.ranges): each.rows for each in before.buckets}
    anew = []
    for state in _states(buckets, engine, rank):
        if not state.by_parameter:
            known = of_buckets.get((state.name, state.launch.compiled.ranges))
            if known is not None and known.shape == state.rows.shape:
                state.rows[:] = known
            else:
                anew.append(f"`{state.name}` of bucket {state.launch.number}")
            continue
        for parameter, start, stop, rows in state.parts():
            filled = 0
            for each in of_parameters.get((state.name, parameter), []):
                first, last = max(start, each.start), min(stop, each.stop)
                if first < last and each.rows.shape[1:] == rows.shape[1:]:
                    rows[first - start : last - start] = each.rows[first - each.start : last - each.start]
                    filled += last - first
            if filled < stop - start:
                anew.append(f"`{state.name}` of parameter `{parameter}`")
    return anew


def _states(buckets: Iterable[LoadedBucket], engine: _native.Engine, rank: int) -> Iterator[_State]:
    for launch in launches_of(buckets):
        for name, dtype, elements, kind, _ in launch.compiled.program.buffers(rank):
            window = None
            if kind in ("state", "shared_state") and elements:
                window = engine.state(launch.program, name)
            if window is not None:
                rows = np.frombuffer(memoryview(window), np.uint8).reshape(-1, ITEM_BYTES[dtype])
                yield _State(name, kind == "shared_state", rows, launch)
