"""Jobs whose scripts late gradients do not go with: each ends, and says on which rank, why, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.settings import Settings
from tests.support import ranks
from tests.torch.refused_scripts import BATCH, written

SCRIPT = "tests.torch.refused_scripts:looped"


def run(kind: str, directory: Path, world: int = 2, **changed: int) -> ranks.Ended:
    """By two ranks, as `hocket run --plan` starts them. Without a sentinel, schedules begin with the first iteration."""
    path = directory / "plan.json"
    written(path, world, **changed)
    settings = Settings(timeout_s=30, start_timeout_s=30, sentinel=False, plan=str(path))
    return ranks.run(SCRIPT, 2, directory, kind, settings=settings)


def test_the_workload_that_a_schedule_was_made_for_trains(tmp_path: Path) -> None:
    """Broken: plans would be refused where they fit."""
    ended = run("plain", tmp_path)
    assert ended.outcome.code == 0, ended.output
    assert ended.returned == [3, 3]


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        (
            "plain",
            {"batch": 2 * BATCH},
            ("8 samples per backward, and rank ", " has 4", "`hocket plan` again"),
        ),
        ("accumulates", {}, ("1 backwards per iteration, and rank ", " has 2", "`hocket plan` again")),
        ("plain", {"world": 3}, ("the plan is for 3 ranks, the job has 2", "make a new plan")),
    ],
)
def test_a_job_that_late_gradients_do_not_go_with_ends(
    kind: str, changed: dict[str, int], said: tuple[str, ...], tmp_path: Path
) -> None:
    """Broken: a job would train with batches or gradients that nobody has judged, hang, or not say what to do."""
    ended = run(kind, tmp_path, **changed)
    assert ended.outcome.code != 0, ended.output
    assert ended.returned == [None, None]
    for part in said:
        assert part in ended.output, ended.output
