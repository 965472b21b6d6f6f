"""`hocket profile` of several ranks: what the guard needs to know of optimizer, noise, losses and curvature."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hocket.artefacts import files
from hocket.artefacts.profile import Profile
from hocket.settings import Settings
from hocket.torch.profiler import STEPS, WARM_UP_STEPS
from tests.support import ranks
from tests.torch.profiled_scripts import MOMENTUM, RATE, SIZE, SPREAD, TRUTH


def test_a_profile_says_how_the_model_learns(tmp_path: Path) -> None:
    """Broken: plans for late gradients would be judged by nothing, or by another training."""
    path = tmp_path / "profile.json"
    settings = Settings(timeout_s=30, start_timeout_s=30, profile_out=str(path))
    ended = ranks.run("tests.torch.profiled_scripts:profiled", 4, tmp_path, settings=settings)
    assert ended.outcome.code == 0, ended.output
    profile = files.read(path, Profile)
    assert (profile.batch, profile.accumulation) == (1, 1)
    # What shares of batches, and plans for a rank that comes last, are made from.
    assert [each.batch for each in profile.ranks] == [1] * profile.world
    assert sum(each.step_s for each in profile.ranks) == pytest.approx(profile.step_s * profile.world)
    learning = profile.learning
    assert learning is not None
    assert (learning.optimizer, learning.adaptive, learning.ranks) == ("SGD", False, 4)
    assert (learning.rate, learning.momentum) == (RATE, MOMENTUM)
    # The last step ends the script before it logs; means over ranks 0 to 3.
    assert learning.losses == tuple(11.5 - step for step in range(WARM_UP_STEPS + STEPS - 1))
    assert learning.curvature == pytest.approx(4.0, rel=0.02)
    norm2 = SIZE * TRUTH**2
    assert learning.drift == pytest.approx(norm2, rel=0.1)
    # Of two iterations of four ranks: a deviation of six degrees of freedom, and sketches.
    assert learning.noise is not None
    assert 0.3 < learning.noise / (SPREAD * math.sqrt(norm2)) < 4


def test_a_profile_is_of_the_model_that_was_distributed_last(tmp_path: Path) -> None:
    """Broken: a script that trains in stages could not be profiled, or its profile would be of parameters that are frozen."""
    path = tmp_path / "profile.json"
    settings = Settings(timeout_s=30, start_timeout_s=30, profile_out=str(path))
    ended = ranks.run("tests.torch.profiled_scripts:in_stages", 2, tmp_path, settings=settings)
    assert ended.outcome.code == 0, ended.output
    profile = files.read(path, Profile)
    assert [each.name for each in profile.gradients] == ["1.weight", "1.bias", "2.weight", "2.bias"]
    assert (profile.batch, profile.accumulation, profile.steps) == (2, 1, STEPS)
    last_needed_s = max(each.needed_s for each in profile.gradients)
    first_ready_s = min(each.ready_s for each in profile.gradients)
    assert 0 < last_needed_s < profile.forward_s < first_ready_s


@pytest.mark.parametrize("lost", ["0", "1"])
def test_an_elastic_job_is_profiled_without_a_rank_that_it_loses(lost: str, tmp_path: Path) -> None:
    """Broken: a profile on machines that come and go would be lost with one of them, or the job would end with an error."""
    path = tmp_path / "profile.json"
    settings = Settings(timeout_s=30, start_timeout_s=30, profile_out=str(path))
    calls = [("tests.torch.profiled_scripts:loses", lost)]
    ended = ranks.in_turn(calls, 3, tmp_path, settings=settings, members_min=2)
    assert ended.outcome.code == 0, ended.output
    profile = files.read(path, Profile)
    assert (profile.world, profile.steps, profile.batch) == (2, STEPS, 2)
    assert [each.name for each in profile.gradients] == ["weight", "bias"]


def test_a_script_that_saves_checkpoints_is_profiled_and_its_policies_go_on_from_before(
    tmp_path: Path,
) -> None:
    """Broken: `hocket profile` would end with an error of the script's, or residuals of a checkpoint would be lost in it."""
    scripts = "tests.torch.profiled_scripts"

    def run(name: str, **settings: str) -> ranks.Ended:
        limits = Settings(timeout_s=30, start_timeout_s=30, **settings)
        ended = ranks.run(f"{scripts}:{name}", 2, tmp_path, str(tmp_path), settings=limits)
        assert ended.outcome.code == 0, ended.output
        return ended

    before = run("saves").returned
    profiled = run("goes_on_in_a_profile", profile_out=str(tmp_path / "profile.json"))
    assert "a checkpoint of it is of this rank alone" in profiled.output
    assert files.read(tmp_path / "profile.json", Profile).steps == STEPS
    assert run("goes_on").returned == [[own, 6] for own in before]
