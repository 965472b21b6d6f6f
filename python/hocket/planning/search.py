"""The first planner: scores every combination of a few choices with the cost model and picks the fastest.

Given or rack-contiguous order, or one that is searched where latencies were measured; ring or two-level, on one host also
in place, and every other algorithm that a tuning of such a network has; no codec or f16 on slow links; several bucket
sizes. The rule for slow links is `LinkGraph.slow_pairs`: a path between two hosts is slow when its rate is below half that
of the fastest path between hosts. Deterministic: predictions that are equal to a microsecond go to the candidate that comes
first, and candidates come simplest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Literal

import msgspec

from hocket.artefacts.algorithms import BY_NAME, fitting
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import (
    SHARED_CHUNK_BYTES,
    Candidate,
    Codec,
    Plan,
    Synchroniser,
    chunk_bytes,
)
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.tuning import Tuning
from hocket.errors import UsageError
from hocket.planning.buckets import buckets
from hocket.planning.cost import Load, Prediction, predict_on
from hocket.planning.links import LinkGraph, link_graph
from hocket.planning.measured import Correction, correction_of
from hocket.planning.order import contiguous_order, given_order, placement
from hocket.planning.solved import solved_order
from hocket.planning.traffic import pairs
from hocket.policy.bucketing import bucketed

CodecPolicy = Literal["auto", "none", "f16"]
"""`auto`: also try f16 where a link is slow. `none`: never. `f16`: always: on slow links if there
are any, else between all hosts."""

BUCKET_BYTES = (1 << 20, 4 << 20, 16 << 20, None)
"""Sizes that are tried; None: the whole model."""

TITLES = {"in_place": "in place"}
"""In labels, where that is not the name with hyphens."""

BUCKETS_MAX = 1024
"""A size that would make more buckets than this is not tried."""


def plan(
    cluster: Cluster,
    profile: Profile | None,
    world: int,
    *,
    codec: CodecPolicy = "auto",
    tuning: Tuning | None = None,
) -> Plan:
    """The plan with the smallest predicted step time; its `candidates` name all that were scored.

    Args:
        cluster: the network.
        profile: the model; None: a neutral one, good only for comparing networks, since its gradients are no model's.
        world: number of ranks.
        codec: `auto`: f16 where a link is slow, if that is faster; `none`: never; `f16`: always.
        tuning: measured times, which correct the cost model if they come from such a network.

    Raises:
        UsageError: the world does not fit the cluster.
        ArtefactError: the cluster contradicts itself.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    >>> plan(Cluster(hosts=hosts), None, 2).order
    (0, 1)
    """
    profile = profile or neutral_profile()
    graph = link_graph(cluster, world)
    correction = None if tuning is None else correction_of(tuning, cluster, world, graph)
    scored = _candidates(cluster, profile, graph, codec, correction)
    best, prediction = min(scored, key=lambda entry: round(entry[1].step_s, 6))
    worst, refused = max(scored, key=lambda entry: entry[1].step_s)
    return msgspec.structs.replace(
        best,
        reason=_reason(best, prediction, worst, refused) + _by(tuning, correction),
        candidates=tuple(
            Candidate(label=each.label, predicted_step_s=each.predicted_step_s) for each, _ in scored
        ),
    )


def candidates(
    cluster: Cluster, profile: Profile | None, world: int, *, codec: CodecPolicy = "auto"
) -> list[Plan]:
    """Every plan that is considered, with its prediction, simplest first."""
    scored = _candidates(cluster, profile or neutral_profile(), link_graph(cluster, world), codec, None)
    return [each for each, _ in scored]


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


def with_codec(
    synchroniser: Synchroniser, codec: Codec, slow: tuple[tuple[int, int], ...], order: tuple[int, ...]
) -> Synchroniser:
    """The codec on those slow pairs that the algorithm uses."""
    used = pairs(synchroniser, order)
    links = tuple(pair for pair in slow if pair in used)
    return msgspec.structs.replace(synchroniser, codec=codec, codec_links=links)


def _candidates(
    cluster: Cluster, profile: Profile, graph: LinkGraph, codec: CodecPolicy, correction: Correction | None
) -> list[tuple[Plan, Prediction]]:
    if not profile.gradients:
        raise UsageError("profile: it has no gradients\nhint: has the model parameters that need them?")
    plans = []
    score = predict_on if correction is None else partial(predict_on, factor=correction.factor)
    algorithms = list(_algorithms(cluster, graph, frozenset() if correction is None else correction.measured))
    orders = {name: list(_orders(cluster, graph, name, sizes)) for _, name, sizes in algorithms}
    slowest_bit_per_s = graph.slowest_bit_per_s
    for codec_title, codec_name, slow in _codecs(graph, codec):
        for algorithm_title, algorithm, sizes in algorithms:
            for order_title, order in orders[algorithm]:
                chunk = SHARED_CHUNK_BYTES if algorithm == "in_place" else chunk_bytes(slowest_bit_per_s)
                synchroniser = Synchroniser(algorithm=algorithm, sizes=sizes, chunk_bytes=chunk)
                if codec_name != "none":
                    synchroniser = with_codec(synchroniser, codec_name, slow, order)
                    if not synchroniser.codec_links:
                        continue
                for size_title, grouped in _bucketings(profile):
                    titles = (order_title, algorithm_title, codec_title, size_title)
                    label = " ".join(title for title in titles if title)
                    each = _unscored(label, order, grouped, synchroniser)
                    plans.append((each, score(each.buckets, order, graph, profile)))
    return [
        (msgspec.structs.replace(each, predicted_step_s=prediction.step_s), prediction)
        for each, prediction in plans
    ]


def _orders(
    cluster: Cluster, graph: LinkGraph, algorithm: str, sizes: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    world = len(graph.hosts)
    given, contiguous = given_order(world), contiguous_order(cluster, world)
    yield "given", given
    if contiguous != given:
        yield "contiguous", contiguous
    if cluster.latency_s:
        solved = solved_order(graph, algorithm, sizes, (given, contiguous))
        if solved is not None:
            yield "solved", solved


def _algorithms(
    cluster: Cluster, graph: LinkGraph, measured: frozenset[str]
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Titles, algorithms and their numbers; in the contiguous order, in which ranks of a rack are next to one another."""
    places = placement(cluster, len(graph.hosts))
    hosts = [cluster.hosts[places[rank]] for rank in contiguous_order(cluster, len(graph.hosts))]
    fits = fitting("all_reduce", [host.name for host in hosts], [host.rack for host in hosts])
    # Two levels of racks: trunks carry less than with two levels of hosts.
    if "two_level.rack" in fits:
        fits.pop("two_level.host", None)
    for name, (algorithm, numbers) in fits.items():
        if BY_NAME[algorithm].proposed or name in measured:
            yield TITLES.get(algorithm, algorithm.replace("_", "-")), algorithm, numbers


def _codecs(
    graph: LinkGraph, policy: CodecPolicy
) -> Iterator[tuple[str, Codec, tuple[tuple[int, int], ...]]]:
    slow = graph.slow_pairs()
    if policy == "f16":
        slow = slow or graph.remote_pairs()
    if policy != "f16" or not slow:
        yield "", "none", ()
    if policy != "none" and slow:
        yield "f16", "f16", slow


def _bucketings(profile: Profile) -> Iterator[tuple[str, list[list[Gradient]]]]:
    """Gradients in the order backward makes them, split at each size; equal splits only once."""
    positions = {gradient.name: at for at, gradient in enumerate(profile.gradients)}
    backward = sorted(profile.gradients, key=lambda each: (each.ready_s, -positions[each.name]))
    seen: list[list[list[Gradient]]] = []
    for size in BUCKET_BYTES:
        grouped = bucketed(backward, size)
        if grouped not in seen and len(grouped) <= BUCKETS_MAX:
            seen.append(grouped)
            yield f"{size >> 20} MiB" if size else "one bucket", grouped


def _unscored(
    label: str, order: tuple[int, ...], grouped: list[list[Gradient]], synchroniser: Synchroniser
) -> Plan:
    return Plan(
        world=len(order),
        order=order,
        buckets=buckets(grouped, synchroniser),
        label=label,
        reason="",
        predicted_step_s=0.0,
    )


def _reason(best: Plan, chosen: Prediction, worst: Plan, refused: Prediction) -> str:
    load = chosen.bottleneck
    if load is None:
        return "One rank: nothing travels."
    waited = f"{_seconds(chosen.exposed_s)} of it waiting for communication"
    said = f"{best.label}: {_seconds(chosen.step_s)} a step predicted, {waited}; "
    said += f"the busiest link is {_carries(load)}."
    other = refused.bottleneck
    if refused.step_s > chosen.step_s and other is not None:
        said += f" The slowest candidate, {worst.label}, takes {_seconds(refused.step_s)}: {_carries(other)}."
    return said


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
