"""The steps of every kind of probe: all hosts take them together, and all get the results.

A step begins when all hosts are ready. A host with saved results of finished steps uses them instead of measuring
again: results alone determine the next steps, so all hosts reach the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from hocket import _native
from hocket.tools.probe.datagrams import Trips
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.probe.transfer import Links, Station

Flow = tuple[int, int]

Numbers = Mapping[Flow, tuple[float, ...]]
"""A step's findings, by pair."""

Progress = Callable[[int, int, str], None]
"""Called with steps done, steps in all (the best estimate so far) and the next step."""

Note = Callable[[str], None]
"""Called with a remark for people on the network, beside the cluster."""


class Step(msgspec.Struct, frozen=True):
    """A finished step: its number from 0, what it measured, and for each pair (source, destination, numbers)."""

    number: int
    what: str
    found: list[tuple[int, int, list[float]]]


Keep = Callable[[Step], None]
"""Called with every newly measured step, as it ends."""


class Ranks(Protocol):
    """The interface of a job of one rank per host: exchanges all ranks' values."""

    rank: int
    world: int

    def gather(self, name: str, value: Any) -> Sequence[Any]:
        """Exchange values and return all ranks' values, by rank; `value`: anything that JSON can express.

        Raises RendezvousError naming the missing ranks.
        """


@dataclass(frozen=True, kw_only=True)
class Durations:
    """Durations of measurements, seconds.

    A transfer takes at most `transfer_s`, and ends when two of its windows agree. `crowded_s`: duration of several
    flows on one link, where a flow that loses all of its packets waits 0.2 s for its timer.
    """

    window_s: float = 0.1
    transfer_s: float = 1.2
    crowded_s: float = 0.9


DURATIONS = Durations()


class Steps:
    """One host's part in a probe's steps. `done`: number of finished steps; `trips`: the measured pairs' round trips.

    `streams`: TCP connections that carry a pair's flows; 1 for pairs that are missing.
    """

    def __init__(
        self,
        ranks: Ranks,
        station: Station,
        options: ProbeOptions,
        durations: Durations,
        *,
        saved: Sequence[Step] = (),
        keep: Keep | None = None,
    ) -> None:
        """`saved`: the first steps of an interrupted probe between the same hosts."""
        self._ranks, self._station, self._options, self._durations = ranks, station, options, durations
        self._saved, self._keep = saved, keep
        self.done = 0
        self.trips: dict[Flow, Trips] = {}
        self.streams: Mapping[Flow, int] = {}

    def latencies(self, pairs: Sequence[Flow]) -> dict[Flow, float]:
        """Round trips of these pairs at once, seconds; the first of a pair sends the request."""

        def measure() -> Numbers:
            with self._open(pairs) as links:
                self._meet()
                mine = links.round_trips(self._options.pair_s)
            return {(self._ranks.rank, other): _numbers(each) for other, each in mine.items()}

        return self._trips(self._step("latencies", measure))

    def rows(self, landmarks: Sequence[int], pair_s: float) -> dict[Flow, float]:
        """Round trips from each of these hosts to all others, all rows at once, seconds; at most `pair_s` per pair."""

        def measure() -> Numbers:
            self._meet()
            if self._ranks.rank not in landmarks:
                return {}
            mine = self._station.row(self.done, pair_s)
            return {(self._ranks.rank, other): _numbers(each) for other, each in mine.items()}

        with self._station.answering(self.done):
            return self._trips(self._step("rows", measure))

    def rates(self, flows: Sequence[Flow]) -> dict[Flow, float]:
        """Rates of these flows at once, bit/s, by trains or TCP as in the options."""
        if self._options.rates == "tcp":
            return self._tcp(flows, self._durations.transfer_s, self._durations.window_s)

        def measure() -> Numbers:
            with self._open(flows) as links:
                self._meet()
                mine = links.trains_bit_per_s()
            return {(other, self._ranks.rank): (rate,) for other, rate in mine.items()}

        return _first(self._step("trains", measure))

    def crowded(self, flows: Sequence[Flow]) -> dict[Flow, float]:
        """Rates of TCP flows that should compete with one another."""
        return self._tcp(flows, self._durations.crowded_s, None)

    def _trips(self, found: Numbers) -> dict[Flow, float]:
        for pair, (round_trip_s, sent, lost, reordered, precision) in found.items():
            self.trips[pair] = Trips(round_trip_s, int(sent), int(lost), int(reordered), precision)
        return _first(found)

    def _tcp(self, flows: Sequence[Flow], duration_s: float, window_s: float | None) -> dict[Flow, float]:
        def measure() -> Numbers:
            with self._open(flows) as links:
                self._meet()
                mine = links.receive_bit_per_s(duration_s, window_s=window_s)
            return {(other, self._ranks.rank): (rate,) for other, rate in mine.items()}

        return _first(self._step("transfers", measure))

    def _open(self, flows: Sequence[Flow]) -> Links:
        me, streams = self._ranks.rank, self.streams
        out = {b: streams.get((a, b), 1) for a, b in flows if a == me}
        into = {a: streams.get((a, b), 1) for a, b in flows if b == me}
        far = {b for b in out if self._is_far(me, b)}
        return self._station.open(out, into, self.done, far)

    def _is_far(self, a: int, b: int) -> bool:
        """Return whether random losses could starve a connection between two hosts that takes each loss for congestion."""
        trips = self.trips.get((a, b)) or self.trips.get((b, a))
        return trips is not None and trips.round_trip_s >= _native.FAR_S

    def _meet(self) -> None:
        self._ranks.gather(f"begin {self.done}", None)

    def _step(self, what: str, measure: Callable[[], Numbers]) -> Numbers:
        """Take a step, and return all hosts' numbers, when all have them."""
        number = self.done
        if number < len(self._saved):
            step = self._saved[number]
        else:
            mine = [
                (source, destination, list(numbers)) for (source, destination), numbers in measure().items()
            ]
            every = self._ranks.gather(f"step {number}", mine)
            step = Step(number, what, [(a, b, list(numbers)) for each in every for a, b, numbers in each])
            if self._keep is not None:
                self._keep(step)
        self.done += 1
        return {(a, b): tuple(numbers) for a, b, numbers in step.found}


def _numbers(trips: Trips) -> tuple[float, ...]:
    return trips.round_trip_s, trips.sent, trips.lost, trips.reordered, trips.precision


def _first(found: Numbers) -> dict[Flow, float]:
    return {flow: numbers[0] for flow, numbers in found.items()}
