"""A rank that comes later than all others joins last: near the least time of any algorithm, in virtual time."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest

from benches.directions.rows import BIT_PER_S
from benches.late.cases import COMPUTED_S, Case
from benches.late.rows import LATE, NEAR, SIMULATED_BYTES, planned, simulated_s
from hocket.artefacts.plan import AllReduce
from hocket.artefacts.profile import RankStep
from hocket.planning.late import bound_s, late_of, predicted_s, shares
from hocket.planning.search import candidates
from hocket.tools.simulation import flow
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.networks import from_cluster


@pytest.mark.parametrize("world", [4, 8])
def test_the_end_is_near_the_bound(world: int) -> None:
    """Broken: the others would idle while they wait for a late rank, and send afterwards what they could have sent before."""
    for of_ring in LATE:
        case = Case(world, BIT_PER_S[world], SIMULATED_BYTES, of_ring)
        plan = planned(case)
        taken_s = simulated_s(case, plan)
        assert taken_s <= NEAR * case.bound_s, (of_ring, taken_s / case.bound_s, plan.label)
        ring = next(each for each in candidates(case.cluster, case.profile, world) if "ring" in each.label)
        ring_s = simulated_s(case, ring)
        assert taken_s <= 1.001 * ring_s
        assert plan.label.startswith(f"rank {case.rank} joins last")
        if 0.25 <= of_ring <= 1:
            assert taken_s < 0.87 * ring_s
        late = late_of(case.profile, world)
        assert late is not None
        assert late.rank == case.rank
        graph = from_cluster(case.cluster, world)
        for each, step_s, off in ((plan, taken_s, 0.1), (ring, ring_s, 0.01)):
            closed_s = predicted_s(each, graph, case.profile, late)
            assert abs(closed_s / (step_s + COMPUTED_S) - 1) < off, (of_ring, each.label)


def test_shares_fill_links_until_the_bound() -> None:
    """Broken: the late rank would own more than it can still send, or less than the others have no room for."""
    for late_s in (0.0, 0.3, 0.7, 2.0):
        rates = [(8.0, 8.0)] * 4
        least_s = bound_s(1.0, rates, 3, late_s)
        assert least_s == pytest.approx(max(late_s + 1.0, (6.0 + late_s) / 4))
        spread = shares(1.0, rates, 3, late_s)[4:]
        part = [each / sum(spread) for each in spread]
        # What each sends, after it has begun.
        ends_s = [1 + 2 * each + (late_s if rank == 3 else 0.0) for rank, each in enumerate(part)]
        assert max(ends_s) <= max(1.02 * least_s, 1 + 2 / 3)


def test_nobody_is_late() -> None:
    """Broken: chance in a profile would decide on a plan, or steps of other ranks than those of the plan."""
    case = Case(4, BIT_PER_S[4], SIMULATED_BYTES, 1.0)
    near = msgspec.structs.replace(
        case.profile, ranks=tuple(RankStep(step_s=1 + 0.01 * rank) for rank in range(4))
    )
    assert late_of(near, 4) is None
    assert late_of(case.profile, 3) is None
    assert late_of(msgspec.structs.replace(case.profile, ranks=()), 4) is None
    plan = planned(replace(case, of_ring=0.0))
    assert isinstance(plan.buckets[0].route, AllReduce)
    assert "joins last" not in plan.label


def test_ranks_begin_late_in_simulations() -> None:
    """Broken: `hocket simulate --late` would be of a rank that computes longer, or count once in several steps."""
    case = Case(4, BIT_PER_S[4], SIMULATED_BYTES, 0.0)
    network, plan = from_cluster(case.cluster, 4), planned(case)

    def steps_s(late_s: float, steps: int) -> float:
        conditions = Conditions(late=((2, late_s),))
        run = flow.predict(plan, network, case.profile, conditions=conditions, steps=steps)
        return run.outcome.step_s

    plain_s = flow.predict(plan, network, case.profile).outcome.step_s
    for steps in (1, 3):
        late_s = steps_s(1.0, steps)
        assert plain_s + 0.5 < late_s <= plain_s + 1.0 + 1e-9
    assert math.isclose(steps_s(0.0, 1), plain_s)
