"""The closed form of `crates/plan`, as it reads best: the oracle of the native one.

A bucket is done when each of its links, which never idles beside work, has served it and those before it, and not before
the time it would need alone: `head + max(busiest link, stall + slowest round) + tail` (alpha-beta with pipelining, Thakur et
al. 2005, section 2; the round is the cycle time of the ring's event graph).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hocket._native import (
    BUCKET_S,
    CAST_S_PER_BYTE,
    COPY_S_PER_BYTE,
    MESSAGE_S,
    PIECE_BYTES,
    REDUCE_S_PER_BYTE,
    TCP_S_PER_BYTE,
)
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import Network
from hocket.artefacts.plan import AllReduce, Bucket
from hocket.artefacts.profile import Bus, Profile
from hocket.planning.traffic import wire_bytes
from tests.planning.readable_fair import slower
from tests.planning.readable_traffic import Stream, Traffic, traffic


def alone_s(bucket: Bucket, graph: Network, bus: Bus | None = None) -> float:
    """Time of one bucket's all-reduce with the network to itself."""
    return _alone(bucket, graph, bus).total_s


def communication_s(buckets: tuple[Bucket, ...], graph: Network, profile: Profile) -> float:
    """When the last bucket of a step is done."""
    ready_s = {gradient.name: gradient.ready_s for gradient in profile.gradients}
    done_s = 0.0
    launched: list[tuple[float, float, list[float]]] = []
    for bucket in sorted(buckets, key=lambda bucket: bucket.priority):
        start_s = BUCKET_S + max(ready_s[name] for name in bucket.variables)
        alone = _alone(bucket, graph, profile.bus)
        launched.append((start_s, alone.head_s, alone.busy_s))
        done_s = max(done_s, start_s + alone.total_s)
        for resource, busy_s in enumerate(alone.busy_s):
            if busy_s > 0:
                done_s = max(done_s, _served_s(launched, resource) + alone.tail_s)
    return done_s


def _served_s(launched: Sequence[tuple[float, float, list[float]]], resource: int) -> float:
    """When a resource has done all work so far: after some bucket has come, and all that start with it or later."""
    using = [each for each in launched if each[2][resource] > 0]
    return max(
        start_s + head_s + sum(busy_s[resource] for later_s, _, busy_s in using if later_s >= start_s)
        for start_s, head_s, _ in using
    )


@dataclass
class _Work:
    """Bytes on every link and seconds of every rank's engine."""

    bytes: list[float]
    engine_s: list[float]
    slower: float
    """What sharing links costs beside the busiest one."""

    @classmethod
    def none(cls, graph: Network, slower: float) -> _Work:
        return cls([0.0] * len(graph.links), [0.0] * len(graph.hosts), slower)

    def add(self, other: _Work) -> None:
        self.bytes = [a + b for a, b in zip(self.bytes, other.bytes, strict=True)]
        self.engine_s = [a + b for a, b in zip(self.engine_s, other.engine_s, strict=True)]

    def busy_s(self, graph: Network) -> list[float]:
        links = zip(self.bytes, graph.links, strict=True)
        return [self.slower * count * 8 / link.bit_per_s for count, link in links] + self.engine_s


@dataclass(frozen=True)
class _Alone:
    """A bucket with the network to itself. `busy_s`: of links, of engines, and of both ways over the bus of each device."""

    busy_s: list[float]
    head_s: float
    tail_s: float
    total_s: float


def _alone(bucket: Bucket, graph: Network, bus: Bus | None) -> _Alone:
    moves = traffic(bucket)
    delays = _delays(moves, bucket, graph)
    work = _work(moves.cycle, bucket, graph)
    cycle_s = delays.stall_s + max(delays.cycle_s, *work.busy_s(graph))
    work.add(_work(moves.chains, bucket, graph))
    for rank in bucket.order:
        # Of what is not finite, the gradient is looked through.
        work.engine_s[rank] += bucket.elements * ITEM_BYTES[bucket.dtype] * COPY_S_PER_BYTE
    busy_s, head_s, tail_s = work.busy_s(graph), delays.head_s, delays.tail_s
    if bus is not None:
        size_bytes = bucket.elements * ITEM_BYTES[bucket.dtype]
        first_bytes = min(size_bytes, PIECE_BYTES)
        rates = bus.down_bytes_per_s, bus.up_bytes_per_s
        busy_s += [size_bytes * (1 / rate + bus.copy_s / PIECE_BYTES) for rate in rates]
        # Nothing moves before the first piece is down, nor when the last one goes up.
        down_s, up_s = (bus.copy_s + first_bytes / rate for rate in rates)
        head_s, tail_s = head_s + down_s, tail_s + up_s
    return _Alone(busy_s, head_s, tail_s, head_s + max(cycle_s, *busy_s) + tail_s)


def _work(streams: tuple[Stream, ...], bucket: Bucket, graph: Network) -> _Work:
    work = _Work.none(graph, _slower(bucket, graph))
    plain = ITEM_BYTES[bucket.dtype]
    for stream in streams:
        pair = (stream.source, stream.destination)
        on_wire = wire_bytes(bucket, *pair)
        for link in graph.path(*pair)[0]:
            work.bytes[link] += stream.elements * on_wire
        remote = graph.hosts[stream.source] != graph.hosts[stream.destination]
        each_s = MESSAGE_S * _messages(stream, bucket)
        each_s += stream.elements * on_wire * TCP_S_PER_BYTE if remote else 0.0
        each_s += stream.elements * plain * CAST_S_PER_BYTE if on_wire < plain else 0.0
        work.engine_s[stream.source] += each_s
        work.engine_s[stream.destination] += each_s + stream.reduced * plain * REDUCE_S_PER_BYTE
    return work


def _slower(bucket: Bucket, graph: Network) -> float:
    route = bucket.route
    if not isinstance(route, AllReduce) or route.algorithm != "parameter_server":
        return 1.0
    shares = [int(member < route.sizes[0]) for member in range(len(bucket.order))]
    return slower(shares, bucket.order, partial(wire_bytes, bucket), graph)


def _messages(stream: Stream, bucket: Bucket) -> float:
    return stream.pieces * max(1.0, stream.elements / stream.pieces / _chunk_elements(bucket))


def _chunk_elements(bucket: Bucket) -> float:
    return max(1, bucket.chunk_bytes // ITEM_BYTES[bucket.dtype])


@dataclass(frozen=True)
class _Delays:
    """What pipelining leaves beside the busiest link of one bucket.

    `head_s`, `tail_s`: one chunk through the longest chain. `stall_s`: until the last leader's own share has
    come down its chain. `cycle_s`: the ring's steps, each at least the mean time of one chunk over an edge, a
    whole share where that is smaller than a chunk.
    """

    head_s: float
    stall_s: float
    cycle_s: float
    tail_s: float


def _delays(moves: Traffic, bucket: Bucket, graph: Network) -> _Delays:
    ring = _Sharing(moves.cycle, bucket, graph)
    up = _Sharing(tuple(stream for chain in moves.head for stream in chain), bucket, graph)
    down = _Sharing(tuple(stream for chain in moves.tail for stream in chain), bucket, graph)
    steps = [ring.chunk_s(stream) for stream in moves.cycle]
    stalls = [
        place / len(moves.head) * max((up.whole_s(stream) for stream in chain), default=0.0)
        for place, chain in enumerate(moves.head)
    ]
    last_s = max((graph.path(stream.source, stream.destination)[1] for stream in moves.cycle), default=0.0)
    return _Delays(
        head_s=max((sum(map(up.chunk_s, chain)) for chain in moves.head), default=0.0),
        stall_s=max(stalls, default=0.0),
        cycle_s=moves.depth * sum(steps) / len(steps) if steps else 0.0,
        tail_s=max((sum(map(down.chunk_s, chain)) for chain in moves.tail), default=0.0) + last_s,
    )


class _Sharing:
    """Streams that run at the same time: those that cross a link share it, and those between hosts the engines of their ends."""

    def __init__(self, streams: tuple[Stream, ...], bucket: Bucket, graph: Network) -> None:
        self._bucket = bucket
        self._graph = graph
        self._crossing = [0] * len(graph.links)
        self._ending = [0] * len(graph.hosts)
        for stream in streams:
            for link in graph.path(stream.source, stream.destination)[0]:
                self._crossing[link] += 1
            for rank in self._ends(stream):
                self._ending[rank] += 1

    def chunk_s(self, stream: Stream) -> float:
        elements = min(stream.elements / stream.pieces, _chunk_elements(self._bucket))
        latency_s = self._graph.path(stream.source, stream.destination)[1]
        return self._transfer_s(stream, elements) + latency_s + 2 * MESSAGE_S

    def whole_s(self, stream: Stream) -> float:
        """All of the stream, once its first byte has come."""
        return self._transfer_s(stream, stream.elements)

    def _transfer_s(self, stream: Stream, elements: float) -> float:
        pair = (stream.source, stream.destination)
        count = elements * wire_bytes(self._bucket, *pair)
        links = self._graph.path(*pair)[0]
        wire_s = max(8 * count * self._crossing[link] / self._graph.links[link].bit_per_s for link in links)
        engines_s = [count * self._ending[rank] * TCP_S_PER_BYTE for rank in self._ends(stream)]
        return max(wire_s, *engines_s, 0.0)

    def _ends(self, stream: Stream) -> tuple[int, ...]:
        pair = (stream.source, stream.destination)
        return pair if self._graph.hosts[pair[0]] != self._graph.hosts[pair[1]] else ()
