"""Recorder of the ops of all ranks' handlers on one bucket, each with the user's file and line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hocket._native import Builder
from hocket.artefacts.algorithms import Algorithm
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.tuning import Tuning
from hocket.policy import algorithms, sources
from hocket.policy.handles import Buffer
from hocket.policy.kernels import Kernel
from hocket.policy.observed import Assumptions, Snapshot, Source
from hocket.policy.topology import Topology

if TYPE_CHECKING:
    from hocket.policy.policy import Value


class Pending(Exception):  # noqa: N818  # a signal, not an error: the trace goes on once all ranks have said their value
    """Raised when a rank calls for a value that depends on all ranks' handlers."""


class Draft:
    """A program of all ranks under construction, and the facts that its handlers may use."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        agreed: Mapping[str, Value],
        snapshot: Snapshot,
        *,
        negotiated: Sequence[float | Source],
        tuning: Tuning,
    ) -> None:
        """Begin a draft. `negotiated`: results of earlier attempts, in the order of the calls.

        `tuning` decides the algorithm under `auto`.
        """
        self.builder = Builder(name, topology.world)
        self.topology = topology
        self.agreed = agreed
        self.assumptions = Assumptions(snapshot)
        self.negotiated = negotiated
        self._tuning = tuning
        self._chosen: dict[tuple[str, tuple[int, ...], int], Algorithm] = {}
        self.knows_lengths = False
        """True if a handler read the length of a buffer. If none did, all do the same for buckets of other lengths."""
        self.requests: dict[int, tuple[object, str, str]] = {}
        """Value, way and place of the first negotiation without a result, by rank."""
        self.kernels: dict[str, Kernel] = {}
        """User's kernels by name."""
        self.libraries: set[str] = set()
        """Libraries that execute collectives."""
        self.starts: dict[str, tuple[int, int]] = {}
        """State buffers that start as a slice of the bucket, by name: (start, stop)."""
        self._sends: dict[tuple[int, int], int] = {}
        self._receives: dict[tuple[int, int], int] = {}

    def choose(self, what: str, group: Sequence[int], buffer: Buffer) -> Algorithm:
        """Choose the algorithm of a collective under `auto`, once for all ranks."""
        _, start, stop = buffer.place
        key = (what, tuple(group), (stop - start) * ITEM_BYTES[buffer.dtype])
        if key not in self._chosen:
            self._chosen[key] = algorithms.choose(*key, self.topology, self._tuning)
        return self._chosen[key]

    def would_choose(self, before_bytes: int, size_bytes: int) -> bool:
        """Return whether all choices stay the same when buffers of `before_bytes` have `size_bytes` instead."""
        return all(
            algorithms.choose(what, group, size_bytes, self.topology, self._tuning) == chosen
            for (what, group, held_bytes), chosen in self._chosen.items()
            if held_bytes == before_bytes
        )

    def next_send(self, source: int, destination: int) -> int:
        """Return the sender's tag of the next message from one rank to another."""
        tag = self._sends.get((source, destination), 0)
        self._sends[source, destination] = tag + 1
        return tag

    def next_receive(self, source: int, destination: int) -> int:
        """Return the receiver's tag: the k-th receive meets the k-th send."""
        tag = self._receives.get((source, destination), 0)
        self._receives[source, destination] = tag + 1
        return tag


class Recorder:
    """One rank's part of a draft."""

    def __init__(self, draft: Draft, rank: int) -> None:
        """Begin without ops."""
        self.draft = draft
        self.rank = rank
        self.negotiations = 0
        self._scratch = 0
        self._states: dict[str, Buffer] = {}

    def bound(self, name: str, elements: int, dtype: str) -> Buffer:
        """Declare a buffer that exists when the program is loaded."""
        return self._declare(name, elements, dtype, "bound")

    def alloc(self, elements: int, dtype: str) -> Buffer:
        """Declare a scratch buffer with undefined elements."""
        self._scratch += 1
        return self._declare(f"t{self._scratch}", elements, dtype, "scratch")

    def state(self, name: str, elements: int, dtype: str, shared: bool, starts_as: Buffer | None) -> Buffer:
        """Declare a buffer that persists from step to step: initially zero, or a slice of the bucket."""
        kind = "shared_state" if shared else "state"
        known = self._states.get(name)
        if known is None:
            known = self._states[name] = self._declare(name, elements, dtype, kind)
            if starts_as is not None:
                self.draft.starts[name] = starts_as.place[1:]
        if known.elements != elements or known.dtype != dtype:
            raise sources.refusal(
                f"state `{name}` is {known.elements} {known.dtype}, asked for as {elements} {dtype}"
            )
        return known

    def _declare(self, name: str, elements: int, dtype: str, kind: str) -> Buffer:
        number = self.draft.builder.buffer(self.rank, name, dtype, elements, kind)
        return Buffer(self, number, 0, elements, dtype)

    def check(self, *buffers: object) -> None:
        """Raise unless all are buffers of this rank's open trace."""
        self.draft.assumptions.check_open()
        for buffer in buffers:
            if not isinstance(buffer, Buffer):
                raise sources.refusal(
                    f"expects a buffer, got {type(buffer).__name__}\n"
                    "hint: handlers work on what `cx` gives them; constants go into `cx.scale`, `cx.fill` or a kernel"
                )
            if not buffer.owned_by(self):
                raise sources.refusal(
                    "this buffer is of another rank or another trace\n"
                    "hint: keep nothing between calls of a handler; `cx.state` keeps elements from step to step"
                )

    def same_length(self, *buffers: Buffer) -> None:
        """Raise unless all have the same length."""
        if len({each.elements for each in buffers}) > 1:
            lengths = " and ".join(str(each.elements) for each in buffers)
            raise sources.refusal(f"buffers of {lengths} elements do not go together")

    def peer(self, rank: object) -> int:
        """Check a rank to exchange messages with."""
        if not isinstance(rank, int) or not 0 <= rank < self.draft.topology.world or rank == self.rank:
            raise sources.refusal(
                f"rank {self.rank} of {self.draft.topology.world} exchanges nothing with rank {rank!r}"
            )
        return rank
