"""What every kind of probe is made of: steps that all hosts take together, whose results all get.

A step begins when all hosts are there. A host that saved the results of finished steps uses them instead of measuring again:
which steps follow depends on results alone, so all hosts come to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from hocket.measure.asked import Asked
from hocket.measure.datagrams import Trips
from hocket.measure.transfer import Links, Station

Flow = tuple[int, int]

Numbers = Mapping[Flow, tuple[float, ...]]
"""By pair: what a step found."""

Progress = Callable[[int, int, str], None]
"""Called with steps done, steps in all (the best guess so far) and what comes next."""

Note = Callable[[str], None]
"""Called with a sentence on what a person should know of the network beside the cluster."""


class Step(msgspec.Struct, frozen=True):
    """A finished step: its number from 0, what it measured, and for each pair (source, destination, numbers)."""

    number: int
    what: str
    found: list[tuple[int, int, list[float]]]


Keep = Callable[[Step], None]
"""Called with every step that was measured, as it ends."""


class Ranks(Protocol):
    """What the probe needs of a job of one rank a host: all ranks' values, by rank, when all are there."""

    rank: int
    world: int

    def gather(self, name: str, value: Any) -> Sequence[Any]:
        """`value`: what JSON can carry. Raises RendezvousError naming the ranks that did not come in time."""


@dataclass(frozen=True, kw_only=True)
class Durations:
    """How long measurements take, seconds.

    A transfer lasts `transfer_s` at most,
    and is over when two of its windows agree. `crowded_s`: several flows on one link, of which one that loses all of its
    packets waits 0.2 s for its timer.
    """

    window_s: float = 0.1
    transfer_s: float = 1.2
    crowded_s: float = 0.9


DURATIONS = Durations()

FAR_S = 2e-3
"""As `crates/protocol/src/congestion.rs`: of farther hosts the wire's connections bear losses, if there are any."""


class Steps:
    """The steps of one probe, as one host takes them. `done` counts them; `trips` are those of all pairs that were asked.

    `streams`: TCP connections that carry the flows of a pair; 1 where it says nothing.
    """

    def __init__(
        self,
        ranks: Ranks,
        station: Station,
        asked: Asked,
        durations: Durations,
        *,
        saved: Sequence[Step] = (),
        keep: Keep | None = None,
    ) -> None:
        """`saved`: the first steps of a probe that was interrupted, between the same hosts."""
        self._ranks, self._station, self._asked, self._durations = ranks, station, asked, durations
        self._saved, self._keep = saved, keep
        self.done = 0
        self.trips: dict[Flow, Trips] = {}
        self.streams: Mapping[Flow, int] = {}

    def latencies(self, pairs: Sequence[Flow]) -> dict[Flow, float]:
        """Round trips of these pairs at once, seconds; the first of a pair sends the request."""

        def measure() -> Numbers:
            with self._open(pairs) as links:
                self._meet()
                mine = links.round_trips(self._asked.pair_s)
            return {(self._ranks.rank, other): _numbers(each) for other, each in mine.items()}

        return self._trips(self._step("latencies", measure))

    def rows(self, landmarks: Sequence[int], pair_s: float) -> dict[Flow, float]:
        """Round trips from each of these hosts to all others, all rows at once, seconds; `pair_s` for a pair, at most."""

        def measure() -> Numbers:
            self._meet()
            if self._ranks.rank not in landmarks:
                return {}
            mine = self._station.row(self.done, pair_s)
            return {(self._ranks.rank, other): _numbers(each) for other, each in mine.items()}

        with self._station.answering(self.done):
            return self._trips(self._step("rows", measure))

    def rates(self, flows: Sequence[Flow]) -> dict[Flow, float]:
        """Rates of these flows at once, bit/s, by trains or TCP as was asked."""
        if self._asked.rates == "tcp":
            return self._tcp(flows, self._durations.transfer_s, self._durations.window_s)

        def measure() -> Numbers:
            with self._open(flows) as links:
                self._meet()
                mine = links.trains_bit_per_s()
            return {(other, self._ranks.rank): (rate,) for other, rate in mine.items()}

        return _first(self._step("trains", measure))

    def crowded(self, flows: Sequence[Flow]) -> dict[Flow, float]:
        """Rates of TCP flows that are meant to take from one another."""
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
        """Whether chance losses could starve a connection between them that takes each for congestion."""
        trips = self.trips.get((a, b)) or self.trips.get((b, a))
        return trips is not None and trips.round_trip_s >= FAR_S

    def _meet(self) -> None:
        self._ranks.gather(f"begin {self.done}", None)

    def _step(self, what: str, measure: Callable[[], Numbers]) -> Numbers:
        """Everybody's numbers, when all hosts have them."""
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
