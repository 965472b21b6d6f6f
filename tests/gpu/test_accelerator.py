"""Training on this machine's accelerator: against one process, against DistributedDataParallel, and when ranks end.

`make test-gpu` runs it where there is one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.settings import Settings
from tests.gpu.scripts import WAYS
from tests.sessions import jobs
from tests.sessions.scenarios import DEVICE
from tests.sessions.test_sessions import assert_trained
from tests.support import ranks

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.accelerator.is_available(), reason="there is no accelerator")

SCENARIOS = [each._replace(framework="accelerator") for each in DEVICE]
SETTINGS = Settings(timeout_s=60, start_timeout_s=120, sentinel=False)
TOLERANCE = 1e-5


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_train_what_one_process_would(world: int, tmp_path: Path) -> None:
    """Broken: a copy would be made before what it copies, or after what needs it."""
    chosen = [each for each in SCENARIOS if each.world == world and each.commit == "none"]
    for each in jobs.trained(chosen, tmp_path):
        assert_trained(each)


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if each.commit == "barrier"], ids=lambda each: each.label
)
def test_members_train_what_one_process_would(scenario: jobs.Scenario, tmp_path: Path) -> None:
    """Broken: what a lost rank has interrupted would be reduced again from other gradients."""
    (found,) = jobs.trained([scenario], tmp_path)
    assert_trained(found)


@pytest.mark.parametrize("world", [2, 4])
def test_models_end_as_under_ddp(world: int, tmp_path: Path) -> None:
    """Broken: real models on a device would train another way than with DistributedDataParallel on Gloo."""
    calls = {name: ("tests.gpu.scripts:differences", name) for name in WAYS}
    found = ranks.by_name(calls, world, tmp_path, settings=SETTINGS)
    assert {name: each for name, each in found.items() if max(each) >= TOLERANCE} == {}


def test_a_killed_rank_is_named_and_the_device_goes_on(tmp_path: Path) -> None:
    """Broken: a rank that is gone would leave the others in a wait for its copies, or with a device that fails."""
    ended = ranks.run("tests.gpu.scripts:survives", 3, tmp_path, settings=SETTINGS)
    for rank in (0, 2):
        text, works = ended.returned[rank]
        assert "rank 1" in text, (rank, text)
        assert works, rank
