"""A plan for another number of workers: what the planner would have chosen by the same rules, or a refusal."""

import msgspec
import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import AllReduce
from hocket.artefacts.promise import EXACT, ROUNDED
from hocket.errors import UsageError
from hocket.planning.compile import programs
from hocket.planning.rescaled import rescaled
from hocket.planning.search import candidates
from tests.planning.planner_inputs import alternating, model


def hosts(cluster):
    return [host.name for host in cluster.hosts for _ in range(host.slots)]


def grown(plan, old, new, workers):
    return rescaled(plan, workers, new, made_for=old, hosts=hosts(old)[: plan.world])


def changed(plan, **fields):
    return msgspec.structs.replace(
        plan,
        buckets=tuple(msgspec.structs.replace(bucket, **fields) for bucket in plan.buckets),
    )


def pairs(count):
    return Cluster(hosts=tuple(Host(name=f"h{at}", slots=2, bandwidth_bit_per_s=1e9) for at in range(count)))


@pytest.mark.parametrize("promise", [EXACT, ROUNDED], ids=str)
@pytest.mark.parametrize(
    ("old", "new", "workers"),
    [
        (alternating(), alternating(hosts=8), 8),
        (alternating(hosts=8), alternating(hosts=6), 6),
        (pairs(2), pairs(5), 9),
    ],
)
def test_each_choice_is_the_same_choice_for_more_workers(old, new, workers, promise):
    """What is predicted would be of a plan that nobody would have made: groups across racks, a codec on the wrong links."""
    wanted = {plan.label: plan for plan in candidates(new, model(), workers, promise=promise)}
    considered = candidates(old, model(), len(hosts(old)), promise=promise)
    assert {plan.label for plan in considered} == set(wanted)
    for plan in considered:
        found = grown(plan, old, new, workers)
        assert found.world == workers
        assert found.buckets == wanted[plan.label].buckets, plan.label


def test_the_programs_of_a_rescaled_plan_are_right():
    """A simulation would run programs that lose gradients or never end."""
    for plan in candidates(alternating(), model(2), 4):
        assert len(programs(grown(plan, alternating(), alternating(hosts=7), 7))) == len(plan.buckets)


def test_groups_of_hosts_are_known_without_a_cluster():
    """Runs without a cluster file, whose groups are their hosts, could not be asked about."""
    ring = candidates(pairs(2), model(1), 4)[0]
    plan = changed(ring, route=AllReduce(algorithm="two_level", sizes=(2, 2)))
    found = rescaled(plan, 6, pairs(3), made_for=None, hosts=["a", "a", "b", "b"])
    assert {bucket.route.sizes for bucket in found.buckets} == {(2, 2, 2)}
    servers = changed(ring, route=AllReduce(algorithm="parameter_server", sizes=(2,)))
    assert [bucket.route for bucket in grown(servers, pairs(2), pairs(3), 6).buckets] == [
        bucket.route for bucket in servers.buckets
    ]


@pytest.mark.parametrize(
    ("fields", "workers", "said"),
    [
        ({"order": (1, 0, 2, 3)}, 6, r"order \[1, 0, 2, 3\] is neither as hosts are listed nor rack by rack"),
        (
            {"route": AllReduce(algorithm="two_level", sizes=(1, 3))},
            6,
            "groups of 1, 3 ranks are neither the racks nor the",
        ),
        (
            {"route": AllReduce(algorithm="two_level", sizes=(2, 2))},
            2,
            "2 ranks of the cluster are not in several",
        ),
        (
            {"route": AllReduce(algorithm="parameter_server", sizes=(3,))},
            2,
            "3 ranks own the parts of a bucket: there are 2",
        ),
        ({"codec": "f16", "codec_links": ((0, 1),)}, 6, "links with f16 are neither the slow ones"),
        ({"codec": "f16", "codec_links": ((1, 2), (3, 0))}, 2, "f16 on links between hosts: 2 ranks of the"),
        ({}, 7, "7 ranks: the cluster's 3 hosts have 6 slots"),
    ],
)
def test_what_is_of_these_ranks_alone_is_refused(fields, workers, said):
    """A guess would be shown as a prediction."""
    plan = candidates(pairs(2), model(1), 4)[0]
    assert plan.buckets[0].route == AllReduce(algorithm="ring")
    plan = changed(plan, **fields)
    with pytest.raises(UsageError, match=said):
        grown(plan, pairs(2), pairs(3), workers)


def test_a_codec_on_links_of_an_unknown_cluster_is_refused():
    """Nobody could tell which links were slow."""
    plan = changed(candidates(pairs(2), model(1), 4)[0], codec="f16", codec_links=((1, 2), (3, 0)))
    with pytest.raises(UsageError, match="the cluster that it was made for is not known"):
        rescaled(plan, 6, pairs(3), made_for=None, hosts=hosts(pairs(2)))
