"""Assignment of ranks by the links between hosts, if these are known or can be measured before training begins.

The first workers of all hosts are a job of their own for a moment. They look at their network as any job does at its start, over
connections like those of training; Ray carries nothing but the answer.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from hocket.artefacts.cluster import Cluster
from hocket.errors import PeerError
from hocket.job.first_file import of_rank_0
from hocket.job.rendezvous import join
from hocket.measure.quick import ALIKE, HOSTS_MAX, HOSTS_MIN, quick
from hocket.planning.solved import WORTH
from hocket.ray.job import begin
from hocket.ray.order import RankOrder, in_a_ring
from hocket.ray.session import Reported, report
from hocket.ray.watch import Watch
from hocket.ray.workers import Member
from hocket.settings import Settings

log = logging.getLogger("hocket.ray")


def by_links(members: Sequence[Member], settings: Settings) -> tuple[tuple[Member, ...], RankOrder]:
    """Return workers with the ranks that are best for rings, and the reason. Workers of a host stay neighbours, and rank 0 stays.

    Args:
        members: workers; ranks of a host are neighbours.
        settings: settings of the job. It measures only if they allow it, and keeps an order that does not depend on links.

    Raises:
        PeerError: a worker was lost, or could not reach another one: training would fail at the same connection.
        RendezvousError: a worker does not answer.
        UsageError: the file of `HOCKET_CLUSTER` lacks a host.
    """
    given = tuple(member.host for member in members)
    firsts = [members[given.index(host)] for host in dict.fromkeys(given)]
    why = _not_needed(settings, len(firsts))
    if why is not None:
        order = RankOrder(hosts=given, reason=f"in the order of addresses: {why}")
        log.info("rank order: %s", order.reason)
        return tuple(members), order
    cluster = _known(firsts, settings)
    # A quick look cannot tell more; a file is the same each time.
    worth = 1 / ALIKE if settings.cluster is None else WORTH
    hosts, reason = in_a_ring(cluster, [member.host for member in firsts], worth)
    placed = sorted(members, key=lambda member: hosts.index(member.host))
    ranked = tuple(dataclasses.replace(member, rank=rank) for rank, member in enumerate(placed))
    order = RankOrder(hosts=tuple(member.host for member in ranked), reason=reason, cluster=cluster)
    log.log(logging.INFO if order.hosts == given else logging.WARNING, "rank order: %s", reason)
    return ranked, order


def _not_needed(settings: Settings, hosts: int) -> str | None:
    """Return the reason why ranks are not assigned by links; None: they are."""
    if settings.plan is not None:
        return "a plan is given, with orders of its own"
    if settings.besides:
        return "the last workers serve or help"
    if hosts < HOSTS_MIN:
        return f"{hosts} host{'s' if hosts > 1 else ''}, between which all rings are alike"
    if settings.cluster is not None:
        return None
    if not settings.autopilot:
        return "HOCKET_AUTOPILOT=0, so nothing is measured"
    return f"{hosts} hosts are too many for a quick look" if hosts > HOSTS_MAX else None


def _known(firsts: Sequence[Member], settings: Settings) -> Cluster:
    """Return the network between hosts, from a worker of each."""
    job = [dataclasses.replace(member, rank=rank) for rank, member in enumerate(firsts)]
    found: list[Cluster] = []

    def take(_rank: int, reported: Reported) -> None:
        found.append(reported.metrics["cluster"])

    try:
        # The trace is for training alone.
        begin(job, _look, (), dataclasses.replace(settings, trace=None, trace_steps=None, trace_bytes=None))
        Watch(job, take).until_the_end()
    except PeerError as error:
        # Ranks here are not the job's ranks.
        raise PeerError(
            f"links could not be measured before training: {error}", host=error.host, why=error.why
        ) from None
    return found[0]


def _look() -> None:
    """Run on a worker of each host: rank 0 reports the cluster, from the settings' file, else as all of them see it."""
    with join() as job:
        cluster = of_rank_0(job, "cluster", job.settings.cluster, Cluster)
        if cluster is None:
            engine = job.engine()
            try:
                cluster = quick(job, engine)
            finally:
                engine.close()
        if job.rank == 0:
            report({"cluster": cluster})
