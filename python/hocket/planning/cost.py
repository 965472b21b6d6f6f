"""The predicted time of a training step, given plan, cluster and model: the closed form of `crates/plan`.

Every link, and every rank's engine thread, serves ready buckets in order of priority. The adapter waits for all buckets when
backward ends, so

    step = step without communication + max(0, last bucket done - end of backward).

The formula is in `crates/plan/src/cost.rs`, its calibrated constants are in `constants.rs`;
`tests/planning/readable_cost.py` is the same model in plain Python. Against the native executor on four hosts in two racks
(network namespaces, 1 Gbit/s, trunk 100 Mbit/s, 13 MB of gradients, 2 cores, 2026-11-21) the median error over 24
candidates was 3 %, the largest 11 %, and the chosen one was the fastest; without a slow trunk 3 %.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from hocket import _native
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Bucket, Plan, Schedule, Traced
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Bus, Gradient, Profile
from hocket.errors import UsageError
from hocket.planning import rows, told, traced
from hocket.planning.cards import Demand, Piece, Resource, over_cards, shares_on
from hocket.planning.links import link_graph
from hocket.planning.routes import members

Factor = Callable[[Bucket], float]
"""Ratio of measured to predicted time of a bucket alone."""


Launch = tuple[int, float, float, float]
"""A bucket's route, elements, earliest start and factor."""


def as_modelled(_: Bucket) -> float:
    """Return the factor without measurements."""
    return 1.0


@dataclass(frozen=True)
class Load:
    """Traffic on a link in one step: bytes, and their time at the link's full rate."""

    link: str
    bit_per_s: float
    bytes: float
    busy_s: float


@dataclass(frozen=True)
class Prediction:
    """One step: its time, the part spent waiting for communication, and the links, busiest first."""

    step_s: float
    exposed_s: float
    communication_s: float
    loads: tuple[Load, ...]

    @property
    def bottleneck(self) -> Load | None:
        """The busiest link; None if nothing is sent."""
        return self.loads[0] if self.loads else None


def predict(plan: Plan, cluster: Cluster, profile: Profile) -> Prediction:
    """Time of one training step with that plan.

    Raises ArtefactError for an unsound plan, UsageError if it names a gradient that the profile lacks.
    """
    check(plan)
    return predict_on(plan.buckets, link_graph(cluster, plan.world), profile, workers=plan.workers)


def alone_s(bucket: Bucket, graph: Network, bus: Bus | None = None) -> float:
    """Time of one bucket with the network to itself. `bus`: that of each rank's device, if the bucket is there."""
    route = _on(graph, _kind(bucket, None, {}))
    return _native.PlanCost(graph.native, [route], bus).alone_s(0, bucket.elements)


def predict_on(
    buckets: tuple[Bucket, ...],
    graph: Network,
    profile: Profile,
    factor: Factor = as_modelled,
    workers: Collection[int] | None = None,
) -> Prediction:
    """Return the prediction for one step on a link graph that the caller keeps.

    `factor` corrects the predicted time of a bucket alone by measurements.
    """
    urgent = sorted(buckets, key=lambda bucket: bucket.priority)
    if any(bucket.cards is not None for bucket in urgent):
        return _predicted_on_cards(urgent, graph, profile, factor, workers)
    cost, launches = _launches(urgent, graph, profile, factor, workers)
    done_s, carried = cost.step(launches)
    exposed_s = max(0.0, done_s - profile.forward_s - profile.backward_s)
    return Prediction(
        step_s=profile.step_s + exposed_s,
        exposed_s=exposed_s,
        communication_s=done_s,
        loads=_loads(carried, graph),
    )


class Steps:
    """Step times of several plans of one model on several networks: a route that several plans share is prepared once for each
    network.

    Raises UsageError for a plan that names a gradient that the profile lacks.
    """

    def __init__(self, plans: Sequence[Plan], profile: Profile, factor: Factor = as_modelled) -> None:
        """`factor`: as for `predict_on`."""
        self._profile, self._factor = profile, factor
        self._routes = _Routes(profile, factor)
        self._on_cards = {
            at: plan for at, plan in enumerate(plans) if any(each.cards is not None for each in plan.buckets)
        }
        self.launches = [
            [
                self._routes.launch(each, plan.workers)
                for each in sorted(plan.buckets, key=lambda bucket: bucket.priority)
            ]
            for plan in plans
        ]

    def on(self, graph: Network) -> list[float]:
        """Seconds of a step of each plan. UsageError if a plan uses a card that not all hosts have."""
        cost = self.cost(graph)
        return [
            self._on(graph, self._on_cards[at]) if at in self._on_cards else self.step_s(cost, launches)
            for at, launches in enumerate(self.launches)
        ]

    def _on(self, graph: Network, plan: Plan) -> float:
        return predict_on(plan.buckets, graph, self._profile, self._factor, plan.workers).step_s

    def cost(self, graph: Network) -> _native.PlanCost:
        """The cost model of all routes on a network, for use with the `launches` of each plan, which are in order of priority."""
        return self._routes.on(graph)

    def step_s(self, cost: _native.PlanCost, launches: Sequence[Launch]) -> float:
        """Seconds of a step with these buckets."""
        end_s = self._profile.forward_s + self._profile.backward_s
        return self._profile.step_s + max(0.0, cost.step(launches)[0] - end_s)


def _predicted_on_cards(
    buckets: Sequence[Bucket],
    graph: Network,
    profile: Profile,
    factor: Factor,
    workers: Collection[int] | None,
) -> Prediction:
    """Prediction for buckets that are in order of priority."""
    described, resources = _on_cards(buckets, graph, profile, factor, workers)
    backward_end_s = profile.forward_s + profile.backward_s
    iteration_s, _ = _native.schedule_steady(
        described,
        Schedule(),
        needed_s=[0.0] * len(described),
        backward_end_s=backward_end_s,
        step_s=profile.step_s,
    )
    exposed_s = iteration_s - profile.step_s
    loads = []
    for at, (card, number) in enumerate(resources):
        link = graph.cards[card].links[number]
        busy_s = sum(piece[4][at] for piece in described)
        if busy_s:
            loads.append(
                Load(f"card {card}: {link.name}", link.bit_per_s, busy_s * link.bit_per_s / 8, busy_s)
            )
    return Prediction(
        step_s=iteration_s,
        exposed_s=exposed_s,
        communication_s=backward_end_s + exposed_s,
        loads=tuple(sorted(loads, key=lambda load: -load.busy_s)),
    )


def pieces(
    buckets: Sequence[Bucket],
    graph: Network,
    profile: Profile,
    factor: Factor = as_modelled,
    workers: Collection[int] | None = None,
) -> list[Piece]:
    """The demand of each bucket on links and engines, and its start.

    Where a bucket uses some cards alone, the links are those of the first card, then those of the second, … UsageError if a card
    does not exist.
    """
    if any(bucket.cards is not None for bucket in buckets):
        return _on_cards(buckets, graph, profile, factor, workers)[0]
    return list(demand(buckets, graph, profile, factor, workers).pieces)


def demand(
    buckets: Sequence[Bucket],
    graph: Network,
    profile: Profile,
    factor: Factor = as_modelled,
    workers: Collection[int] | None = None,
) -> Demand:
    """The demand of each bucket with all cards as one link, and the links and engines in it."""
    cost, launches = _launches(buckets, graph, profile, factor, workers)
    return Demand([cost.piece(launch) for launch in launches], cost.resources)


def card_shares(
    buckets: Sequence[Bucket], graph: Network, profile: Profile, workers: Collection[int] | None = None
) -> list[dict[int, float]]:
    """Return the share of each bucket that each of its cards carries. UsageError if a card does not exist."""
    alone = [demand(buckets, card, profile, workers=workers) for card in graph.cards]
    return shares_on(buckets, graph, alone)


def _on_cards(
    buckets: Sequence[Bucket],
    graph: Network,
    profile: Profile,
    factor: Factor,
    workers: Collection[int] | None,
) -> tuple[list[Piece], list[Resource]]:
    whole = demand(buckets, graph, profile, factor, workers)
    alone = [demand(buckets, card, profile, factor, workers) for card in graph.cards]
    return over_cards(buckets, graph, whole, alone)


def _launches(
    buckets: Sequence[Bucket],
    graph: Network,
    profile: Profile,
    factor: Factor,
    workers: Collection[int] | None,
) -> tuple[_native.PlanCost, list[Launch]]:
    routes = _Routes(profile, factor)
    launches = [routes.launch(each, workers) for each in buckets]
    return routes.on(graph), launches


_Known = Mapping[str, Gradient]


def _kind(bucket: Bucket, workers: Collection[int] | None, known: _Known) -> told.Route | traced.Marked:
    if isinstance(bucket.route, Traced):
        return traced.marked(bucket, known)
    codec = None if bucket.codec == "none" else (ITEM_BYTES[bucket.codec], bucket.codec_links)
    return told.route(
        rows.exchange(bucket, workers, known),
        members(bucket, workers),
        bucket.dtype,
        bucket.chunk_bytes,
        codec,
    )


class _Routes:
    """Routes of buckets of one model, each once."""

    def __init__(self, profile: Profile, factor: Factor) -> None:
        self._known = {gradient.name: gradient for gradient in profile.gradients}
        self._factor, self._bus = factor, profile.bus
        self._kinds: dict[told.Route | traced.Marked, int] = {}

    def launch(self, bucket: Bucket, workers: Collection[int] | None) -> Launch:
        """Return a bucket's launch. UsageError: the profile lacks a gradient of it."""
        kind = _kind(bucket, workers, self._known)
        start_s = _native.BUCKET_S + _ready(bucket, self._known)
        return self._kinds.setdefault(kind, len(self._kinds)), bucket.elements, start_s, self._factor(bucket)

    def on(self, graph: Network) -> _native.PlanCost:
        """Return the cost model on a network of the routes of all launches so far."""
        return _native.PlanCost(graph.native, [_on(graph, kind) for kind in self._kinds], self._bus)


def _on(graph: Network, kind: told.Route | traced.Marked) -> told.Route:
    if isinstance(kind, told.Route):
        return kind
    # What a policy does depends on the network, and its program names ranks as they are.
    counted = traced.counted(kind, traced.topology_of(graph))
    return told.route(counted.messages, tuple(range(graph.world)), kind.bucket.dtype, counted.chunk_bytes)


def _loads(carried: list[float], graph: Network) -> tuple[Load, ...]:
    loads = [
        Load(link.name, link.bit_per_s, count, count * 8 / link.bit_per_s)
        for link, count in zip(graph.links, carried, strict=True)
        if count
    ]
    return tuple(sorted(loads, key=lambda load: -load.busy_s))


def _ready(bucket: Bucket, known: _Known) -> float:
    missing = [name for name in bucket.variables if name not in known]
    if missing:
        raise UsageError(
            f"plan: gradient {missing[0]} is not in the profile\nhint: make the plan from this profile"
        )
    return max((known[name].ready_s for name in bucket.variables), default=0.0)
