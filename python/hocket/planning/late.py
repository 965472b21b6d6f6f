"""Rank that comes last: the others reduce what they can without it, and its values join last.

Persistent stragglers are Devraj et al.'s case (StragglAR, arXiv 2505.23523). Their ranks reduce and scatter while they wait, and
then combine in rounds of pairs. Where links are shared by all who send over them, members that collect and spread parts do the same
without rounds: the late one pushes its values last, to owners that hold the sum of all others by then, and has the smaller part to
own itself, the later it is.

Of p ranks with links of rate r, and one that is late by d, no all-reduce of size S ends before

    max(d + S / r, (2 (p - 1) S / r + d) / p)

since the late rank still sends its values and receives the sum, and all links together have 2 (p - 1) S to send. A member with
share s of what is collected and spread has 1 + (p - 2) s of S to send; with the late one's as small as follows from T of the above,
all links are busy until T.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hocket import _native
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import GOODPUT, Network
from hocket.artefacts.plan import AllReduce, Bucket, Plan, Rule
from hocket.artefacts.profile import Profile
from hocket.planning import told
from hocket.planning.cost import predict_on
from hocket.planning.order import rates_bit_per_s

Both = tuple[float, float]
"""Rates of a link, out and in, in bit/s."""

RANKS_MIN, RANKS_MAX = 3, 32
"""Numbers of ranks for which there are such plans; with more, messages from everyone to everyone take longer than they gain."""
LATE_MIN = 0.05
"""Share of a step by which the last rank is later than all others, from which plans for it are looked at."""
SHARES = 60
"""Shares are multiples of this part of the largest one."""
SHORTER, CHUNK_BYTES_MIN = 2, 16_384
"""All links serve all ranks at once: shorter chunks than a neighbour's keep them busy to the end."""


@dataclass(frozen=True)
class Late:
    """Last rank. `paces`: computation of each rank over that of the profile; `late_s`: time from the end of all other ranks'
    backward to that of its own."""

    rank: int
    paces: tuple[float, ...]
    late_s: float

    @property
    def others(self) -> float:
        """Pace of the slowest of the others."""
        return heapq.nlargest(2, self.paces)[1]


def late_of(profile: Profile, world: int) -> Late | None:
    """Return the rank of a profile that is later than all others, if there is one, and the profile is of so many ranks."""
    steps_s = [each.step_s for each in profile.ranks]
    if len(steps_s) != world or not RANKS_MIN <= world <= RANKS_MAX or min(steps_s) <= 0:
        return None
    mean_s = sum(steps_s) / world
    paces = tuple(each / mean_s for each in steps_s)
    rank = max(range(world), key=paces.__getitem__)
    late = paces[rank] - heapq.nlargest(2, paces)[1]
    if late < LATE_MIN:
        return None
    return Late(rank, paces, late * (profile.forward_s + profile.backward_s))


def bound_s(size_bytes: float, rates: Sequence[Both], rank: int, late_s: float) -> float:
    """Return the least seconds of an all-reduce of that size, whatever the algorithm, after all ranks but one have begun. `rates`:
    of each rank's link, out and in; `late_s`: when that one begins."""
    bits, found_s = 8 * size_bytes, 0.0
    for side in range(2):
        own = [each[side] for each in rates]
        late = own[rank]
        found_s = max(
            found_s,
            late_s + bits / late,
            bits / min(own),
            (2 * (len(own) - 1) * bits + late_s * late) / sum(own),
        )
    return found_s


def shares(size_bytes: float, rates: Sequence[Both], rank: int, late_s: float) -> tuple[int, ...]:
    """Return what each rank collects, and then what each spreads, so that all links are busy until the end."""
    bits, least_s = 8 * size_bytes, bound_s(size_bytes, rates, rank, late_s)
    found: list[int] = []
    # Ranks collect what comes in, and spread what goes out.
    for side in (1, 0):
        begins_s = [late_s if at == rank else 0.0 for at in range(len(rates))]
        left = [
            max(0.0, (least_s - begun_s) * each[side] / bits - 1)
            for each, begun_s in zip(rates, begins_s, strict=True)
        ]
        found += [round(SHARES * each / max(left)) for each in left]
    return tuple(found)


def candidates(plan: Plan, cluster: Cluster, late: Late) -> list[Plan]:
    """Return plans like this one whose last rank joins last: with the part that it can own if nothing else is to be sent, and with
    none. None where ranks share hosts or an all-reduce is not of all."""
    if len({host.name for host in cluster.hosts}) < plan.world or any(
        host.slots > 1 for host in cluster.hosts[: plan.world]
    ):
        return []
    if not all(_plain(each, plan) for each in plan.buckets):
        return []
    rates = [(out * GOODPUT, into * GOODPUT) for out, into in rates_bit_per_s(cluster, plan.world)]
    size_bytes = sum(each.elements * ITEM_BYTES[each.dtype] for each in plan.buckets)
    none = tuple(int(at % plan.world != late.rank) for at in range(2 * plan.world))
    ways = dict.fromkeys((shares(size_bytes, rates, late.rank, late.late_s), none))
    return [
        msgspec.structs.replace(
            plan,
            label=f"rank {late.rank} joins last" + (", and owns nothing" if way == none else ""),
            buckets=tuple(_by(each, way) for each in plan.buckets),
        )
        for way in ways
    ]


def _plain(bucket: Bucket, plan: Plan) -> bool:
    reduced = isinstance(bucket.route, AllReduce) and bucket.codec == "none" and bucket.cards is None
    return reduced and sorted(bucket.order) == list(range(plan.world))


def _by(bucket: Bucket, way: tuple[int, ...]) -> Bucket:
    return msgspec.structs.replace(
        bucket,
        route=AllReduce(algorithm="collect_spread", sizes=way),
        order=tuple(range(len(way) // 2)),
        chunk_bytes=max(CHUNK_BYTES_MIN, bucket.chunk_bytes // SHORTER),
        rule=Rule(order="given"),
    )


def predicted_s(plan: Plan, graph: Network, profile: Profile, late: Late) -> float:
    """Return the time of a step by the closed form: all traffic among ranks that are as late as the others, or what waits for the
    last one (`Counts::of_last`), whichever is done later."""
    done_s = predict_on(
        plan.buckets, graph, _paced(profile, late.others), workers=plan.workers
    ).communication_s
    urgent = sorted(plan.buckets, key=lambda bucket: bucket.priority)
    cost = _native.PlanCost(graph.native, [_waiting(each, late.rank) for each in urgent], profile.bus)
    ready_s = {each.name: each.ready_s * late.paces[late.rank] for each in profile.gradients}
    last_s, _ = cost.step(
        [
            (at, each.elements, _native.BUCKET_S + max(ready_s[name] for name in each.variables), 1.0)
            for at, each in enumerate(urgent)
        ]
    )
    pace = late.paces[late.rank]
    end_s = (profile.forward_s + profile.backward_s) * pace
    return profile.step_s * pace + max(0.0, done_s - end_s, last_s - end_s)


def _waiting(bucket: Bucket, rank: int) -> told.Route:
    route = bucket.route
    assert isinstance(route, AllReduce)  # noqa: S101  # `candidates` has no others
    elements, depth, flows = _native.count_last(
        route.algorithm, list(route.sizes), len(bucket.order), bucket.order.index(rank)
    )
    messages = told.Messages(elements, flows, depth)
    return told.route(messages, bucket.order, bucket.dtype, bucket.chunk_bytes)


def _paced(profile: Profile, pace: float) -> Profile:
    gradients = tuple(
        msgspec.structs.replace(each, ready_s=each.ready_s * pace, needed_s=each.needed_s * pace)
        for each in profile.gradients
    )
    return msgspec.structs.replace(
        profile,
        forward_s=profile.forward_s * pace,
        backward_s=profile.backward_s * pace,
        step_s=profile.step_s * pace,
        gradients=gradients,
    )
