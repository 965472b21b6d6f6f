"""Search for the cheapest order of hosts for a Hocket program: its simulated step is the cost, whatever the program does.

The simulator covers effects that closed forms ignore (concurrent buckets, codecs, overlapping rounds), but takes milliseconds where
they take microseconds. Closed forms therefore provide the candidates, each for the collective that it models; simulation ranks
these, and anneals the best one for the given number of evaluations.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.network import restricted
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Gradient, Profile
from hocket.errors import UsageError
from hocket.planning.ordering.cluster import of_cluster
from hocket.planning.ordering.solve import ALGORITHMS, Considered, Ordering, Progress, Request, solve
from hocket.tools.simulation import flow
from hocket.tools.simulation.flow import Prepared
from hocket.tools.simulation.networks import from_cluster

CANDIDATE_EFFORT = 0.2
"""Effort of the searches by closed form: candidates need not be the best of their kind."""

COOLING = (0.03, 0.001)
"""Relative extra cost of a worse order that is accepted with probability 1/e, at first and in the end."""


def solve_program(
    plan: Plan,
    cluster: Cluster,
    *,
    profile: Profile | None = None,
    evaluations: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Ordering:
    """Return the cheapest order of hosts found for an otherwise unchanged plan; never costlier than the given one.

    Without a profile all gradients are ready at once, so that only communication counts. Raises UsageError when the plan is for
    another number of ranks, ArtefactError for a cluster that contradicts itself.
    """
    slots = sum(host.slots for host in cluster.hosts)
    if plan.world != slots:
        raise UsageError(f"order: the plan is for {plan.world} ranks, the cluster has {slots} slots")
    if len({host.slots for host in cluster.hosts}) > 1:
        raise UsageError("order: hosts with different slots cannot change places under one plan")
    search = _Search(plan, cluster, profile or _at_once(plan), progress, evaluations)
    given = tuple(range(len(cluster.hosts)))
    found = {given: search.cost_s(given)}
    considered = []
    for name, order in _candidates(plan, cluster, seed):
        if order not in found:
            found[order] = search.cost_s(order)
        considered.append(Considered(algorithm=name, groups=(), cost_s=found[order], order=order))
    start = min(found, key=lambda order: found[order])
    order, cost_s = search.anneal(start, found[start], seed)
    matrix = of_cluster(cluster)
    return Ordering(
        algorithm="program",
        groups=(),
        size_bytes=float(sum(each.elements * ITEM_BYTES[each.dtype] for each in plan.buckets)),
        order=order,
        hosts=tuple(matrix.hosts[host] for host in order),
        slots=tuple(cluster.hosts[host].slots for host in order),
        cost_s=cost_s,
        given_s=found[given],
        bound_s=0.0,
        proven=False,
        complete=True,
        seed=seed,
        notes=(*matrix.notes, f"{search.done} simulated steps of the program"),
        considered=tuple(sorted(considered, key=lambda each: each.cost_s)),
    )


class _Search:
    """Search with counted evaluations of one plan."""

    def __init__(
        self, plan: Plan, cluster: Cluster, profile: Profile, progress: Progress | None, evaluations: int
    ) -> None:
        self._plan, self._cluster, self._profile = plan, cluster, profile
        self._prepared = Prepared.of(plan, profile)
        self._progress, self._evaluations = progress, evaluations
        self.done = 0

    def cost_s(self, order: Sequence[int]) -> float:
        """Return the step time of an order."""
        network = from_cluster(restricted(self._cluster, order), self._plan.world)
        run = flow.predict(self._plan, network, self._profile, prepared=self._prepared)
        self.done += 1
        if self._progress is not None:
            self._progress(min(self.done, self._evaluations), self._evaluations, "program")
        return run.outcome.step_s

    def anneal(self, start: tuple[int, ...], start_s: float, seed: int) -> tuple[tuple[int, ...], float]:
        """Return the best order found so far."""
        draws = random.Random(seed)  # noqa: S311  # a search, not a secret
        order, order_s = list(start), start_s
        best, best_s = start, start_s
        turns = max(0, self._evaluations - self.done) if len(start) > 1 else 0
        first, last = (start_s * share for share in COOLING)
        for turn in range(turns):
            warmth = first * (last / first) ** (turn / turns)
            tried = _neighbour(order, draws)
            tried_s = self.cost_s(tried)
            if tried_s <= order_s or draws.random() < math.exp((order_s - tried_s) / warmth):
                order, order_s = tried, tried_s
            if tried_s < best_s:
                best, best_s = tuple(tried), tried_s
        return best, best_s


def _neighbour(order: Sequence[int], draws: random.Random) -> list[int]:
    """Return the order with two hosts swapped, or a stretch reversed or moved."""
    i, j = sorted(draws.sample(range(len(order)), 2))
    tried = list(order)
    match draws.randrange(3):
        case 0:
            tried[i], tried[j] = tried[j], tried[i]
        case 1:
            tried[i : j + 1] = tried[i : j + 1][::-1]
        case _:
            tried.insert(j, tried.pop(i))
    return tried


def _candidates(plan: Plan, cluster: Cluster, seed: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return the best orders of collectives with a closed-form cost, for the plan's largest bucket and for latency alone."""
    matrix = of_cluster(cluster)
    largest = max((each.elements * ITEM_BYTES[each.dtype] for each in plan.buckets), default=0)
    found: list[tuple[str, tuple[int, ...]]] = []
    for algorithm in ALGORITHMS:
        if algorithm == "auto":
            continue
        for size_bytes in dict.fromkeys((float(largest), 0.0)):
            request = Request(
                algorithm=algorithm,
                size_bytes=size_bytes,
                far_first=True,
                seed=seed,
                effort=CANDIDATE_EFFORT,
                restarts=1,
            )
            found.append((algorithm, solve(matrix, request).order))
    return found


def _at_once(plan: Plan) -> Profile:
    """Return the profile of a model without computation."""
    gradients = tuple(
        Gradient(name=name, shape=(), dtype=bucket.dtype, ready_s=0.0, needed_s=0.0)
        for bucket in plan.buckets
        for name in bucket.variables
    )
    return Profile(
        model="",
        world=plan.world,
        steps=1,
        forward_s=0.0,
        backward_s=0.0,
        optimizer_s=0.0,
        step_s=0.0,
        gradients=gradients,
    )
