"""Workers on a Ray cluster: places are reserved, ranks assigned so that those of one node are neighbours, and actors ended.

Nothing stays in the cluster, however training ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hocket.errors import RendezvousError
from hocket.job.host import job_names
from hocket.ray.config import ScalingConfig
from hocket.ray.worker import Place, Worker

END_S = 10.0
"""Longest wait for the end of killed actors."""
OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
"""Resources for which Ray's options have names of their own."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """Rank with its actor, the actor's place, and its host's name in the job."""

    rank: int
    actor: Any
    place: Place
    host: str

    def __str__(self) -> str:
        """Return a description for people."""
        return (
            f"rank {self.rank} on {self.host} (process {self.place.process}, node {self.place.node[:8]} "
            f"at {self.place.address})"
        )


@contextlib.contextmanager
def started(scaling: ScalingConfig, timeout_s: float) -> Iterator[tuple[Member, ...]]:
    """Start actors, by rank, which are killed at the end.

    Raises:
        RendezvousError: the cluster has no room for the actors within that time, or one cannot start.
    """
    deadline_s = time.monotonic() + timeout_s
    bundle = {name: float(amount) for name, amount in scaling.resources_per_worker.items() if amount}
    group = placement_group([bundle] * scaling.num_workers, strategy=scaling.placement_strategy)
    actors: list[Any] = []
    try:
        if not group.wait(timeout_s):
            raise RendezvousError(_no_room(scaling, bundle, timeout_s))
        for at in range(scaling.num_workers):
            actors.append(_actor(bundle, group, at))
        places = _places(actors, max(1.0, deadline_s - time.monotonic()), timeout_s)
        yield dealt(actors, places)
    finally:
        _end(actors)
        remove_placement_group(group)


def dealt(actors: Sequence[Any], places: Sequence[Place]) -> tuple[Member, ...]:
    """Assign ranks: those of a node are neighbours, and so are nodes of one machine, in the order of their addresses."""
    order = sorted(range(len(places)), key=lambda at: (places[at].address, places[at].node, at))
    machines = list(dict.fromkeys(places[at].identity for at in order))
    order.sort(key=lambda at: machines.index(places[at].identity))
    hosts = job_names([places[at].host for at in order], [places[at].identity for at in order])
    return tuple(
        Member(rank=rank, actor=actors[at], place=places[at], host=hosts[rank])
        for rank, at in enumerate(order)
    )


def _actor(bundle: Mapping[str, float], group: PlacementGroup, at: int) -> Any:
    named = {
        option: bundle.get(name, 0) for name, option in OPTIONS.items() if name != "memory" or name in bundle
    }
    others = {name: amount for name, amount in bundle.items() if name not in OPTIONS}
    return (
        ray.remote(Worker)
        .options(
            **named,
            resources=others,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=at),
        )
        .remote()
    )


def _places(actors: Sequence[Any], left_s: float, timeout_s: float) -> list[Place]:
    asked = [actor.place.remote() for actor in actors]
    ready, late = ray.wait(asked, num_returns=len(asked), timeout=left_s)
    try:
        found = [ray.get(each) for each in ready]
    except RayError as error:
        raise RendezvousError(
            f"a worker cannot start: {said(error)}\nhint: install Hocket, in the same version, on every node of the cluster"
        ) from error
    if late:
        raise RendezvousError(
            f"{len(late)} of {len(asked)} workers did not start within {timeout_s:g} s, though they have their places\n"
            "hint: see the cluster's logs; HOCKET_START_TIMEOUT_S gives them longer"
        )
    by_reference = dict(zip(ready, found, strict=True))
    return [by_reference[each] for each in asked]


def said(error: BaseException) -> str:
    """Return the sentence of Ray's message that says what happened."""
    if isinstance(error, GetTimeoutError):
        return "Ray did not answer in time"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, RayActorError):
        about = [
            at
            for at, line in enumerate(lines)
            if line.startswith(("The actor died because", "The actor is dead because"))
        ]
        # The rest is advice for all cases.
        return " ".join(lines[about[-1] :] if about else lines[-1:]).partition(" Some common causes")[0]
    return lines[-1] if lines else type(error).__name__


def _no_room(scaling: ScalingConfig, bundle: Mapping[str, float], timeout_s: float) -> str:
    """Return a message that says what is missing."""
    total, free = ray.cluster_resources(), ray.available_resources()
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    each = ", ".join(f"{amount:g} {name}" for name, amount in bundle.items())
    found = [
        f"{amount * scaling.num_workers:g} {name} are needed, of {total.get(name, 0):g} in the cluster "
        f"{free.get(name, 0):g} are free, and a node has at most {max(node.get(name, 0) for node in nodes):g}"
        for name, amount in bundle.items()
    ]
    return (
        f"there is no room for {scaling.num_workers} x {each} ({scaling.placement_strategy}) within {timeout_s:g} s: "
        f"{'; '.join(found)}\n"
        "hint: ask for less, or start more nodes; HOCKET_START_TIMEOUT_S gives a growing cluster longer"
    )


def _end(actors: Sequence[Any]) -> None:
    """Kill actors, and wait until they are gone."""
    last = []
    for actor in actors:
        with contextlib.suppress(RayError):
            last.append(actor.place.remote())
            ray.kill(actor, no_restart=True)
    if last:
        ray.wait(last, num_returns=len(last), timeout=END_S)
