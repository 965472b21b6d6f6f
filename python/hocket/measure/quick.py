"""A quick look at the network of an unmeasured job: racks, trunks and rates of hosts, in a fraction of a second.

The first ranks of hosts exchange messages over the job's own connections. In the rounds of a tournament each host meets
every other one; then one pair of each two racks meets alone, which distinguishes a trunk from slow hosts. `hocket
probe` takes longer, and also measures several connections per path, and the uncertainty of each number.

Over a long round trip, a connection takes several of them to reach the rate of its path: such a pair exchanges longer and longer
messages until the rate grows no more.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec
import numpy as np

from hocket import _native
from hocket.artefacts.cluster import Cluster, Directions, Host, Rack, both, directions, ends
from hocket.artefacts.network import FAR_S, network
from hocket.errors import RendezvousError
from hocket.job.rendezvous import Job
from hocket.job.store.store import Store
from hocket.measure.rounds import tournament
from hocket.measure.topology import fastest_pair, find_racks, settle_capacities, slow_flows

HOSTS_MIN = 4
"""Least number of hosts: with fewer, every order is the same ring."""
HOSTS_MAX = 64
"""Limit on hosts: a tournament has a round per host, and more would delay the job."""

FIRST_BYTES, BYTES_MIN, BYTES_MAX = 64 << 10, 512 << 10, 4 << 20
"""Sizes of the message before a timed one, and of timed ones. A token bucket's burst is smaller, at any rate."""
TIMED_S = 0.04
"""Intended time of a timed message: processes wait for a processor for milliseconds."""

GROWTH = 1.25
"""Factor by which a pair's rate must have grown for another, longer message."""
ROUND_TRIPS = 4
"""Intended round trips of a message between hosts far from each other."""

ALIKE = 1.3
"""Factor within which rates count as equal: a look cannot tell them apart, and a plan may use that hosts are alike."""

ALONE_ROUNDS = 12
"""Rounds of pairs that run alone: with few racks, each pair runs several times, and its median counts."""
ALONE_TIMES_MAX = 3

UNEVEN = 2.0
"""Factor by which a path, twice, must be slower than both hosts' links to count as slow by itself, for no visible reason."""
AGAIN_MAX = 6
"""Limit on slow pairs that meet again, the slowest first: if more are slower than their hosts' links, hosts were slow."""

TAG = 0xFFFF_FFFE
"""Tag of group 0, which no process group has."""

Flow = tuple[int, int]


@dataclass(frozen=True)
class Pauses:
    """Means for looks while training goes on.

    Attributes:
        store: a connection for looks alone.
        tag: tag of messages, for looks alone.
        ready: waits for a good moment for the next round, such as the beginning of a step; False: this rank is about to leave.
        spent: called with the seconds for which a round has used this host's links.
        patience_s: longest wait of the others for a rank's good moment.
    """

    store: Store
    tag: int
    ready: Callable[[], bool]
    spent: Callable[[float], None]
    patience_s: float


def known_cluster(job: Job, engine: _native.Engine, given: Cluster | None) -> Cluster | None:
    """Return the cluster of a file, equal on all ranks, with the ways between ranks of this job that cannot reach each other,
    otherwise the cluster of `quick`, if the job may look; every rank must call this.

    Raises like `quick`.
    """
    if given is None:
        return quick(job, engine) if job.settings.autopilot else None
    return with_relays(given, job.hosts, engine.relays)


def with_relays(
    cluster: Cluster, hosts: Sequence[str], relays: Sequence[tuple[int, int, Sequence[int]]]
) -> Cluster:
    """The cluster with the ways between hosts of which no ranks reach each other, from an engine's `relays` between ranks, whose
    `hosts` are given by rank; the file's own of hosts that are not in the job.

    >>> three = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abc"))
    >>> with_relays(three, "abc", [(0, 1, [2])]).relays, with_relays(three, "aabc", [(0, 2, [3])]).relays
    ((('a', 'c', 'b'),), ())
    """
    ranks, known = Counter(hosts), {host.name for host in cluster.hosts}
    apart = Counter(frozenset((hosts[one], hosts[other])) for one, other, _ in relays)
    ways = {way for one, other, between in relays if len(way := _hosts_of((one, *between, other), hosts)) > 2}
    found = [
        way
        for way in sorted(ways)
        if known.issuperset(way) and apart[ends(way)] == ranks[way[0]] * ranks[way[-1]]
    ]
    elsewhere = [way for way in cluster.relays if not ends(way) <= ranks.keys()]
    by_ends = {ends(way): way for way in (*elsewhere, *found)}
    return msgspec.structs.replace(cluster, relays=tuple(by_ends.values()))


def _hosts_of(ranks: Sequence[int], hosts: Sequence[str]) -> tuple[str, ...]:
    """Hosts of ranks on a way, each once."""
    return tuple(dict.fromkeys(hosts[rank] for rank in ranks))


def quick(job: Job, engine: _native.Engine) -> Cluster | None:
    """Measure the current cluster, equal on all ranks, every one of which must call this.

    None for too few or too many hosts, and where ranks cannot reach each other: no message of theirs shows a single path.

    Hosts are in the order of their first ranks, with one slot per rank.

    Raises:
        PeerError: a rank died, or did not answer within the start's time-out.
        RendezvousError: a rank left.
    """
    looks = HOSTS_MIN <= len(set(job.hosts)) <= HOSTS_MAX and not engine.relays
    return Look(job, engine).cluster() if looks else None


def cluster_of(
    ranks: Sequence[str],
    rates: Sequence[Sequence[float]],
    racks: Sequence[tuple[int, ...]],
    alone: Mapping[Flow, float],
) -> Cluster:
    """The cluster from rates of pairs of hosts in bit/s: of a tournament, and of flows between racks that ran alone.

    `ranks`: host of each rank.

    >>> slow = {(0, 1): 1e8, (1, 0): 1e8}
    >>> rates = [[0, 5e7, 9e8, 5e7], [5e7, 0, 5e7, 9e8], [9e8, 5e7, 0, 5e7], [5e7, 9e8, 5e7, 0]]
    >>> found = cluster_of("abcd", rates, ((0, 2), (1, 3)), slow)
    >>> [host.rack for host in found.hosts], [rack.uplink_bit_per_s for rack in found.racks]
    (['rack0', 'rack1', 'rack0', 'rack1'], [100000000.0, 100000000.0])
    """
    names = list(dict.fromkeys(ranks))
    trunks: Sequence[Directions | None] = [None] * len(racks)
    if len(racks) > 1:
        trunks, _ = settle_capacities(rates, racks, alone)
    place = {host: f"rack{rack}" for rack, hosts in enumerate(racks) for host in hosts}
    mates = {host: hosts if len(hosts) > 1 else range(len(names)) for hosts in racks for host in hosts}
    own = _alike([_own_rates(rates, mates[at], at) for at in range(len(names))])
    known = iter(_alike([both(rate) for rate in trunks if rate is not None]))
    trunks = [None if rate is None else next(known) for rate in trunks]
    return Cluster(
        hosts=tuple(
            Host(
                name=name,
                rack=place[at],
                slots=list(ranks).count(name),
                bandwidth_bit_per_s=own[at],
            )
            for at, name in enumerate(names)
        ),
        racks=tuple(Rack(name=f"rack{rack}", uplink_bit_per_s=rate) for rack, rate in enumerate(trunks)),
    )


def uneven(rates: Sequence[Sequence[float]], racks: Sequence[tuple[int, ...]], factor: float) -> list[Flow]:
    """Pairs of one rack with a path slower than both hosts' links by more than `factor`, the slowest first.

    >>> rates = [[0, 9, 9, 9], [9, 0, 2, 9], [9, 9, 0, 6], [9, 9, 9, 0]]
    >>> uneven(rates, [(0, 1, 2, 3)], 2.0), uneven(rates, [(0, 1, 2, 3)], 1.3)
    ([(1, 2)], [(1, 2), (2, 3)])
    """
    rack_of = {host: rack for rack, hosts in enumerate(racks) for host in hosts}
    within = [flow for flow in slow_flows(rates, 1 / factor) if rack_of[flow[0]] == rack_of[flow[1]]]
    return list(dict.fromkeys((min(flow), max(flow)) for flow in within))


def with_paths(
    cluster: Cluster, slow: Mapping[Flow, float], latencies_s: Sequence[Sequence[float]]
) -> Cluster:
    """The cluster with a rate for each path, if some are slow by themselves; otherwise hosts and trunks suffice. With latencies, if
    some hosts are far from each other.

    >>> near, far = ([[0.0, latency_s], [latency_s, 0.0]] for latency_s in (1e-4, 25e-3))
    >>> two = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab"))
    >>> with_paths(two, {}, near).latency_s, with_paths(two, {}, far).latency_s
    ((), ((0.0, 0.025), (0.025, 0.0)))
    """
    if not slow:
        if max(map(max, latencies_s)) < FAR_S:
            return cluster
        return msgspec.structs.replace(cluster, latency_s=tuple(map(tuple, latencies_s)))
    known, hosts = network(cluster), range(len(cluster.hosts))
    rates = tuple(
        tuple(0.0 if a == b else slow.get((a, b), known.bit_per_s(a, b)) for b in hosts) for a in hosts
    )
    return msgspec.structs.replace(
        cluster, bandwidth_bit_per_s=rates, latency_s=tuple(tuple(row) for row in latencies_s)
    )


def alike(rates: Sequence[float]) -> list[float]:
    """Replace each rate by the median of the rates that a look cannot tell apart from it.

    >>> alike([9.0, 10.0, 5.0, 11.0])
    [10.0, 10.0, 5.0, 10.0]
    """
    groups: list[list[float]] = []
    for rate in sorted(rates):
        if groups and rate <= groups[-1][0] * ALIKE:
            groups[-1].append(rate)
        else:
            groups.append([rate])
    level = {rate: median(group) for group in groups for rate in group}
    return [level[rate] for rate in rates]


def _alike(rates: Sequence[tuple[float, float]]) -> list[Directions]:
    """`alike` of links' rates out and in; one rate where the two are alike."""
    level = alike([rate for pair in rates for rate in pair])
    return [directions(*pair) for pair in zip(level[::2], level[1::2], strict=True)]


def _own_rates(rates: Sequence[Sequence[float]], mates: Sequence[int], host: int) -> tuple[float, float]:
    """Rates of a host's own link, out and in: the third quartile of its flows. The slowest show others' links, the fastest are
    mistakes.

    >>> slow_out = [[0, 1e8, 1e8], [9e8, 0, 9e8], [9e8, 9e8, 0]]
    >>> [_own_rates(slow_out, range(3), host) for host in (0, 1)]
    [(100000000.0, 900000000.0), (900000000.0, 900000000.0)]
    """
    peers = [peer for peer in mates if peer != host]
    one_way = [rates[host][peer] for peer in peers], [rates[peer][host] for peer in peers]
    # Of two flows, the slower one may be slow for its other end.
    out, into = (
        float(np.quantile(flows, 0.75, method="lower" if len(flows) > 2 else "higher")) for flows in one_way
    )
    return out, into


class Look:
    """One rank's part in a sequence of looks."""

    def __init__(self, job: Job, engine: _native.Engine, pauses: Pauses | None = None) -> None:
        """Prepare looks. `pauses`: for looks while training goes on; None: nothing else is sent."""
        self._job, self._engine, self._pauses = job, engine, pauses
        self._leaders = [job.hosts.index(host) for host in dict.fromkeys(job.hosts)]
        self._tag = TAG if pauses is None else pauses.tag
        self._store = job.store if pauses is None else pauses.store
        self._timeout_s = job.settings.start_timeout_s if pauses is None else job.settings.timeout_s
        self._own = self._leaders.index(job.rank) if job.rank in self._leaders else None
        # The query is sent now, so that its answer is there when it is read.
        engine.connections()
        self._out = self._in = self._size = None
        if self._own is not None:
            self._out, self._in = engine.allocate(BYTES_MAX), engine.allocate(BYTES_MAX)
            self._size = engine.allocate(8)

    def cluster(self) -> Cluster:
        """Measure the cluster, the same on all ranks. PeerError and RendezvousError like `quick`."""
        hosts = range(len(self._leaders))
        rates = _matrix(len(hosts), self.rounds("all", tournament(len(hosts)), in_step=False))
        latencies_s = self.latencies_s()
        racks = find_racks(rates, latencies_s) if len(hosts) >= HOSTS_MIN else (tuple(hosts),)
        rates, slow = self._again(rates, racks)
        if len(racks) == 1:
            return with_paths(cluster_of(self._job.hosts, rates, racks, {}), slow, latencies_s)
        between = [
            tuple(fastest_pair(rates, racks[a], racks[b]) for a, b in meetings)
            for meetings in tournament(len(racks))
        ]
        # One pair at a time: pairs of different racks may share a trunk, too.
        pairs = [(pair,) for meetings in between for pair in meetings]
        # Over long round trips, a message takes long against what a process may be late by.
        far = max(map(max, latencies_s)) >= FAR_S
        times = 1 if far else min(max(ALONE_ROUNDS // len(pairs), 1), ALONE_TIMES_MAX)
        alone = self.rounds("alone", pairs * times, in_step=True)
        # If a process notices a message late, the flow seems slower or faster than it is.
        found = {
            flow: median(each[flow] for each in alone if flow in each) for flow in sorted(set().union(*alone))
        }
        return with_paths(cluster_of(self._job.hosts, rates, racks, found), slow, latencies_s)

    def _again(
        self, rates: list[list[float]], racks: Sequence[tuple[int, ...]]
    ) -> tuple[list[list[float]], dict[Flow, float]]:
        """Rates of all paths, and of paths within racks that are slow by themselves.

        Pairs that seem slow meet once more, alone, and the faster time counts: a process may have waited for a processor.
        """
        suspects = uneven(rates, racks, ALIKE)[:AGAIN_MAX]
        if not suspects:
            return rates, {}
        best = [list(row) for row in rates]
        for flows in self.rounds("again", [(pair,) for pair in suspects], in_step=True):
            for (a, b), rate in flows.items():
                best[a][b] = max(best[a][b], rate)
        slow = set(uneven(best, racks, UNEVEN)) & set(suspects)
        return best, {(a, b): best[a][b] for pair in slow for a, b in (pair, pair[::-1])}

    def rounds(
        self, name: str, rounds: Sequence[Sequence[Flow]], *, in_step: bool
    ) -> list[dict[Flow, float]]:
        """Measure the rate of each flow of each round in bit/s, in both directions of its pairs, on all ranks.

        `in_step`: all ranks wait for the end of a round before the next.
        """
        received_s: list[tuple[int, int, float]] = []
        for turn, pairs in enumerate(rounds):
            self._begin(f"{name}/turn")
            for a, b in pairs:
                if self._own in (a, b):
                    peer = b if self._own == a else a
                    received_s.append((turn, peer, self._meet(peer, begins=self._own == a)))
            if in_step and self._pauses is None:
                self._gather(f"{name}/turn", None)
        found: list[dict[Flow, float]] = [{} for _ in rounds]
        for rank, rows in enumerate(self._gather(name, received_s)):
            for turn, peer, byte_s in rows:
                found[turn][peer, self._leaders.index(rank)] = 8 / byte_s
        return found

    def _begin(self, name: str) -> None:
        """Begin a round. Beside training, all ranks begin it, or none does, so that no rank waits for one that has left."""
        pauses = self._pauses
        if pauses is not None and not all(self._gather(name, pauses.ready(), pauses.patience_s)):
            raise RendezvousError("a rank leaves")

    def latencies_s(self) -> list[list[float]]:
        """Half of the shortest round trip on each pair's connection, by host; 0 on the diagonal."""
        everyone = self._gather("latency", self._own_latencies_s())
        return [[everyone[a][b] if a != b else 0.0 for b in self._leaders] for a in self._leaders]

    def _own_latencies_s(self) -> list[float]:
        """Half of the shortest round trip to each rank; 0 within this host."""
        return [0.0 if each is None else each[1] * 5e-7 for each in self._engine.connections()]

    def _meet(self, peer: int, *, begins: bool) -> float:
        """Seconds per byte from the host `peer` to this one, while this one sends as much."""
        round_trip_s = 2 * self._own_latencies_s()[self._leaders[peer]]
        far = round_trip_s >= 2 * FAR_S
        first_s = self._exchange(peer, FIRST_BYTES, far=far)
        # The rank that begins decides: behind a size below zero, another one follows.
        sign = -1 if far else 1
        size = self._agreed(peer, sign * _timed_bytes(first_s) if begins else None)
        sent_bytes, best_byte_s = 2 * FIRST_BYTES, math.inf
        while size:
            length = abs(size)
            byte_s = self._exchange(peer, length, far=far) / length
            sent_bytes += FIRST_BYTES + length
            grows, best_byte_s = GROWTH * byte_s < best_byte_s, min(byte_s, best_byte_s)
            if size > 0:
                break
            longer = -_far_bytes(round_trip_s / best_byte_s) if grows else 0
            size = self._agreed(peer, longer if begins else None)
        if self._pauses is not None:
            self._pauses.spent(sent_bytes * best_byte_s)
        return best_byte_s

    def _exchange(self, peer: int, size: int, *, far: bool) -> float:
        """Seconds for a message of `size` bytes directly behind one of FIRST_BYTES.

        The result is not less than the message's share of the time of both: this process may have noticed the first one late. For
        `far` hosts it may be, as the time of both has round trips in it.
        """
        rank = self._leaders[peer]
        engine, timeout_s = self._engine, self._timeout_s
        assert self._out is not None  # noqa: S101  # leaders alone meet
        assert self._in is not None  # noqa: S101
        arrivals = [engine.receive(rank, self._tag, self._in, each) for each in (FIRST_BYTES, size)]
        sent = [engine.send(rank, self._tag, self._out, each) for each in (FIRST_BYTES, size)]
        arrived_s = [time.perf_counter()]
        for arrival in arrivals:
            engine.wait_message(arrival, timeout_s)
            arrived_s.append(time.perf_counter())
        for each in sent:
            engine.wait_message(each, timeout_s)
        began_s, first_s, last_s = arrived_s
        of_both_s = (last_s - began_s) * size / (FIRST_BYTES + size)
        return last_s - first_s if far else max(last_s - first_s, of_both_s)

    def _agreed(self, peer: int, mine: int | None) -> int:
        """Agree on the number of the one host of the two that has a number."""
        rank = self._leaders[peer]
        assert self._size is not None  # noqa: S101
        number = np.frombuffer(memoryview(self._size), np.int64)
        if mine is not None:
            number[0] = mine
            self._engine.wait_message(self._engine.send(rank, self._tag, self._size, 8), self._timeout_s)
        else:
            self._engine.wait_message(self._engine.receive(rank, self._tag, self._size, 8), self._timeout_s)
        return int(number[0])

    def _gather(self, name: str, value: Any, patience_s: float | None = None) -> list[Any]:
        job = self._job
        name = f"quick/{self._tag}/{name}"
        return self._store.gather(name, job.rank, job.world, value, patience_s or self._timeout_s)


def _timed_bytes(first_s: float) -> int:
    wanted = int(FIRST_BYTES * TIMED_S / first_s)
    return min(max(wanted, BYTES_MIN), BYTES_MAX)


def _far_bytes(in_flight: float) -> int:
    """Size of the next message over a long round trip, in which `in_flight` bytes have passed so far: the rate may double."""
    return min(max(int(2 * ROUND_TRIPS * in_flight), BYTES_MIN), BYTES_MAX)


def _matrix(hosts: int, rounds: Sequence[Mapping[Flow, float]]) -> list[list[float]]:
    rates = [[0.0] * hosts for _ in range(hosts)]
    for flows in rounds:
        for (source, destination), rate in flows.items():
            rates[source][destination] = rate
    return rates
