"""A question to the planner of `crates/plan`, and its answers as plans: allowed routes, orders and codecs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from hocket import _native
from hocket.artefacts.algorithms import LIST, Algorithm
from hocket.artefacts.chunks import SHARED_CHUNK_BYTES, chunk_bytes
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import Network, trunk_names
from hocket.artefacts.plan import (
    AllReduce,
    Bucket,
    Codec,
    Evidence,
    Gathered,
    GroupRule,
    LinksRule,
    OrderRule,
    Owned,
    OwnersRule,
    Part,
    Plan,
    Rule,
    TwoLevel,
)
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.promise import Promise
from hocket.artefacts.tuning import Tuning
from hocket.errors import UsageError
from hocket.planning import rows, told
from hocket.planning.buckets import plan_of, sizes_of
from hocket.planning.cost import Prediction, alone_s, as_modelled, predict_on
from hocket.planning.hosts import Host, hosts_of
from hocket.planning.links import link_graph
from hocket.planning.measured import Correction, correction_of
from hocket.planning.order import (
    contiguous_order,
    fast_first_order,
    given_order,
    placement,
    rates_bit_per_s,
)
from hocket.planning.routes import name
from hocket.planning.solved import solved_orders
from hocket.planning.starts import starts

if TYPE_CHECKING:
    from hocket.planning.asked import Asked

SEED = 1

TITLES = {"in_place": "in place"}
"""Titles in labels that differ from the name with hyphens."""

OWNERS: dict[str, OwnersRule] = {rule: rule for rule in get_args(OwnersRule)}
"""Rules of owners, by the name of a proposal's rule."""

SEARCHED: Final = "searched"
"""Rule of routes whose order, groups or owners follow from links alone (`crates/plan/src/found.rs`)."""

GROUPS: dict[str, GroupRule] = {"two_level.rack": "racks", "two_level.host": "hosts"}
"""Rules of groups, by the name under which an algorithm is measured."""


@dataclass(frozen=True)
class Alternative:
    """A bucket with one of the possible routes."""

    label: str
    bucket: Bucket


@dataclass(frozen=True)
class Order:
    """Physical ranks of the logical ones. `algorithm`, with its numbers: the only algorithm that the order was solved for."""

    title: str
    rule: OrderRule
    ranks: tuple[int, ...]
    algorithm: Algorithm | None = None


@dataclass(frozen=True)
class Question:
    """The job to plan for, and the allowed choices."""

    graph: Network
    profile: Profile
    racks: tuple[int, ...]
    orders: tuple[Order, ...]
    codecs: tuple[tuple[Codec, tuple[tuple[int, int], ...]], ...]
    links: LinksRule
    admitted: frozenset[str]
    correction: Correction | None
    workers: int
    """Number of ranks that train: the first ones; the others only own."""
    cluster: Cluster
    promise: Promise
    builders: tuple[Asked, ...] = ()
    """Users' builders that take part."""

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        """Hosts of the ranks that train."""
        return hosts_of(self.cluster, self.graph, self.workers)

    def predicted(self, plan: Plan) -> Prediction:
        """Return a plan's predicted step time and its links."""
        factor = as_modelled if self.correction is None else self.correction.factor
        return predict_on(plan.buckets, self.graph, self.profile, factor, plan.workers)

    def admits(self, plan: Plan) -> bool:
        """Return whether all routes and parts of a plan may be chosen: predictions of others are too optimistic."""
        elements = {each.name: each.elements for each in self.profile.gradients}
        for bucket in plan.buckets:
            if isinstance(bucket.route, Owned) and "owned" not in self.admitted:
                return False
            if any(size < min(_native.PART_ELEMENTS_MIN, elements[own]) for own, size in sizes_of(bucket)):
                return False
        return True

    def gradient(self, name: str) -> Gradient:
        """The profile's gradient of this name."""
        return next(each for each in self.profile.gradients if each.name == name)

    def alone_s(self, bucket: Bucket) -> float:
        """Seconds of one bucket with the network to itself."""
        return alone_s(bucket, self.graph, self.profile.bus) * (
            1.0 if self.correction is None else self.correction.factor(bucket)
        )

    def solved(self, evaluations: int, *, splits: bool = True, given: Sequence[Plan] = ()) -> Solved:
        """Search for the best plan by scoring `evaluations` plans beyond those it starts from. `splits`: whether it may cut
        variables; `given`: plans to begin with, too, of which those are left out whose routes a search may not choose."""
        routes, begun = starts(self, given)
        gradients = self.profile.gradients
        classes, own = rows.classes(gradients, self.workers)
        chunk = chunk_bytes(self.graph.slowest_bit_per_s)
        solution = _native.solve_plan(
            self.graph.native,
            told.Setting(
                racks=self.racks,
                workers=self.workers,
                orders=[(each.title, each.algorithm, each.ranks) for each in self.orders],
                codecs=[(ITEM_BYTES[name], links) for name, links in self.codecs if name != "none"],
                chunk_bytes=chunk,
                shared_chunk_bytes=SHARED_CHUNK_BYTES,
                admitted=self.admitted,
                searched=evaluations > 0,
                seed=SEED,
                given=routes,
            ),
            told.Model(
                variables=[
                    (each.elements, at, each.ready_s) for each, at in zip(gradients, own, strict=True)
                ],
                classes=classes,
                backward_end_s=self.profile.forward_s + self.profile.backward_s,
                step_s=self.profile.step_s,
                bus=self.profile.bus,
            ),
            factors=[] if self.correction is None else self.correction.factors(gradients, chunk),
            evaluations=evaluations,
            # Factors are for a whole bucket alone: concurrent parts of a variable were not measured.
            splits=splits and self.correction is None,
            given=begun,
        )
        return Solved(self, solution)


@dataclass(frozen=True)
class Solved:
    """Result of a search."""

    question: Question
    solution: told.Solution

    def plan(self) -> Plan:
        """The fastest plan."""
        if self.solution.chosen is not None:
            return self.uniform()[self.solution.chosen]
        buckets = self.solution.buckets
        return self._plan(self._mixed_title(buckets), buckets, self.solution.step_s)

    def uniform(self) -> list[Plan]:
        """Plans with one route for all buckets, simplest first."""
        bundlings = dict(self.solution.bundlings)
        found = []
        for proposal, size, step_s in self.solution.uniform:
            size_bytes = _native.PLAN_BUCKET_BYTES[size]
            size_title = f"{size_bytes >> 20} MiB" if size_bytes else "one bucket"
            buckets = [told.Chosen(self._whole(bundle), proposal) for bundle in bundlings[size]]
            found.append(self._plan(f"{self._title(proposal)} {size_title}", buckets, step_s))
        return found

    def built(self) -> list[tuple[str, Plan]]:
        """The fastest plan of each builder."""
        return [
            (each.builder, self._plan(each.builder, each.buckets, each.step_s))
            for each in self.solution.built
        ]

    def alternatives(self, bucket: Bucket) -> list[Alternative]:
        """A bucket with each of the routes."""
        return [
            Alternative(
                self._title(proposal),
                self._bucket(bucket.parts, bucket.elements, bucket.dtype, bucket.priority, proposal),
            )
            for proposal, each in enumerate(self.solution.proposals)
            if not isinstance(each.exchange, told.Rows) or self._gathers(bucket.parts)
        ]

    def _gathers(self, parts: tuple[Part, ...]) -> bool:
        """Return whether these parts are a whole variable that may travel as rows."""
        own = self.question.gradient(parts[0].variable)
        whole = len(parts) == 1 and parts[0].start == 0 and parts[0].stop in (None, own.elements)
        return whole and rows.may(own, self.question.workers)

    def _whole(self, bundle: list[int]) -> list[told.Slice]:
        gradients = self.question.profile.gradients
        return [(each, 0, gradients[each].elements) for each in bundle]

    def _plan(self, label: str, grouped: list[told.Chosen], step_s: float) -> Plan:
        gradients = self.question.profile.gradients
        buckets = []
        for priority, chosen in enumerate(grouped):
            parts = tuple(
                Part(variable=gradients[each].name, start=start, stop=stop)
                for each, start, stop in chosen.parts
            )
            elements = sum(stop - start for _, start, stop in chosen.parts)
            dtype = gradients[chosen.parts[0][0]].dtype
            buckets.append(self._bucket(parts, elements, dtype, priority, chosen.proposal))
        workers, world = self.question.workers, len(self.question.graph.hosts)
        helped = any(max(bucket.order) >= workers for bucket in buckets)
        made = plan_of(buckets, world if helped else workers, label=label, step_s=step_s)
        return self._with_rows(msgspec.structs.replace(made, workers=tuple(range(workers))))

    def _with_rows(self, plan: Plan) -> Plan:
        """Move sparse gradients to rows, even if other routes are faster, and predict the result."""
        found = rows.with_rows(plan, self.question.profile.gradients)
        if found == plan:
            return plan
        evidence = Evidence(predicted_step_s=self.question.predicted(found).step_s)
        return msgspec.structs.replace(found, evidence=evidence)

    def _bucket(
        self, parts: tuple[Part, ...], elements: int, dtype: str, priority: int, proposal: int
    ) -> Bucket:
        route = self.solution.proposals[proposal]
        codec = self._codec(route)
        return Bucket(
            parts=parts,
            elements=elements,
            dtype=dtype,
            route=self._route(route, parts),
            order=route.order,
            priority=priority,
            codec=codec,
            codec_links=route.codec_links,
            chunk_bytes=int(route.chunk_bytes),
            rule=Rule(
                order=self._order(route).rule,
                groups=None if route.rule == SEARCHED else GROUPS.get(route.measured_as),
                owners=OWNERS.get(route.rule),
                links=None if codec == "none" else self.question.links,
            ),
        )

    def _route(self, proposal: told.Proposal, parts: tuple[Part, ...]) -> AllReduce | Owned | Gathered:
        by = proposal.exchange
        if isinstance(by, told.Rows):
            return rows.route(self.question.gradient(parts[0].variable), len(proposal.order), by.algorithm)
        return by if isinstance(by, AllReduce) else Owned(owners=by.owners(proposal.order), via=by.via)

    def _order(self, route: told.Proposal) -> Order:
        """The first of several rules that give the same ranks; a `searched` order if no rule gives them."""
        ranks = tuple(rank for rank in route.order if rank < self.question.workers)
        known = (each for each in self.question.orders if each.ranks == ranks)
        return next(known, Order(SEARCHED, SEARCHED, ranks))

    def _codec(self, route: told.Proposal) -> Codec:
        shorter = [name for name, _ in self.question.codecs if name != "none"]
        return "none" if route.codec is None else shorter[route.codec]

    def _mixed_title(self, buckets: list[told.Chosen]) -> str:
        """Title of the routes of all buckets, each once, after their order; tells whether variables are cut."""
        proposals = list(dict.fromkeys(bucket.proposal for bucket in buckets))
        orders = {self._titles[each][0] for each in proposals}
        if len(orders) == 1:
            title = " + ".join(dict.fromkeys(self._titles[each][1] for each in proposals))
            title = f"{orders.pop()} {title}"
        else:
            title = " + ".join(dict.fromkeys(self._title(each) for each in proposals))
        cut = sum(len(bucket.parts) for bucket in buckets) > len(self.question.profile.gradients)
        return f"{title} {'split' if cut else 'uneven'} buckets" if cut or len(proposals) == 1 else title

    def _title(self, proposal: int) -> str:
        return " ".join(self._titles[proposal])

    @cached_property
    def _titles(self) -> list[tuple[str, str]]:
        """Titles of order and route, by proposal. Searched routes with the same titles are numbered."""
        found: list[tuple[str, str]] = []
        for at, proposal in enumerate(self.solution.proposals):
            order, route = self._order(proposal).title, self._route_title(at)
            numbered = map(f"{route} {{}}".format, count(2))
            while (order, route) in found:
                route = next(numbered)
            found.append((order, route))
        return found

    def _owners_title(self, by: told.Shares, route: told.Proposal) -> str:
        """Title of the owners: their number, or the only one's rank; and the rule, if another rule makes as many owners."""
        owners = by.owners(route.order)
        if len(owners) == 1:
            title = f"owner {owners[0].rank}"
        else:
            even = len({owner.share for owner in owners}) == 1
            alike = {
                each.rule
                for each in self.solution.proposals
                if isinstance(each.exchange, told.Shares)
                and type(each.exchange.via) is type(by.via)
                and sum(map(bool, each.exchange.shares)) == len(owners)
            }
            rule = f" ({route.rule})" if len(alike) > 1 else ""
            title = f"{len(owners)} {'owners' if even else 'uneven owners'}{rule}"
        return f"two-level {title}" if isinstance(by.via, TwoLevel) else title

    def _route_title(self, proposal: int) -> str:
        route = self.solution.proposals[proposal]
        by = route.exchange
        if isinstance(by, told.Rows):
            title = f"rows {by.algorithm}"
        elif isinstance(by, told.Shares):
            title = self._owners_title(by, route)
        else:
            title = TITLES.get(by.algorithm, by.algorithm.replace("_", "-"))
        known = {each.measured_as for each in self.solution.proposals}
        # Two levels of racks are the usual ones: trunks carry less than with two levels of hosts.
        if route.measured_as == "two_level.host" and "two_level.rack" in known and route.rule != SEARCHED:
            title += " of hosts"
        codec = self._codec(route)
        return title if codec == "none" else f"{title} {codec}"


def question_of(
    cluster: Cluster,
    profile: Profile,
    world: int,
    promise: Promise,
    tuning: Tuning | None,
    *,
    helpers: int = 0,
    builders: Iterable[Asked] = (),
) -> Question:
    """Collect the choices for a job. `helpers`: number of ranks, the last ones, that do not train and may own; `builders`: users',
    whose plans take part.

    Raises UsageError and ArtefactError like `hocket.planning.search.plan`.
    """
    if not 0 <= helpers < world:
        raise UsageError(f"{helpers} of {world} ranks are to help, so none would train")
    if not profile.gradients:
        raise UsageError("profile: it has no gradients\nhint: has the model parameters that need them?")
    graph = link_graph(cluster, world)
    correction = None if tuning is None else correction_of(tuning, cluster, world, graph)
    measured = frozenset() if correction is None else correction.measured
    admitted = frozenset(
        name for entry in LIST for name in entry.measured_as if entry.proposed or name in measured
    )
    if not cluster.bandwidth_bit_per_s:
        # Where no other route comes near what links allow; measured pairs are no links that several share.
        admitted |= {"trees"}
    names = [cluster.hosts[at].rack for at in placement(cluster, world)]
    if helpers or _uneven(cluster, world, graph):
        admitted |= {"owned"}
    if cluster.bandwidth_bit_per_s and graph.limits_connections:
        # One neighbour's path does not saturate a host's link; sending to several at once does.
        admitted |= {"owned", "direct"}
    if graph.has_far_hosts and not any(link.name in trunk_names(cluster) for link in graph.links):
        # Few rounds count most where each takes milliseconds. Several connections that share a trunk share it unevenly; of a direct
        # exchange, what an owner adds to one place is announced one after the other, a round trip each.
        admitted |= {"halving_doubling"}
    return Question(
        graph=graph,
        profile=profile,
        racks=tuple(names.index(name) for name in names),
        orders=tuple(_orders(cluster, graph, admitted, world - helpers)),
        codecs=tuple(_codecs(graph, promise)),
        links="slow links" if graph.slow_pairs() else "links between hosts",
        admitted=admitted,
        correction=correction,
        workers=world - helpers,
        cluster=cluster,
        promise=promise,
        builders=tuple(builders),
    )


def _uneven(cluster: Cluster, world: int, graph: Network) -> bool:
    """Return whether hosts or trunks have different rates, so that some can do more than others."""
    trunks = {link.bit_per_s for link in graph.links if link.name in trunk_names(cluster)}
    return len(set(rates_bit_per_s(cluster, world))) > 1 or len(trunks) > 1


def _orders(cluster: Cluster, graph: Network, admitted: frozenset[str], world: int) -> Iterator[Order]:
    """Orders of the ranks that train."""
    given, contiguous = given_order(world), contiguous_order(cluster, world)
    simple = [
        Order("given", "given", given),
        Order("contiguous", "rack by rack", contiguous),
        Order("fast first", "fast first", fast_first_order(cluster, world)),
    ]
    seen: list[tuple[int, ...]] = []
    for order in simple:
        if order.ranks not in seen:
            seen.append(order.ranks)
            yield order
    if (cluster.latency_s or cluster.relays) and world == len(graph.hosts):
        for algorithm, ranks in solved_orders(cluster, graph, admitted, (given, contiguous)):
            yield Order("solved", "solved", ranks, algorithm)


def _codecs(graph: Network, promise: Promise) -> Iterator[tuple[Codec, tuple[tuple[int, int], ...]]]:
    yield "none", ()
    links = graph.slow_pairs() or graph.remote_pairs()
    if promise.codec and links:
        yield promise.codec, links


def builder_of(plan: Plan) -> str:
    """Name of the builder of a plan with one route for all buckets: its algorithm's, as in labels."""
    algorithm = name(plan.buckets[0].route)
    return TITLES.get(algorithm, algorithm).replace("_", "-").replace(" ", "-")
