"""Writes down what the handlers of all ranks do with one bucket, op by op, each with the user's file and line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hocket._native import Builder
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
    """A rank asked for a value that depends on all ranks' handlers."""


class Weave:
    """One program of all ranks in the making, and what its handlers may ask."""

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
        """`negotiated`: results of earlier attempts, in the order of the calls. `tuning`: what `auto` goes by."""
        self.builder = Builder(name, topology.world)
        self.topology = topology
        self.agreed = agreed
        self.assumptions = Assumptions(snapshot)
        self.negotiated = negotiated
        self._tuning = tuning
        self._chosen: dict[tuple[str, tuple[int, ...], int], tuple[str, tuple[int, ...]]] = {}
        self.knows_lengths = False
        """Whether a handler was told how long a buffer is. Where none was, it would do the same with buckets of other lengths."""
        self.requests: dict[int, tuple[object, str, str]] = {}
        """By rank: value, way and place of the first negotiation without a result."""
        self.kernels: dict[str, Kernel] = {}
        """The user's, by name."""
        self.libraries: set[str] = set()
        """That execute collectives."""
        self.starts: dict[str, tuple[int, int]] = {}
        """State that starts as a slice of the bucket, by name: start, stop."""
        self._sends: dict[tuple[int, int], int] = {}
        self._receives: dict[tuple[int, int], int] = {}

    def choose(self, what: str, group: Sequence[int], buffer: Buffer) -> tuple[str, tuple[int, ...]]:
        """The algorithm of a collective that is left to us, and its numbers: decided once for all ranks."""
        _, start, stop = buffer.place
        key = (what, tuple(group), (stop - start) * ITEM_BYTES[buffer.dtype])
        if key not in self._chosen:
            self._chosen[key] = algorithms.choose(*key, self.topology, self._tuning)
        return self._chosen[key]

    def would_choose(self, before_bytes: int, size_bytes: int) -> bool:
        """Whether all choices are the same for buffers of another size, where those of `before_bytes` are of `size_bytes`."""
        return all(
            algorithms.choose(what, group, size_bytes, self.topology, self._tuning) == chosen
            for (what, group, held_bytes), chosen in self._chosen.items()
            if held_bytes == before_bytes
        )

    def next_send(self, source: int, destination: int) -> int:
        """Tag of the next message from one rank to another, at the sender."""
        tag = self._sends.get((source, destination), 0)
        self._sends[source, destination] = tag + 1
        return tag

    def next_receive(self, source: int, destination: int) -> int:
        """The same at the receiver: the k-th receive meets the k-th send."""
        tag = self._receives.get((source, destination), 0)
        self._receives[source, destination] = tag + 1
        return tag


class Recorder:
    """One rank's part."""

    def __init__(self, weave: Weave, rank: int) -> None:
        """An empty one."""
        self.weave = weave
        self.rank = rank
        self.negotiations = 0
        self._scratch = 0
        self._states: dict[str, Buffer] = {}

    def bound(self, name: str, elements: int, dtype: str) -> Buffer:
        """A buffer that is there when the program is loaded."""
        return self._declare(name, elements, dtype, "bound")

    def alloc(self, elements: int, dtype: str) -> Buffer:
        """Undefined elements."""
        self._scratch += 1
        return self._declare(f"t{self._scratch}", elements, dtype, "scratch")

    def state(self, name: str, elements: int, dtype: str, shared: bool, starts_as: Buffer | None) -> Buffer:
        """Elements that stay from step to step: at first zero, or a slice of the bucket."""
        kind = "shared_state" if shared else "state"
        known = self._states.get(name)
        if known is None:
            known = self._states[name] = self._declare(name, elements, dtype, kind)
            if starts_as is not None:
                self.weave.starts[name] = starts_as.place[1:]
        if known.elements != elements or known.dtype != dtype:
            raise sources.refusal(
                f"state `{name}` is {known.elements} {known.dtype}, asked for as {elements} {dtype}"
            )
        return known

    def _declare(self, name: str, elements: int, dtype: str, kind: str) -> Buffer:
        number = self.weave.builder.buffer(self.rank, name, dtype, elements, kind)
        return Buffer(self, number, 0, elements, dtype)

    def check(self, *buffers: object) -> None:
        """Whether all are buffers of this rank's trace, which is not over."""
        self.weave.assumptions.check_open()
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
        """Whether all are equally long."""
        if len({each.elements for each in buffers}) > 1:
            lengths = " and ".join(str(each.elements) for each in buffers)
            raise sources.refusal(f"buffers of {lengths} elements do not go together")

    def peer(self, rank: object) -> int:
        """A rank to exchange messages with."""
        if not isinstance(rank, int) or not 0 <= rank < self.weave.topology.world or rank == self.rank:
            raise sources.refusal(
                f"rank {self.rank} of {self.weave.topology.world} exchanges nothing with rank {rank!r}"
            )
        return rank
