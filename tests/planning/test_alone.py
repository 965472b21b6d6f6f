"""Whether `hocket plan` lets ranks step alone: where the network forbids to exchange every step, and as seldom as it needs."""

from __future__ import annotations

import re

import msgspec
import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.learning import learning_of
from hocket.artefacts.local import Local, every, localized
from hocket.artefacts.plan import Begun, Due, Outer, Plan, Schedule, Traced, Turn
from hocket.artefacts.plan_check import check, findings
from hocket.artefacts.promise import Promise
from hocket.errors import ArtefactError
from hocket.planning import alone, delays, schedules, search
from hocket.planning.traced import has_policies
from hocket.tools.simulation import shortlist
from tests.planning.test_delays import planned, profile

SLOW_S = 0.03
"""Computation of an iteration that waits for half a second."""


def test_ranks_exchange_as_often_as_the_network_lets_them() -> None:
    """Broken: ranks would train apart for longer than need be, or wait although they may step alone."""
    plain, plan = planned(SLOW_S, Promise("local", local=500))
    assert plan.schedule.steps == "local"
    assert plan.promise == "local"
    assert plan.predicted_step_s <= (1 + alone.WAITS) * SLOW_S < plain.predicted_step_s
    fewer = Local(every=every(plan.schedule) // 2)
    assert fewer.every >= 2
    _, other = planned(SLOW_S, Promise("local", local=fewer.every))
    assert every(other.schedule) == fewer.every
    assert other.predicted_step_s > (1 + alone.WAITS) * SLOW_S
    check(plan)
    assert f"once in {every(plan.schedule)} steps" in plan.reason
    assert plan.label.endswith(f"alone for {every(plan.schedule)} steps")


def test_steps_go_on_under_an_exchange_where_the_promise_lets_them() -> None:
    """Broken: the time of an exchange would be waited for, or steps be late that nobody allowed."""
    _, waits = planned(SLOW_S, Promise("local", local=60))
    _, goes_on = planned(SLOW_S, Promise("local", local=60, delay=30))
    assert waits.schedule.delay_max == 0 < goes_on.schedule.delay_max
    assert goes_on.predicted_step_s < waits.predicted_step_s


def test_progress_is_shortened_where_the_promise_lets_policies_round() -> None:
    """Broken: ranks would step alone for longer than need be, or by a policy that nobody allowed."""
    _, whole = planned(SLOW_S, Promise("local", local=500))
    _, short = planned(SLOW_S, Promise("local", local=500, loss="any"))
    _, sparse = planned(SLOW_S, Promise("local", local=8, loss="any"))
    _, other = planned(0.3, Promise("local", local=500, loss="any"))
    assert 200 < every(whole.schedule) < 500
    assert not has_policies(whole)
    four = Traced(policy="double_squeeze", parameters={"bits": 4})
    # With more computation, four bits would not halve the steps of eight: nothing is rounded for so little.
    assert [{each.route for each in plan.buckets} for plan in (short, sparse, other)] == [
        {four},
        {Traced(policy="top_k")},
        {Traced(policy="double_squeeze")},
    ]
    assert every(short.schedule) <= every(whole.schedule) / 2
    assert "by double_squeeze in 4 bits" in short.reason
    assert short.predicted_step_s <= (1 + alone.WAITS) * SLOW_S
    for plan in (short, sparse):
        check(plan)
        assert plan.promise == "lossy"


SITES = Cluster(
    hosts=tuple(Host(name=f"h{at}", rack=f"site{at // 2}", bandwidth_bit_per_s=1e9) for at in range(8)),
    racks=tuple(Rack(name=f"site{at}", uplink_bit_per_s=1e8, uplink_latency_s=0.0125) for at in range(4)),
)


def on_sites(promise: Promise, sites: Cluster = SITES) -> Plan:
    of = msgspec.structs.replace(profile(0.1, (400_000,) * 8), world=8)
    found = search.considered(sites, of, 8, promise=promise)
    best = found.explained(found.best)
    simulated_s = shortlist.alone_on(sites, 8, of)
    return alone.instead_of(best, best, found.question.graph, of, promise, simulated_s=simulated_s)


def test_sites_send_codes_of_their_sums() -> None:
    """Broken: each rank of a site would send its own codes over the slow link, or racks be summed where there are none."""
    plan = on_sites(Promise("local", local=500, delay=8, loss="any"))
    assert {each.route.parameters.get("levels") for each in plan.buckets} == {2}
    check(plan)
    assert plan.predicted_step_s <= (1 + alone.WAITS) * 0.1
    flat = Cluster(
        hosts=tuple(msgspec.structs.replace(each, bandwidth_bit_per_s=5e7) for each in SITES.hosts)
    )
    flat = Cluster(hosts=tuple(msgspec.structs.replace(each, rack="rack0") for each in flat.hosts))
    other = on_sites(Promise("local", local=500, delay=8, loss="any"), flat)
    assert {each.route.parameters.get("levels") for each in other.buckets} == {None}


@pytest.mark.parametrize(
    ("codec", "links"), [("int8", 7), ("int4", 7), ("sparse_int2", 7), ("double_squeeze", 1.75)]
)
def test_codes_of_all_ranks_are_counted(codec: str, links: float) -> None:
    """Broken: a codec would be chosen for the bytes of one rank's codes, where a link carries those of all."""

    def exchange_s(world: int) -> float:
        cluster = Cluster(hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=1e7) for at in range(world)))
        of = msgspec.structs.replace(profile(SLOW_S), world=world)
        found = search.considered(cluster, of, world, promise=Promise("local", local=500))
        plan = localized(alone.coded(found.explained(found.best), codec), Local(every=4))
        predicted_s = alone.steady(plan, found.question.graph, of).iteration_s
        assert shortlist.alone_on(cluster, world, of)(plan) == pytest.approx(predicted_s, rel=0.06)
        return 4 * (predicted_s - SLOW_S)

    assert exchange_s(8) / exchange_s(2) == pytest.approx(links, rel=0.06)


def test_the_progress_that_pays_is_said() -> None:
    """Broken: what is not known of learning would pass as known."""
    promise = Promise("local", local=500)
    plain, unknown = planned(SLOW_S, promise)
    found = re.search(
        r"more than (0\.\d\d) of a synchronous one's progress, which is not known beforehand", unknown.reason
    )
    assert found is not None
    # Gates hide some of the synchronous plan's communication.
    worth = float(found[1])
    assert unknown.predicted_step_s / plain.predicted_step_s <= worth < 0.5
    learning = learning_of("sgd,rate=0.1,noise_scale=2")
    _, known = planned(SLOW_S, promise, msgspec.structs.replace(learning, ranks=4))
    assert "it makes 0.50 at least" in known.reason
    assert "pays in any case, as long as ranks do not drift apart" in known.reason
    _, noisy = planned(0.2, promise, msgspec.structs.replace(learning, ranks=4, noise_scale=1e6))
    assert "it makes 0.25 at least, what a rank learns by itself: the guard judges" in noisy.reason


@pytest.mark.parametrize(
    ("compute_s", "promise"), [(20.0, Promise("local", local=30)), (SLOW_S, Promise("lossy"))]
)
def test_nobody_steps_alone_for_nothing(compute_s: float, promise: Promise) -> None:
    """Broken: training would be another where that is not faster, or not allowed."""
    _, plan = planned(compute_s, promise)
    assert plan.schedule.steps != "local"


def test_merging_that_is_as_fast_is_preferred() -> None:
    """Broken: ranks would train apart although they could step together in the same time."""
    promise = Promise("local", local=3, merge=2, delay=1)
    _, plan = planned(0.4, promise)
    assert plan.schedule.steps != "local"
    assert "not faster" in plan.reason


def test_a_check_imposes_the_steps_that_are_allowed() -> None:
    """Broken: `hocket check` would judge another training than the one that was asked about."""
    plain, _ = planned(1.0, Promise("exact"))
    made = delays.imposed(plain, Promise("local", local=30, delay=2), "one")
    assert every(made.schedule) == 30
    assert made.schedule.delay_max == 2
    assert schedules.merge_of(made.schedule) == 30
    assert made.evidence.efficiency is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"outer": None}, "an outer optimizer belongs to steps that are local"),
        ({"steps": "one"}, "an outer optimizer belongs to steps that are local"),
        ({"outer": Outer(rate=0.0)}, "an outer rate of 0 and momentum of 0"),
        ({"outer": Outer(momentum=1.0)}, "an outer rate of 1 and momentum of 1"),
        ({"outer": Outer(nesterov=True)}, "Nesterov's is above 0"),
        ({"outer": Outer(mix=1.5)}, "a mix of 1.5: from 0 to 1"),
        ({"turns": ()}, "a period of 4 iterations, and no turns"),
        ({"turns": ((Turn(first=0, last=3, due=Due(iteration=3)),),)}, "leave at the end of an iteration"),
        (
            {
                "turns": (
                    (Turn(first=0, last=3, sent=Begun(iteration=4, point="begin"), due=Due(iteration=4)),),
                ),
                "delay_max": 1,
            },
            "leave at the end of an iteration",
        ),
        ({"overlap": "gates"}, "not with gates"),
    ],
)
def test_schedules_that_cannot_be_are_named(changed: dict[str, object], said: str) -> None:
    """Broken: a slip in a plan would end in a traceback, or train something else."""
    plan = localized(one_bucket(), Local(every=4))
    check(plan)
    wrong = msgspec.structs.replace(plan, schedule=msgspec.structs.replace(plan.schedule, **changed))
    assert any(said in found.message for found in findings(wrong)), list(findings(wrong))
    with pytest.raises(ArtefactError):
        check(wrong)


def test_a_promise_that_lacks_it_is_not_kept() -> None:
    """Broken: a plan of steps alone could be given where results are to be exact."""
    plan = localized(one_bucket(), Local(every=4, late=1))
    assert plan.promise == "local"
    for promise in ("exact", "delayed", "uncorrected"):
        wrong = msgspec.structs.replace(plan, promise=promise)
        assert any("does not allow local=4" in found.message for found in findings(wrong))


def one_bucket() -> Plan:
    plain, _ = planned(1.0, Promise("exact"))
    whole = msgspec.structs.replace(plain.buckets[0], parts=plain.buckets[0].parts)
    return msgspec.structs.replace(plain, buckets=(whole,), schedule=Schedule())
