"""Scenarios of training on real ranks, against one trainer of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sessions import jobs, oracle
from tests.sessions.jobs import Trained
from tests.sessions.scenarios import DEVICE, TORCH, Scenario, drawn, written
from tests.support.drawn import cases

CASES = cases(40)
AT_ONCE = 500
TOLERANCE = 1e-9


def assert_trained(each: Trained) -> None:
    """Replicas are equal to the bit, and what one process would train."""
    scenario = each.scenario
    most = max(each.members, key=len)
    for rank, (values, members) in enumerate(zip(each.values, each.members, strict=True)):
        assert members == most[: len(members)], (scenario.label, "members", members)
        if scenario.plan != "local":
            assert np.array_equal(values, max(each.values, key=len)[: len(values)]), (
                scenario.label,
                "replicas differ",
            )
            wanted = oracle.expected(scenario, most)
        else:
            wanted = oracle.alone(scenario)[rank]
        for step, (own, right) in enumerate(zip(values, wanted, strict=False)):
            assert np.abs(own - right).max() < TOLERANCE, (
                scenario.label,
                rank,
                step,
                np.abs(own - right).max(),
            )


@pytest.mark.parametrize("world", range(1, 5))
def test_ranks_train_what_one_process_would(world: int, tmp_path: Path) -> None:
    """Broken: some plan, schedule or event would train another model, or another one on each rank."""
    chosen = [each for each in (*written(), *TORCH, *DEVICE) if each.world == world and each.commit == "none"]
    for each in jobs.trained(chosen, tmp_path):
        assert_trained(each)


@pytest.mark.parametrize(
    "scenario",
    [each for each in (*written(), *DEVICE) if each.commit == "barrier"],
    ids=lambda each: each.label,
)
def test_members_train_what_one_process_would(scenario: Scenario, tmp_path: Path) -> None:
    """Broken: a step of an elastic job would be another mean than that of its members."""
    (found,) = jobs.trained([scenario], tmp_path)
    assert_trained(found)


@pytest.mark.parametrize("first", range(1, CASES, AT_ONCE))
def test_drawn_scenarios_train_what_one_process_would(first: int, tmp_path: Path) -> None:
    """Broken: a gradient would be lost or applied twice in some mix that nobody has thought of."""
    for each in jobs.trained(drawn(min(CASES, AT_ONCE), 1000 * first), tmp_path):
        assert_trained(each)
