"""What guards late gradients on real ranks: the guard with the live optimizer, the sentinel, retreats to safer schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hocket.artefacts.change import Change
from hocket.artefacts.trace import changes_file
from hocket.settings import Settings
from tests.support import ranks

pytestmark = pytest.mark.late

SCRIPTS = "tests.torch.oversight_scripts"
GUARDED = Settings(timeout_s=30, start_timeout_s=30)
UNGUARDED = Settings(timeout_s=30, start_timeout_s=30, guard="off")
UNWATCHED = Settings(timeout_s=30, start_timeout_s=30, sentinel=False)
WINDOW = 10


def changes(trace: Path) -> list[Change]:
    return [msgspec.json.decode(line, type=Change) for line in changes_file(trace).read_bytes().splitlines()]


def descended(directory: Path, settings: Settings, *arguments: str) -> list[Any]:
    ended = ranks.run(f"{SCRIPTS}:descended", 2, directory, *arguments, settings=settings)
    assert ended.outcome.code == 0, ended.output
    assert ended.returned[0] == ended.returned[1]
    far, merged, delay, retreated, (made, applied) = ended.returned[0]
    assert made == applied
    return [far, merged, delay, retreated, ended.output]


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> float:
    directory = tmp_path_factory.mktemp("diverged")
    return float(descended(directory, UNWATCHED, "flat", "alone", "200")[0])


def test_a_schedule_that_would_diverge_is_not_used(tmp_path: Path, diverged: float) -> None:
    """Broken: a plan that was made for another rate would ruin a training that knows its curvature."""
    trace = tmp_path / "trace"
    trace.mkdir()
    settings = Settings(timeout_s=30, start_timeout_s=30, trace=str(trace))
    far, merged, delay, retreated, output = descended(tmp_path, settings, "curved", "alone", "200")
    assert diverged > 1e6
    assert far < 10
    assert (merged, delay, retreated) == (1, 0, None)
    assert output.count("the guard does not let its schedule pass: stability") == 1
    (change,) = changes(trace)
    assert change.what == "refused"
    assert change.step == WINDOW
    assert "limit" in change.why


def test_the_next_safer_schedule_is_used_instead(tmp_path: Path) -> None:
    """Broken: a job would give up all that merged updates gain although only late ones diverge."""
    far, merged, delay, retreated, _ = descended(tmp_path, GUARDED, "curved", "safer", "200")
    assert far < 10
    assert (merged, delay, retreated) == (2, 0, None)


@pytest.mark.parametrize("safer", ["alone", "safer"])
def test_the_sentinel_retreats_where_nobody_knows_the_curvature(tmp_path: Path, safer: str) -> None:
    """Broken: what the guard cannot know would ruin the training (row R6), or one alarm would end the safer schedule, too."""
    trace = tmp_path / "trace"
    trace.mkdir()
    settings = Settings(timeout_s=30, start_timeout_s=30, trace=str(trace))
    far, merged, delay, retreated, output = descended(tmp_path, settings, "flat", safer, "300")
    assert far < 10
    assert (merged, delay) == ((2, 0) if safer == "safer" else (1, 0))
    assert WINDOW < retreated <= WINDOW + 30
    assert output.count("less merged and less late from now on") == 1
    (change,) = changes(trace)
    assert change.what == "retreated"
    assert change.step == pytest.approx(retreated, abs=3)
    assert "updates, against" in change.why


def test_with_the_guard_off_the_sentinel_still_watches(tmp_path: Path) -> None:
    """Broken: the setting for demonstrations would leave a training alone with its divergence."""
    far, _, delay, retreated, output = descended(tmp_path, UNGUARDED, "curved", "alone", "200")
    assert far < 10
    assert delay == 0
    assert WINDOW < retreated <= WINDOW + 30
    assert "does not let" not in output


def test_a_loss_that_grows_on_one_rank_ends_it_on_all(tmp_path: Path) -> None:
    """Broken: ranks would go on with different schedules, or nobody would look at the loss."""
    ended = ranks.run(f"{SCRIPTS}:one_ranks_loss", 2, tmp_path, settings=GUARDED)
    assert ended.outcome.code == 0, ended.output
    assert ended.returned[0] == ended.returned[1]
    retreated, delay = ended.returned[0]
    assert 15 < retreated <= 30
    assert delay == 0
    assert "another rank's updates" in ended.output


def test_first_gradients_are_seen_before_they_leave(tmp_path: Path) -> None:
    """Broken: noise would be that of means, or of half-reduced memory."""
    ended = ranks.run(f"{SCRIPTS}:seen", 3, tmp_path, settings=GUARDED)
    assert ended.outcome.code == 0, ended.output
    for differ, count, rate, momentum in ended.returned:
        assert differ < 1e-9
        assert (count, rate, momentum) == (4, 1e-3, 0.9)
