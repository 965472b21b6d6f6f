"""The probe: hosts of a job measure each other and agree on one `Cluster`.

1. a tournament of pairs, in which no host takes part in two measurements at once: latency of datagrams until it is
known, from one end and then from the other; then rates, in both directions;
2. racks from the gaps in these; without any, pairs that look slow are measured once more, each alone, since pairs of a
round may have shared a link;
3. one pair of each two racks, alone, for the same reason;
4. where rates are those of TCP, simultaneous flows: within racks (does a host keep its rate while it sends and
receives?), and between racks (is the trunk shared?). Trains reveal a trunk that is narrower than the hosts' links
without this step.

At scale, hosts do not all meet each other: `sampled.py`. All hosts receive every result, and each computes the same
cluster.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from hocket import typed
from hocket.artefacts.cluster import Cluster, Directions, Host, Rack, both, directions
from hocket.errors import UsageError
from hocket.measure.rounds import crossing, tournament, within
from hocket.measure.topology import (
    fastest_pair,
    find_racks,
    host_rates,
    settle_capacities,
    settle_rates,
    slow_flows,
)
from hocket.tools.probe import certainty, streams, trains
from hocket.tools.probe.datagrams import TOKEN_BYTES, Trips
from hocket.tools.probe.options import ProbeOptions
from hocket.tools.probe.sampled import Sampled
from hocket.tools.probe.steps import DURATIONS, Durations, Flow, Keep, Note, Progress, Ranks, Step, Steps
from hocket.tools.probe.transfer import Peer, Station

CROSSING_ROUNDS = 2
"""Rounds of flows between racks, of which the one with the highest sum counts: each round pairs hosts differently,
since a slow host would hide a trunk, and flows that collide at their start waste some of it."""

AGAIN_MAX = 6
"""Limit on flows that are measured again, alone: each takes half a second."""

COPY_BYTES = 32 << 20
"""Well above cache sizes, so that the rate within a host is that of its memory."""

COPY_S = 0.1

WINDOWS = 5
"""Typical number of windows of an undisturbed transfer."""

PINGS_S = 0.1
"""Typical time to determine a latency: less than a pair may take."""

STEP_OVERHEAD_S = 0.05
"""Overhead of a step: connections, and the hosts' agreement that all are ready."""


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
    options: ProbeOptions | None = None,
    durations: Durations = DURATIONS,
    progress: Progress | None = None,
    note: Note | None = None,
    saved: Sequence[Step] = (),
    keep: Keep | None = None,
) -> Cluster:
    """Measure the network of a job; called at the same time on every host, with one rank each.

    `address` is this host's IP for the others; `name` and `slots` go into the cluster. Returns the same cluster on all
    hosts. A job of one host can only measure its memory, whose rate then stands for its link. `saved` are steps to
    skip, the same on all hosts; `keep` gets newly measured ones. Raises PeerError naming a host that cannot be reached,
    UsageError for options that this many hosts do not allow.
    """
    options = options or ProbeOptions()
    options.check(ranks.world)
    token = ranks.gather("token", secrets.token_hex(TOKEN_BYTES) if ranks.rank == 0 else "")[0]
    station = Station(address, bytes.fromhex(token), limit_bit_per_s=options.limit_bit_per_s)
    try:
        hello = _Introduction(name, slots, address, station.port, _copy_bit_per_s(), _now())
        hosts = typed.of_builtins(ranks.gather("hello", msgspec.to_builtins(hello)), list[_Introduction])
        _check_names(hosts)
        station.meet([Peer(host.name, host.address, host.port) for host in hosts], ranks.rank)
        steps = Steps(ranks, station, options, durations, saved=saved, keep=keep)
        kind = _Sampled if options.sample else _Everybody
        cluster = kind(steps, hosts, options, progress or _silent, note or _unnoted).run()
        names = [host.name for host in hosts]
        for found in (
            _losses(steps.trips, names),
            certainty.imprecise(steps.trips, names, options.pair_s),
            certainty.lopsided_trips(steps.trips, names),
            certainty.lopsided_rates(cluster.bandwidth_bit_per_s, names),
        ):
            if found and note is not None:
                note(found)
        return cluster
    finally:
        station.close()


def estimate_s(
    hosts: int, racks: int = 2, durations: Durations = DURATIONS, options: ProbeOptions | None = None
) -> float:
    """Estimated duration of a probe, seconds."""
    options = options or ProbeOptions()
    if options.sample:
        return Sampled.estimate_s(hosts, options.pair_s) + trains.TRAINS_BYTES * 8 / options.limit_bit_per_s
    racks = min(hosts, racks)
    steps = _steps(hosts, racks, options)
    pings = 2 * len(tournament(hosts))
    crowded = CROSSING_ROUNDS if racks > 1 and options.rates == "tcp" else 0
    plain = steps - pings - crowded
    rate_s = WINDOWS * durations.window_s
    if options.rates == "trains":
        rate_s = trains.TRAINS_BYTES * 8 / options.limit_bit_per_s + 2 * trains.QUIET_S
    measuring_s = pings * min(options.pair_s, PINGS_S) + plain * rate_s + crowded * durations.crowded_s
    return measuring_s + steps * STEP_OVERHEAD_S


def _steps(hosts: int, racks: int, options: ProbeOptions) -> int:
    """Four steps per round of the tournament, two with TCP for several connections, and those between racks."""
    asking = min(2, len(tournament(hosts))) if options.rates == "tcp" else 0
    return 4 * len(tournament(hosts)) + asking + _steps_between(racks, options)


def _steps_between(racks: int, options: ProbeOptions) -> int:
    """Two per pair of racks, alone; with TCP also flows within racks, and simultaneous flows between racks."""
    crowded = 1 + (CROSSING_ROUNDS if racks > 1 else 0)
    return 2 * len(tournament(racks)) + (crowded if options.rates == "tcp" else 0)


class _Everybody:
    """Probe in which every pair of hosts meets."""

    def __init__(
        self,
        steps: Steps,
        hosts: list[_Introduction],
        options: ProbeOptions,
        progress: Progress,
        _note: Note,
    ) -> None:
        self._steps = steps
        self._hosts = hosts
        self._options = options
        self._progress = progress
        self._steps_in_all = _steps(len(hosts), 2, options)

    def run(self) -> Cluster:
        count = len(self._hosts)
        latency_s = [[0.0] * count for _ in range(count)]
        rates = [[0.0] * count for _ in range(count)]
        rounds = tournament(count)
        for index, pairs in enumerate(rounds):
            self._tell(f"pairs, round {index + 1} of {len(rounds)}")
            for flows in (pairs, [(b, a) for a, b in pairs]):
                for (asking, answering), round_trip_s in self._steps.latencies(flows).items():
                    latency_s[asking][answering] = round_trip_s / 2
            for flows in (pairs, [(b, a) for a, b in pairs]):
                for (source, destination), rate in self._steps.rates(flows).items():
                    rates[source][destination] = rate
        racks = find_racks(rates, latency_s)
        several = self._streams(racks, rates) if self._options.rates == "tcp" and count > 1 else {}
        if len(racks) == 1:
            self._measure_again(rates)
        self._steps_in_all = self._steps.done + _steps_between(len(racks), self._options)
        trunks, settled, duplex = self._trunks(racks, rates)
        links = host_rates(settled, duplex) if count > 1 else [self._hosts[0].copy_bit_per_s]
        return _cluster(
            self._hosts,
            racks=racks,
            trunks=trunks,
            links=links,
            latency_s=latency_s,
            precision=[
                [self._steps.trips[a, b].precision if a != b else 0.0 for b in range(count)]
                for a in range(count)
            ],
            rates=settled,
            several=tuple(
                tuple(several.get((a, b), 1) for b in range(count)) for a in range(count) if several
            ),
        )

    def _streams(self, racks: tuple[tuple[int, ...], ...], rates: list[list[float]]) -> dict[Flow, int]:
        """Connections of pairs that gain from several; writes their rates into `rates`."""
        found = streams.find(self._steps, rates, racks, self._tell)
        for pairs in tournament(len(rates)) if found else ():
            self._tell("pairs with their connections")
            for flows in (pairs, [(b, a) for a, b in pairs]):
                for (source, destination), rate in self._steps.rates(flows).items():
                    rates[source][destination] = max(rates[source][destination], rate)
        return found

    def _trunks(
        self, racks: tuple[tuple[int, ...], ...], rates: list[list[float]]
    ) -> tuple[list[Directions | None], list[list[float]], dict[Flow, float]]:
        """Rates of trunks and of all pairs, and of simultaneous flows within racks, where these were measured."""
        if self._options.rates == "trains":
            trunks, settled = settle_capacities(rates, racks, self._alone(racks, rates))
            return trunks, settled, {}
        self._tell("flows within racks")
        duplex = self._steps.rates(within(racks))
        alone = self._alone(racks, rates)
        turns = CROSSING_ROUNDS if len(racks) > 1 else 0
        at_once = [self._crossing(racks, turn) for turn in range(turns)]
        return *settle_rates(rates, racks, alone, at_once), duplex

    def _measure_again(self, rates: list[list[float]]) -> None:
        """Measure pairs well below their hosts' links again, the slowest first, each with no other flow at the time."""
        flows = slow_flows(rates)[:AGAIN_MAX]
        self._steps_in_all += len(flows)
        for source, destination in flows:
            self._tell(f"{self._hosts[source].name} to {self._hosts[destination].name} again, alone")
            again = self._steps.rates([(source, destination)])[source, destination]
            rates[source][destination] = max(rates[source][destination], again)

    def _alone(self, racks: tuple[tuple[int, ...], ...], rates: list[list[float]]) -> dict[Flow, float]:
        """Measure the fastest pair of any two racks, while no other flow enters or leaves these racks."""
        alone: dict[Flow, float] = {}
        for pairs in tournament(len(racks)):
            flows = tuple(fastest_pair(rates, racks[a], racks[b]) for a, b in pairs)
            self._tell("one flow between racks")
            alone |= self._steps.rates(flows)
            alone |= self._steps.rates(tuple((b, a) for a, b in flows))
        return alone

    def _crossing(self, racks: tuple[tuple[int, ...], ...], turn: int) -> dict[Flow, float]:
        self._tell("flows between racks at once")
        return self._steps.crowded(crossing(racks, turn))

    def _tell(self, what: str) -> None:
        self._progress(self._steps.done, self._steps_in_all, what)


class _Sampled:
    """Probe in which hosts meet only landmarks, and the other latencies are completed."""

    def __init__(
        self,
        steps: Steps,
        hosts: list[_Introduction],
        options: ProbeOptions,
        progress: Progress,
        note: Note,
    ) -> None:
        self._hosts = hosts
        self._note = note
        self._sampled = Sampled(steps, len(hosts), options.sample, options.pair_s, progress)

    def run(self) -> Cluster:
        found = self._sampled.run()
        self._note(found.note)
        count = len(self._hosts)
        racks = (tuple(range(count)),)
        return _cluster(
            self._hosts,
            racks=racks,
            trunks=[None],
            links=found.links_bit_per_s,
            latency_s=found.latency_s,
            precision=(),
            rates=None,
        )


def _cluster(
    hosts: Sequence[_Introduction],
    *,
    racks: tuple[tuple[int, ...], ...],
    trunks: Sequence[Directions | None],
    links: Sequence[Directions],
    latency_s: Sequence[Sequence[float]],
    precision: Sequence[Sequence[float]],
    rates: list[list[float]] | None,
    several: tuple[tuple[int, ...], ...] = (),
) -> Cluster:
    """Make the cluster. `rates`: None if pairs' rates are unknown; `several`: the cluster's `streams`."""
    place = {host: index for index, rack in enumerate(racks) for host in rack}
    for index, host in enumerate(hosts if rates is not None else ()):
        rates[index][index] = host.copy_bit_per_s  # type: ignore[index]  # there are none of None
    return Cluster(
        hosts=tuple(
            Host(
                name=host.name,
                rack=f"rack{place[index]}",
                slots=host.slots,
                bandwidth_bit_per_s=_rounded(links[index]),
                address=host.address,
            )
            for index, host in enumerate(hosts)
        ),
        racks=tuple(
            Rack(name=f"rack{index}", uplink_bit_per_s=None if rate is None else _rounded(rate))
            for index, rate in enumerate(trunks)
        ),
        latency_s=tuple(tuple(round(each, 7) for each in row) for row in latency_s),
        bandwidth_bit_per_s=tuple(tuple(float(round(each)) for each in row) for row in rates or ()),
        latency_precision=tuple(tuple(round(each, 4) for each in row) for row in precision),
        streams=several,
        measured_at=hosts[0].time,
    )


def _rounded(rate: Directions) -> Directions:
    return directions(*map(round, both(rate)))


def _losses(trips: Mapping[Flow, Trips], names: Sequence[str]) -> str:
    """A sentence on lost or reordered datagrams; empty when there were none."""
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


def _unnoted(_what: str) -> None:
    return
