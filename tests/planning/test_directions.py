"""Rates that differ by direction: in files, in networks, in plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches.directions.cases import Case, homes, one_gradient, slow_cases, slow_hosts
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Directions, Host, Rack, both
from hocket.artefacts.network import GOODPUT, network
from hocket.artefacts.plan import AllReduce
from hocket.artefacts.promise import EXACT
from hocket.errors import ArtefactError
from hocket.planning.question import question_of
from hocket.planning.routes import name as _name
from hocket.planning.search import considered
from hocket.tools.bench.collectives.bound import bound_s
from hocket.tools.simulation.fidelity import predict
from hocket.tools.simulation.shortlist import chosen

SIZE_BYTES = 25_000_000
MBIT = 1e6
FILE = """
version = 1
[[racks]]
name = "a"
uplink_bit_per_s = [10e6, 30e6]
[[racks]]
name = "b"
[[hosts]]
name = "home"
rack = "a"
bandwidth_bit_per_s = [20e6, 100e6]
[[hosts]]
name = "office"
rack = "b"
bandwidth_bit_per_s = 1e9
"""


def test_a_file_has_one_rate_or_two(tmp_path: Path) -> None:
    """Broken: a home's fast direction would be planned at its slow one's rate, or the file be lost when it is written again."""
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    cluster = files.read(path, Cluster)
    files.write(path, cluster)
    assert files.read(path, Cluster) == cluster
    rates = {
        link.name: link.bit_per_s / GOODPUT for link in network(cluster).links if "memory" not in link.name
    }
    assert rates == pytest.approx(
        {
            "home out": 20e6,
            "home in": 100e6,
            "trunk of a out": 10e6,
            "trunk of a in": 30e6,
            "office out": 1e9,
            "office in": 1e9,
        }
    )


@pytest.mark.parametrize(
    ("rate", "why"),
    [
        ((0.0, 1e8), "`bandwidth_bit_per_s` of host home, out, is 0.0: it must be above 0 and finite"),
        (
            (1e8, 0.5),
            "`bandwidth_bit_per_s` of host home, in, is 0.5: it is a rate in bit/s, from 1 to 1e+18",
        ),
        (
            (1e8, float("nan")),
            "`bandwidth_bit_per_s` of host home, in, is nan: it must be above 0 and finite",
        ),
    ],
)
def test_a_direction_without_a_rate_is_named(rate: Directions, why: str) -> None:
    """Broken: a plan would wait forever for bytes that nothing carries, or the user look at the wrong direction."""
    other = Host(name="office", bandwidth_bit_per_s=1e9)
    with pytest.raises(ArtefactError) as refused:
        network(Cluster(hosts=(Host(name="home", bandwidth_bit_per_s=rate), other)))
    assert why in str(refused.value)
    with pytest.raises(ArtefactError, match="`uplink_bit_per_s` of rack rack0, out, is -1"):
        network(Cluster(hosts=(other,), racks=(Rack(name="rack0", uplink_bit_per_s=(-1, 1e9)),)))


@pytest.mark.parametrize("rates", ["[1e8]", "[1e8, 1e8, 1e8]", '["1", 2]', "{ up = 1e8 }"])
def test_rates_of_another_form_are_no_cluster(tmp_path: Path, rates: str) -> None:
    """Broken: a third number would be dropped, or a crash be the answer."""
    path = tmp_path / "cluster.toml"
    path.write_text(FILE.replace("[20e6, 100e6]", rates))
    with pytest.raises(ArtefactError, match=r"is not a cluster: .*bandwidth_bit_per_s"):
        files.read(path, Cluster)


def simulated(case: Case) -> tuple[float, str]:
    """Simulated time of the plan that `hocket plan` chooses over the bound, and its label."""
    profile = one_gradient(SIZE_BYTES, case.world)
    plan = chosen(considered(case.cluster, profile, case.world), case.cluster, profile)
    return predict(plan, case.cluster, profile).step_s / case.bound_s(SIZE_BYTES), plan.label


def test_homes_and_a_host_come_near_the_bound() -> None:
    """Broken: homes would be paced by each other's slow direction, as on a ring."""
    ratio, label = simulated(homes())
    assert ratio <= 1.06, label


@pytest.mark.parametrize("whole", [False, True], ids=["one direction", "both"])
def test_shares_by_rates_come_near_the_bound(whole: bool) -> None:
    """Broken: one slow host would slow an all-reduce of four or eight by more than its own link does."""
    ratios = {}
    for case in slow_cases(200 * MBIT, whole=whole):
        profile = one_gradient(SIZE_BYTES, case.world)
        question = question_of(case.cluster, profile, case.world, EXACT, None)
        plans = question.solved(0).uniform()
        by_rates = next(plan for plan in plans if _name(plan.buckets[0].route) == "collect_spread")
        ratios[case.name] = predict(by_rates, case.cluster, profile).step_s / case.bound_s(SIZE_BYTES)
    assert len(ratios) == 16
    assert max(ratios.values()) <= 1.07, ratios
    assert sum(ratio <= 1.06 for ratio in ratios.values()) >= 15, ratios


def test_the_plan_of_a_slow_host_comes_near_the_bound() -> None:
    """Broken: the planner would prefer a plan that only its closed form finds fast."""
    ratio, label = simulated(slow_hosts(4, 200 * MBIT, 0.75, 1))
    assert ratio <= 1.06, label


def test_the_bound_is_that_of_each_direction() -> None:
    """Broken: benchmarks would be compared with less than hosts must send, or more."""
    for whole in (False, True):
        for case in slow_cases(200 * MBIT, whole=whole):
            found = bound_s("all_reduce", SIZE_BYTES, case.cluster)
            assert found is not None
            assert found == pytest.approx(case.bound_s(SIZE_BYTES) * GOODPUT)
    assert both(homes().cluster.hosts[0].bandwidth_bit_per_s) == (20e6, 100e6)


def test_a_slow_direction_alone_gets_less_to_do() -> None:
    """Broken: a host that sends slowly would be asked to spread what it collects."""
    case = next(iter(slow_cases(200 * MBIT, (4,))))
    solved = question_of(case.cluster, one_gradient(SIZE_BYTES, 4), 4, EXACT, None).solved(0)
    routes = [plan.buckets[0].route for plan in solved.uniform()]
    shares = [
        each.sizes for each in routes if isinstance(each, AllReduce) and _name(each) == "collect_spread"
    ]
    assert shares[0][3] == max(shares[0][:4])
    assert 0 < shares[0][7] < shares[0][4]
