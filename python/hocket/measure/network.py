"""The probe: hosts of a job measure each other and agree on one `Cluster`.

1. a tournament of pairs, in which no host is in two measurements at once: latency of datagrams until it is known,
   one TCP flow each way;
2. racks from the gaps in these; without any, pairs that look slow once more, each alone, since pairs of a
   round may have shared a link;
3. one pair of each two racks alone, for the same reason;
4. flows at once: within racks (does a host keep its rate while it sends and receives?), between racks (is
   the trunk shared?).

Every step begins when all hosts are there; every result goes to all, and each computes the same cluster.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.errors import UsageError
from hocket.measure.datagrams import TOKEN_BYTES, Trips
from hocket.measure.rounds import crossing, tournament, within
from hocket.measure.topology import fastest_pair, find_racks, host_rates, settle_rates, slow_flows
from hocket.measure.transfer import Links, Peer, Station


@dataclass(frozen=True, kw_only=True)
class Durations:
    """How long measurements take, seconds.

    Pings last `pings_s` at most, and are over when their low quantile is known; a transfer lasts `transfer_s` at most,
    and is over when two of its windows agree. `crowded_s`: several flows on one link, of which one that loses all of its
    packets waits 0.2 s for its timer.
    """

    pings_s: float = 0.25
    window_s: float = 0.1
    transfer_s: float = 1.2
    crowded_s: float = 0.9


DURATIONS = Durations()

CROSSING_ROUNDS = 2
"""Rounds of flows between racks, the fuller of which counts: each pairs hosts differently, since a slow host
would hide a trunk, and flows that collide at their start waste some of it."""

AGAIN_MAX = 6
"""Flows that are measured again, alone: each takes half a second."""

COPY_BYTES = 32 << 20
"""Well above caches, so that the rate within a host is that of its memory."""

COPY_S = 0.1

WINDOWS = 5
"""Windows of an undisturbed transfer, about."""

STEP_OVERHEAD_S = 0.05
"""Of a step beside its measurement: connections, and the hosts' agreement that all are there."""

Flow = tuple[int, int]
Progress = Callable[[int, int, str], None]
"""Called with steps done, steps in all (the best guess so far) and what comes next."""


Note = Callable[[str], None]
"""Called with a sentence on what a person should know of the network beside the cluster."""


class Ranks(Protocol):
    """What the probe needs of a job of one rank a host: all ranks' values, by rank, when all are there."""

    rank: int
    world: int

    def gather(self, name: str, value: Any) -> Sequence[Any]:
        """`value`: what JSON can carry. Raises RendezvousError naming the ranks that did not come in time."""


class _Introduction(msgspec.Struct, frozen=True):
    name: str
    slots: int
    address: str
    port: int
    copy_bit_per_s: float
    time: str


def probe(
    ranks: Ranks,
    *,
    name: str,
    address: str,
    slots: int = 1,
    durations: Durations = DURATIONS,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Cluster:
    """Measure the network of a job; called at the same time on every host, one rank each.

    `address` is the IP of this host that the others reach; `name` and `slots` go into the cluster. Returns
    the same cluster on all. A job of one host has only its memory to measure, whose rate then
    stands for its link. Raises PeerError naming a host that cannot be reached.
    """
    token = ranks.gather("token", secrets.token_hex(TOKEN_BYTES) if ranks.rank == 0 else "")[0]
    station = Station(address, bytes.fromhex(token))
    try:
        hello = _Introduction(name, slots, address, station.port, _copy_bit_per_s(), _now())
        hosts = msgspec.convert(ranks.gather("hello", msgspec.to_builtins(hello)), list[_Introduction])
        _check_names(hosts)
        station.meet([Peer(host.name, host.address, host.port) for host in hosts], ranks.rank)
        steps = _Probe(ranks, station, hosts, durations, progress or _silent)
        cluster = steps.run()
        said = _losses(steps.trips, [host.name for host in hosts])
        if said and note is not None:
            note(said)
        return cluster
    finally:
        station.close()


def estimate_s(hosts: int, racks: int = 2, durations: Durations = DURATIONS) -> float:
    """About how long a probe takes, seconds."""
    racks = min(hosts, racks)
    steps = _steps(hosts, racks)
    pings = len(tournament(hosts))
    crowded = CROSSING_ROUNDS if racks > 1 else 0
    plain = steps - pings - crowded
    each = durations
    measuring_s = pings * each.pings_s + plain * WINDOWS * each.window_s + crowded * each.crowded_s
    return measuring_s + steps * STEP_OVERHEAD_S


def _steps(hosts: int, racks: int) -> int:
    """Three a round of the tournament, and those between racks."""
    return 3 * len(tournament(hosts)) + _steps_between(racks)


def _steps_between(racks: int) -> int:
    """Flows within racks, two a pair of racks alone, flows between racks at once."""
    return 1 + 2 * len(tournament(racks)) + (CROSSING_ROUNDS if racks > 1 else 0)


class _Probe:
    """The steps of one probe, as one host takes them."""

    def __init__(
        self,
        ranks: Ranks,
        station: Station,
        hosts: list[_Introduction],
        durations: Durations,
        progress: Progress,
    ) -> None:
        self._durations = durations
        self._ranks = ranks
        self._station = station
        self._hosts = hosts
        self._progress = progress
        self._step = 0
        self._steps = _steps(len(hosts), 2)
        self.trips: dict[Flow, Trips] = {}

    def run(self) -> Cluster:
        count = len(self._hosts)
        latency_s = [[0.0] * count for _ in range(count)]
        rates = [[0.0] * count for _ in range(count)]
        rounds = tournament(count)
        for index, pairs in enumerate(rounds):
            self._tell(f"pairs, round {index + 1} of {len(rounds)}")
            for (a, b), round_trip_s in self._latencies(pairs).items():
                latency_s[a][b] = latency_s[b][a] = round_trip_s / 2
            for flows in (pairs, [(b, a) for a, b in pairs]):
                for (source, destination), rate in self._rates(flows).items():
                    rates[source][destination] = rate
        every = self._ranks.gather(
            "trips", [(*pair, msgspec.to_builtins(each)) for pair, each in self.trips.items()]
        )
        self.trips = {(a, b): msgspec.convert(each, Trips) for mine in every for a, b, each in mine}
        racks = find_racks(rates, latency_s)
        if len(racks) == 1:
            self._measure_again(rates)
        self._steps = self._step // 2 + _steps_between(len(racks))
        self._tell("flows within racks")
        duplex = self._rates(within(racks))
        alone = self._alone(racks, rates)
        turns = CROSSING_ROUNDS if len(racks) > 1 else 0
        at_once = [self._crossing(racks, turn) for turn in range(turns)]
        trunks, settled = settle_rates(rates, racks, alone, at_once)
        links = host_rates(settled, duplex) if count > 1 else [self._hosts[0].copy_bit_per_s]
        return self._cluster(racks, trunks, links, latency_s, settled)

    def _measure_again(self, rates: list[list[float]]) -> None:
        """Pairs well below their hosts' links, the slowest first, each with no other flow at the time."""
        flows = slow_flows(rates)[:AGAIN_MAX]
        self._steps += len(flows)
        for source, destination in flows:
            self._tell(f"{self._hosts[source].name} to {self._hosts[destination].name} again, alone")
            again = self._rates([(source, destination)])[source, destination]
            rates[source][destination] = max(rates[source][destination], again)

    def _alone(self, racks: tuple[tuple[int, ...], ...], rates: list[list[float]]) -> dict[Flow, float]:
        """The fastest pair of any two racks, while no other flow enters or leaves these racks."""
        alone: dict[Flow, float] = {}
        for pairs in tournament(len(racks)):
            flows = tuple(fastest_pair(rates, racks[a], racks[b]) for a, b in pairs)
            self._tell("one flow between racks")
            alone |= self._rates(flows)
            alone |= self._rates(tuple((b, a) for a, b in flows))
        return alone

    def _crossing(self, racks: tuple[tuple[int, ...], ...], turn: int) -> dict[Flow, float]:
        self._tell("flows between racks at once")
        return self._rates(crossing(racks, turn), crowded=True)

    def _latencies(self, pairs: Sequence[Flow]) -> dict[Flow, float]:
        """Round trips of these pairs at once, seconds."""
        with self._open(pairs) as links:
            self._share({})
            found = links.round_trips(self._durations.pings_s)
        mine = {(self._ranks.rank, other): trips for other, trips in found.items()}
        self.trips |= mine
        return self._share({pair: trips.round_trip_s for pair, trips in mine.items()})

    def _rates(self, flows: Sequence[Flow], *, crowded: bool = False) -> dict[Flow, float]:
        """Rates of these flows at once, bit/s."""
        times = self._durations
        duration_s, window_s = (times.crowded_s, None) if crowded else (times.transfer_s, times.window_s)
        with self._open(flows) as links:
            self._share({})
            found = links.receive_bit_per_s(duration_s, window_s=window_s)
        return self._share({(other, self._ranks.rank): rate for other, rate in found.items()})

    def _open(self, flows: Sequence[Flow]) -> Links:
        me = self._ranks.rank
        return self._station.open(
            [b for a, b in flows if a == me], [a for a, b in flows if b == me], self._step
        )

    def _share(self, mine: dict[Flow, float]) -> dict[Flow, float]:
        """Everybody's numbers, when all hosts have come to this point."""
        self._step += 1
        entries = [(source, destination, number) for (source, destination), number in mine.items()]
        every = self._ranks.gather(f"step {self._step}", entries)
        return {(a, b): number for each in every for a, b, number in each}

    def _tell(self, what: str) -> None:
        self._progress(self._step // 2, self._steps, what)  # a step shares twice: all there, results

    def _cluster(
        self,
        racks: tuple[tuple[int, ...], ...],
        trunks: list[float | None],
        links: list[float],
        latency_s: list[list[float]],
        rates: list[list[float]],
    ) -> Cluster:
        place = {host: index for index, rack in enumerate(racks) for host in rack}
        for index, host in enumerate(self._hosts):
            rates[index][index] = host.copy_bit_per_s
        return Cluster(
            hosts=tuple(
                Host(
                    name=host.name,
                    rack=f"rack{place[index]}",
                    slots=host.slots,
                    bandwidth_bit_per_s=round(links[index]),
                    address=host.address,
                )
                for index, host in enumerate(self._hosts)
            ),
            racks=tuple(
                Rack(name=f"rack{index}", uplink_bit_per_s=None if rate is None else round(rate))
                for index, rate in enumerate(trunks)
            ),
            latency_s=tuple(tuple(round(each, 7) for each in row) for row in latency_s),
            bandwidth_bit_per_s=tuple(tuple(float(round(each)) for each in row) for row in rates),
            measured_at=self._hosts[0].time,
        )


def _losses(trips: Mapping[Flow, Trips], names: Sequence[str]) -> str:
    """A sentence on datagrams that were lost or came out of order; empty when none were."""
    lost = sum(each.lost for each in trips.values())
    reordered = sum(each.reordered for each in trips.values())
    if not lost and not reordered:
        return ""
    (a, b), worst = max(trips.items(), key=lambda entry: (entry[1].lost + entry[1].reordered) / entry[1].sent)
    sent = sum(each.sent for each in trips.values())
    return (
        f"of {sent:,} datagrams {lost:,} were lost and {reordered:,} came out of order; most between {names[a]} and "
        f"{names[b]}: {worst.lost:,} and {worst.reordered:,} of {worst.sent:,}"
    )


def _copy_bit_per_s() -> float:
    """Rate of copying memory within this host, measured while the other hosts of the job do the same."""
    source = memoryview(bytearray(b"x") * COPY_BYTES)  # zeros would all be one page
    target = memoryview(bytearray(COPY_BYTES))
    target[:] = source
    copied = 0
    start = now = time.perf_counter()
    while now - start < COPY_S:
        target[:] = source
        copied += COPY_BYTES
        now = time.perf_counter()
    return copied * 8 / (now - start)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _check_names(hosts: list[_Introduction]) -> None:
    for index, host in enumerate(hosts):
        if host.name in {other.name for other in hosts[:index]}:
            raise UsageError(f"probe: two hosts are named {host.name}\nhint: start one rank on each host")


def _silent(_done: int, _total: int, _what: str) -> None:
    return
