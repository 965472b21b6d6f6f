"""A `GradScaler` beside merged and late gradients: equal to a reference that skips what overflows on any rank, as far as it arrives
together. Own gradients first are compared in `test_own_first.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.settings import Settings
from tests.support import drawn, ranks

SCRIPTS = "tests.torch.scaler_scripts"
AT_ONCE = Settings(timeout_s=30, start_timeout_s=30, sentinel=False)
WATCHED = Settings(timeout_s=30, start_timeout_s=30, guard="off")
CASES = drawn.cases(18)
KINDS = ("own first", "one")


def returned(script: str, directory: Path, *arguments: str, settings: Settings = AT_ONCE) -> list[Any]:
    ended = ranks.run(f"{SCRIPTS}:{script}", 2, directory, *arguments, settings=settings)
    assert ended.outcome.code == 0, ended.output
    return list(ended.returned)


def test_what_overflows_is_left_out_by_all(tmp_path: Path) -> None:
    """Broken: a rank would step where others do not, with gradients of another factor, or with infinity."""
    for found in returned("late_against_the_reference", tmp_path, str(CASES)):
        assert len(found) >= min(CASES, 100)
        assert [each for each in found if not each[1] < 1e-9] == []


@pytest.mark.parametrize("steps", KINDS)
def test_a_job_goes_on_in_the_middle_of_a_turn(tmp_path: Path, steps: str) -> None:
    """Broken: sums of a checkpoint would be taken for those of another factor."""
    assert returned("resumed", tmp_path, steps) == [[True] * 4] * 2


@pytest.mark.parametrize("steps", KINDS)
def test_overflows_are_no_alarm(tmp_path: Path, steps: str) -> None:
    """Broken: each change of the factor would look as if training went wrong, and late gradients would end."""
    first, second = returned("watched", tmp_path, steps, settings=WATCHED)
    assert first == second
    assert not first["retreated"]
    assert first["late"] > 60
    falls = sum(after < before for before, after in zip(first["scales"], first["scales"][1:], strict=False))
    assert falls > 5


@pytest.mark.parametrize("steps", KINDS)
def test_other_factors_on_ranks_are_noticed(tmp_path: Path, steps: str) -> None:
    """Broken: means would be of numbers with different factors, without a word."""
    for said in returned("of_other_factors", tmp_path, steps):
        assert "`scale` of group 0 is 32.0, not 16.0 as on" in said


def test_an_overflow_of_one_rank_leaves_no_trace(tmp_path: Path) -> None:
    """Broken: infinity would stay in a rank's own parameters, or in the anchor."""
    assert returned("overflowing_alone", tmp_path) == [[[True, True]] * 30] * 2


def test_a_scaler_waits_for_gates(tmp_path: Path) -> None:
    """Broken: each rank would unscale gradients that are not reduced yet, and step by its own."""
    for without, gated in returned("at_gates", tmp_path):
        assert without == gated
