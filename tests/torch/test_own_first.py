"""Late means with own gradients first: equal to a reference with a working copy for each rank, and one anchor on all."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.settings import Settings
from tests.support import drawn, ranks

pytestmark = pytest.mark.late

SCRIPTS = "tests.torch.own_first_scripts"
AT_ONCE = Settings(timeout_s=30, start_timeout_s=30, sentinel=False)
"""Schedules begin with the first iteration."""

WATCHED = Settings(timeout_s=30, start_timeout_s=30)
"""Schedules begin after some synchronous iterations."""

CASES = drawn.cases(12)
"""Of 120 or so: `HOCKET_FUZZ_CASES=1000` runs all."""


@pytest.mark.parametrize(
    ("script", "cases", "world"),
    [
        ("against_the_reference", CASES, 2),
        ("against_the_reference", CASES // 2, 4),
        ("with_buffers", CASES // 2, 2),
        ("with_buffers", CASES // 4, 4),
        ("with_closures", CASES // 2, 2),
        ("on_a_hostile_device", CASES // 4, 2),
        ("with_a_scaler", CASES, 2),
    ],
)
def test_ranks_train_what_the_reference_does(tmp_path: Path, script: str, cases: int, world: int) -> None:
    """Broken: own gradients would be lost, or doubled, when a mean arrives; or ranks would go apart for good."""
    ended = ranks.run(f"{SCRIPTS}:{script}", world, tmp_path, str(cases), settings=AT_ONCE)
    assert ended.outcome.code == 0, ended.output
    assert len(ended.returned) == world
    for found in ended.returned:
        assert len(found) >= min(cases, 60)
        assert [each[:4] for each in found if not max(each[1:4]) < 1e-6] == []
    first, *others = ([each[4] for each in found] for found in ended.returned)
    assert all(each == first for each in others)


@pytest.mark.parametrize("each", ["together", "each"])
def test_each_iteration_is_applied_once(tmp_path: Path, each: str) -> None:
    """Broken: a gradient would be lost, or doubled, where synchronous iterations end and own gradients go first."""
    ended = ranks.run(f"{SCRIPTS}:counted", 2, tmp_path, "33", each)
    assert ended.outcome.code == 0, ended.output
    for found in ended.returned:
        assert [own[:2] for own in found] == [[at, at] for at in [*range(1, 34), 33]]
        assert found[-1] == [33] * 4
        assert any(own[2] < own[0] for own in found)


@pytest.mark.parametrize("settings", [AT_ONCE, WATCHED], ids=["at once", "watched"])
@pytest.mark.parametrize("kind", ["own first", "alone"])
def test_plans_follow_one_another(tmp_path: Path, settings: Settings, kind: str) -> None:
    """Broken: a job that finds a better plan would lose gradients of the iteration in which it changes, or a rank's own ones."""
    ended = ranks.run(f"{SCRIPTS}:replanned", 2, tmp_path, kind, settings=settings)
    assert ended.outcome.code == 0, ended.output
    for found in ended.returned:
        made = len(found) - 1
        assert [own[:2] for own in found] == [[at, at] for at in [*range(1, made + 1), made]]
        assert found[-1] == [made] * 4
        assert any(own[2] < own[0] for own in found)


def test_a_job_goes_on_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    """Broken: a checkpoint would lose what a rank has apart from the others."""
    calls = [(f"{SCRIPTS}:resumed", kind) for kind in ("momentum", "adamw", "rmsprop")]
    ended = ranks.in_turn(calls, 2, tmp_path, settings=AT_ONCE)
    assert ended.outcome.code == 0, ended.output
    assert ended.returned == [[[True] * 4] * 3] * 2


def test_what_own_gradients_first_cannot_do_is_said(tmp_path: Path) -> None:
    """Broken: clipping would change a rank's own gradient alone, or a mean would undo what the script has written."""
    ended = ranks.run(f"{SCRIPTS}:refused", 2, tmp_path, settings=AT_ONCE)
    assert ended.outcome.code == 0, ended.output
    for said in ended.returned:
        for name, expected in {
            "clips what is scaled": "hint: scaler.unscale_(optimizer) before hk.clip_grad_norm_(model, …)",
            "scales in the middle": "hint: hk.flush(model) before a GradScaler is used for the first time",
            "clips itself": "hint: hk.clip_grad_norm_(model, …) clips both",
            "no zero_grad": "hint: optimizer.zero_grad() before each backward",
            "step twice": "hint: one step after each backward",
            "edits parameters": "hint: hk.flush(model) before parameters are changed or loaded",
            "edits after a flush": "nothing",
            "loads state": "hint: hk.flush(model) before it",
            "gates": "not with gates",
        }.items():
            assert expected in said[name], name


@pytest.mark.parametrize("settings", [AT_ONCE, WATCHED], ids=["at once", "watched"])
def test_rates_may_be_scaled(tmp_path: Path, settings: Settings) -> None:
    """Broken: the anchor would step with rates that are not scaled, or late gradients with rates of another step."""
    calls = [(f"{SCRIPTS}:scaled", steps) for steps in ("own first", "one")]
    ended = ranks.in_turn(calls, 2, tmp_path, settings=settings)
    assert ended.outcome.code == 0, ended.output
    assert ended.returned == [[True, True]] * 2


@pytest.mark.parametrize(
    ("lengths", "begins", "zeros"),
    [("1", "15", "0"), ("1", "16", "0"), ("1", "16", "1"), ("2", "15", "0"), ("1,3", "15", "1")],
)
def test_a_job_retreats_to_updates_in_time(tmp_path: Path, lengths: str, begins: str, zeros: str) -> None:
    """Broken: a training that goes wrong would lose gradients, or a rank's own ones, where it goes back to synchronous updates. If
    the script fills gradients with zeros in the iteration after a change, some would be applied twice, or refused."""
    ended = ranks.run(f"{SCRIPTS}:retreated", 2, tmp_path, lengths, begins, zeros, settings=WATCHED)
    assert ended.outcome.code == 0, ended.output
    for found, retreated, late in ended.returned:
        assert (retreated, late) == (True, 0)
        assert [own[:2] for own in found] == [[at, at] for at in [*range(1, 41), 40]]
        assert found[-1] == [40] * 4
