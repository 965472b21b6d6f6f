"""The planner: a search over whole plans, by the cost model of `crates/plan`.

Routes are every algorithm whose predictions were compared with runs (`proposed` in the list of algorithms), every other
one that a tuning of such a network has, and owners of parts where hosts are unequal; each with no codec or, where the promise
allows it, with one on slow links, or between all hosts where none is. The rule for slow links is `LinkGraph.slow_pairs`: a
path between two hosts is slow when its rate is below half that of the fastest path between hosts. Buckets of one plan may
take different routes. All take one order: the given one, rack by rack, fast hosts first, or one that is searched where
latencies were measured; each is planned by itself.

Deterministic: the search is seeded, and its budget counts evaluations. Predictions that are equal to a microsecond go to the
candidate that comes first, and candidates come simplest first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

import msgspec

from hocket import _native
from hocket.artefacts import files
from hocket.artefacts.algorithms import LIST
from hocket.artefacts.chunks import SHARED_CHUNK_BYTES, chunk_bytes
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import (
    AllReduce,
    Bucket,
    Candidate,
    Codec,
    Direct,
    Evidence,
    GroupRule,
    LinksRule,
    OrderRule,
    Owned,
    Owner,
    OwnersRule,
    Part,
    Plan,
    Rule,
    TwoLevel,
)
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.promise import EXACT, Promise
from hocket.artefacts.tuning import Tuning
from hocket.errors import UsageError
from hocket.planning.buckets import plan_of
from hocket.planning.cost import Load, Prediction, as_modelled, predict_on
from hocket.planning.links import LinkGraph, link_graph
from hocket.planning.measured import Correction, correction_of
from hocket.planning.order import contiguous_order, fast_first_order, given_order, placement
from hocket.planning.solved import solved_orders

EVALUATIONS = 20_000
"""Of all orders together, beside those that a search begins with: half a second for 64 ranks and 200 gradients."""

SEED = 1

TITLES = {"in_place": "in place"}
"""In labels, where that is not the name with hyphens."""

OWNERS: dict[str, OwnersRule] = {rule: rule for rule in get_args(OwnersRule)}
"""By the name of a proposal's rule."""

GROUPS: dict[str, GroupRule] = {"two_level.rack": "racks", "two_level.host": "hosts"}
"""By the name under which an algorithm is measured."""


def plan(
    cluster: Cluster,
    profile: Profile | None,
    world: int,
    *,
    promise: Promise = EXACT,
    tuning: Tuning | None = None,
) -> Plan:
    """The plan with the smallest predicted step time, with its rules, its bound, and digests of what it was made from. Its
    candidates are it and all plans with one route for all buckets.

    Args:
        cluster: the network.
        profile: the model; None: a neutral one, good only for comparing networks, since its gradients are no model's.
        world: number of ranks.
        promise: with `rounded`, gradients are also rounded on slow links, or between all hosts where no link is slow, if that
            is faster.
        tuning: measured times, which correct the cost model if they come from such a network.

    Raises:
        UsageError: the world does not fit the cluster.
        ArtefactError: the cluster contradicts itself.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    >>> plan(Cluster(hosts=hosts), None, 2).buckets[0].order
    (0, 1)
    """
    question = _question(cluster, profile, world, promise, tuning)
    found = question.solved(EVALUATIONS)
    uniform = [each for solved in found for each in solved.uniform()]
    best = min(found, key=lambda solved: round(solved.solution.step_s, 6))
    chosen = best.plan()
    if all(each.label != chosen.label for each in uniform):
        uniform.append(chosen)
    refused = max(uniform, key=lambda each: each.predicted_step_s)
    bound_s = min(solved.solution.bound_s for solved in found)
    made_from = {"cluster": cluster, "profile": profile, "tuning": tuning}
    return msgspec.structs.replace(
        chosen,
        reason=_reason(chosen, question.predicted(chosen), refused, question.predicted(refused))
        + _gap(chosen.predicted_step_s, bound_s)
        + _by(tuning, question.correction),
        evidence=Evidence(
            predicted_step_s=chosen.predicted_step_s,
            bound_step_s=bound_s,
            evaluations=sum(solved.solution.evaluations for solved in found),
            digests={kind: digest(each) for kind, each in made_from.items() if each is not None},
            candidates=tuple(
                Candidate(label=each.label, predicted_step_s=each.predicted_step_s) for each in uniform
            ),
        ),
    )


def candidates(
    cluster: Cluster, profile: Profile | None, world: int, *, promise: Promise = EXACT
) -> list[Plan]:
    """Every plan with one route for all buckets, with its prediction, simplest first."""
    found = _question(cluster, profile, world, promise, None).solved(0)
    return [each for solved in found for each in solved.uniform()]


def neutral_profile(gradients: Iterable[Gradient] = ()) -> Profile:
    """A profile for when none was measured: no compute, all gradients ready at once.

    Without `gradients` it has 16 of a million f32 elements each.
    """
    named = tuple(gradients) or tuple(
        Gradient(name=f"neutral.{i}", shape=(1_000_000,), dtype="f32", ready_s=0.0, needed_s=0.0)
        for i in range(16)
    )
    return Profile(
        model="neutral",
        world=1,
        steps=0,
        forward_s=0.0,
        backward_s=0.0,
        optimizer_s=0.0,
        step_s=0.0,
        gradients=named,
    )


@dataclass(frozen=True)
class _Order:
    """Logical ranks' physical ones. `algorithm`, with its numbers: the only one that the order was solved for."""

    title: str
    rule: OrderRule
    ranks: tuple[int, ...]
    algorithm: tuple[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class _Question:
    """What is to be planned, and with what."""

    graph: LinkGraph
    profile: Profile
    racks: tuple[int, ...]
    orders: tuple[_Order, ...]
    codecs: tuple[tuple[Codec, tuple[tuple[int, int], ...]], ...]
    links: LinksRule
    admitted: frozenset[str]
    correction: Correction | None

    def predicted(self, plan: Plan) -> Prediction:
        """What it is predicted to take, with the links."""
        factor = as_modelled if self.correction is None else self.correction.factor
        return predict_on(plan.buckets, self.graph, self.profile, factor)

    def solved(self, evaluations: int) -> list[_Solved]:
        """The best plan of each order, with its bound; `evaluations` of all together."""
        return [self._solved(at, evaluations // len(self.orders)) for at in range(len(self.orders))]

    def _solved(self, only: int, evaluations: int) -> _Solved:
        gradients = self.profile.gradients
        sizes = {each.dtype: each.item_bytes for each in gradients}
        classes = list(sizes)
        chunk = chunk_bytes(self.graph.slowest_bit_per_s)
        solution = _native.solve_plan(
            self.graph.native,
            racks=self.racks,
            workers=len(self.graph.hosts),
            orders=[(each.title, each.algorithm, each.ranks) for each in self.orders],
            plain=True,
            codecs=[(ITEM_BYTES[name], links) for name, links in self.codecs if name != "none"],
            chunk_bytes=chunk,
            shared_chunk_bytes=SHARED_CHUNK_BYTES,
            admitted=sorted(self.admitted),
            only=only,
            classes=[(size, None) for size in sizes.values()],
            variables=[
                (each.elements, classes.index(each.dtype), each.ready_s, each.needed_s) for each in gradients
            ],
            backward_end_s=self.profile.forward_s + self.profile.backward_s,
            step_s=self.profile.step_s,
            gates=False,
            factors=[] if self.correction is None else self.correction.factors(gradients, chunk),
            seed=SEED,
            evaluations=evaluations,
            splits=False,
        )
        return _Solved(self, self.orders[only], solution)


@dataclass(frozen=True)
class _Solved:
    """What the search found with one order."""

    question: _Question
    order: _Order
    solution: _native.PlanSolution

    def plan(self) -> Plan:
        """The fastest one."""
        if self.solution.chosen is not None:
            return self.uniform()[self.solution.chosen]
        gradients = self.question.profile.gradients
        grouped = [
            ([gradients[variable] for variable, _, _ in parts], proposal)
            for parts, proposal in self.solution.buckets
        ]
        routes = dict.fromkeys(self._route_title(proposal) for _, proposal in grouped)
        title = " + ".join(routes) if len(routes) > 1 else f"{next(iter(routes))} uneven buckets"
        return self._plan(f"{self.order.title} {title}", grouped, self.solution.step_s)

    def uniform(self) -> list[Plan]:
        """Those with one route for all buckets, simplest first."""
        gradients = self.question.profile.gradients
        bundlings = dict(self.solution.bundlings)
        found = []
        for proposal, size, step_s in self.solution.uniform:
            size_bytes = _native.PLAN_BUCKET_BYTES[size]
            size_title = f"{size_bytes >> 20} MiB" if size_bytes else "one bucket"
            label = f"{self.order.title} {self._route_title(proposal)} {size_title}"
            grouped = [([gradients[each] for each in bundle], proposal) for bundle in bundlings[size]]
            found.append(self._plan(label, grouped, step_s))
        return found

    def _plan(self, label: str, grouped: list[tuple[list[Gradient], int]], step_s: float) -> Plan:
        buckets = tuple(
            self._bucket(own, priority, proposal) for priority, (own, proposal) in enumerate(grouped)
        )
        return plan_of(buckets, len(self.order.ranks), label=label, step_s=step_s)

    def _bucket(self, gradients: list[Gradient], priority: int, proposal: int) -> Bucket:
        route = self.solution.proposals[proposal]
        codec = self._codec(route)
        return Bucket(
            parts=tuple(Part(variable=each.name, stop=each.elements) for each in gradients),
            elements=sum(each.elements for each in gradients),
            dtype=gradients[0].dtype,
            route=self._route(route),
            order=self.order.ranks,
            priority=priority,
            codec=codec,
            codec_links=tuple(route.codec_links),
            chunk_bytes=route.chunk_bytes,
            rule=Rule(
                order=self.order.rule,
                groups=GROUPS.get(route.measured_as),
                owners=OWNERS.get(route.rule),
                links=None if codec == "none" else self.question.links,
            ),
        )

    def _route(self, proposal: _native.PlanProposal) -> AllReduce | Owned:
        kind, way, numbers, stations = proposal.exchange
        if kind == "all_reduce":
            return AllReduce(algorithm=way, sizes=tuple(numbers))
        shares = zip(self.order.ranks, numbers, strict=True)
        return Owned(
            owners=tuple(Owner(rank=rank, share=share) for rank, share in shares if share),
            via=TwoLevel(stations=tuple(stations)) if way == "two_level" else Direct(),
        )

    def _codec(self, route: _native.PlanProposal) -> Codec:
        shorter = [name for name, _ in self.question.codecs if name != "none"]
        return "none" if route.codec is None else shorter[route.codec]

    def _route_title(self, proposal: int) -> str:
        route = self.solution.proposals[proposal]
        kind, way, numbers, _ = route.exchange
        if kind == "owned":
            shares = [share for share in numbers if share]
            title = f"{len(shares)} {'owners' if len(set(shares)) == 1 else 'uneven owners'}"
            if way == "two_level":
                title = f"two-level {title}"
        else:
            title = TITLES.get(way, way.replace("_", "-"))
        known = {each.measured_as for each in self.solution.proposals}
        # Two levels of racks are the usual ones: trunks carry less than with two levels of hosts.
        if route.measured_as == "two_level.host" and "two_level.rack" in known:
            title += " of hosts"
        codec = self._codec(route)
        return title if codec == "none" else f"{title} {codec}"


def _question(
    cluster: Cluster, profile: Profile | None, world: int, promise: Promise, tuning: Tuning | None
) -> _Question:
    profile = profile or neutral_profile()
    if not profile.gradients:
        raise UsageError("profile: it has no gradients\nhint: has the model parameters that need them?")
    graph = link_graph(cluster, world)
    correction = None if tuning is None else correction_of(tuning, cluster, world, graph)
    measured = frozenset() if correction is None else correction.measured
    admitted = frozenset(
        name for entry in LIST for name in entry.measured_as if entry.proposed or name in measured
    )
    places = placement(cluster, world)
    names = [cluster.hosts[at].rack for at in places]
    if len({cluster.hosts[at].bandwidth_bit_per_s for at in places}) > 1:
        admitted |= {"owned"}
    return _Question(
        graph=graph,
        profile=profile,
        racks=tuple(names.index(name) for name in names),
        orders=tuple(_orders(cluster, graph, admitted)),
        codecs=tuple(_codecs(graph, promise)),
        links="slow links" if graph.slow_pairs() else "links between hosts",
        admitted=admitted,
        correction=correction,
    )


def _orders(cluster: Cluster, graph: LinkGraph, admitted: frozenset[str]) -> Iterator[_Order]:
    world = len(graph.hosts)
    given, contiguous = given_order(world), contiguous_order(cluster, world)
    simple = [
        _Order("given", "given", given),
        _Order("contiguous", "rack by rack", contiguous),
        _Order("fast first", "fast first", fast_first_order(cluster, world)),
    ]
    seen: list[tuple[int, ...]] = []
    for order in simple:
        if order.ranks not in seen:
            seen.append(order.ranks)
            yield order
    if cluster.latency_s:
        for algorithm, numbers, ranks in solved_orders(cluster, graph, admitted, (given, contiguous)):
            yield _Order("solved", "solved", ranks, (algorithm, numbers))


def _codecs(graph: LinkGraph, promise: Promise) -> Iterator[tuple[Codec, tuple[tuple[int, int], ...]]]:
    yield "none", ()
    links = graph.slow_pairs() or graph.remote_pairs()
    if promise.allows("rounded") and links:
        yield promise.codec, links


def _gap(step_s: float, bound_s: float) -> str:
    if step_s <= bound_s * 1.0005:
        return " No plan of these routes is faster."
    return f" No plan of these routes takes less than {_seconds(bound_s)}: at most {1 - bound_s / step_s:.1%} can be gained."


def digest(artefact: Cluster | Profile | Tuning) -> str:
    """Of the artefact's file."""
    return hashlib.sha256(files.encode(artefact)).hexdigest()[:16]


def _reason(best: Plan, chosen: Prediction, worst: Plan, refused: Prediction) -> str:
    load = chosen.bottleneck
    if load is None:
        return "One rank: nothing travels."
    waited = f"{_seconds(chosen.exposed_s)} of it waiting for communication"
    sentence = f"{best.label}: {_seconds(chosen.step_s)} a step predicted, {waited}; "
    sentence += f"the busiest link is {_carries(load)}."
    other = refused.bottleneck
    if refused.step_s > chosen.step_s and other is not None:
        sentence += (
            f" The slowest candidate, {worst.label}, takes {_seconds(refused.step_s)}: {_carries(other)}."
        )
    return sentence


def _by(tuning: Tuning | None, correction: Correction | None) -> str:
    if tuning is None:
        return ""
    if correction is None:
        return " The tuning has no network like this one: it corrects nothing."
    return f" All-reduces were measured on a network like this one ({tuning.measured_at})."


def _carries(load: Load) -> str:
    rate = f"{load.bit_per_s / 1e6:.0f} Mbit/s"
    return f"{load.link} ({rate}) with {load.bytes / 1e6:.1f} MB, {_seconds(load.busy_s)}"


def _seconds(time_s: float) -> str:
    return f"{time_s:.2f} s" if time_s >= 1 else f"{time_s * 1e3:.1f} ms"
