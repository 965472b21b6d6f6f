"""Training on a device of somebody else's that runs on any machine: `torchvulkan` on Mesa's lavapipe, which has neither events nor
pinned memory. `make test-vulkan` installs both."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from hocket.settings import Settings
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from tests.support import ranks

pytest.importorskip("torchvulkan")

from tests.vulkan import scripts  # needs torchvulkan

SCRIPTS = "tests.vulkan.scripts"
SETTINGS = Settings(timeout_s=120, start_timeout_s=120, sentinel=False)
TOLERANCE = 1e-5


@pytest.mark.parametrize("world", [2, 4])
def test_models_end_as_on_the_cpu(world: int, tmp_path: Path) -> None:
    """Broken: a gradient would leave before the device has made it, or a step would read a mean that has not come up."""
    calls = {
        (kind, device): (f"{SCRIPTS}:trained", kind, device)
        for kind in ("mlp", "convolutions", "transformer")
        for device in ("cpu", "vulkan")
    }
    found = ranks.by_name(calls, world, tmp_path, settings=SETTINGS)
    for kind in ("mlp", "convolutions", "transformer"):
        ours, theirs = np.array(found[kind, "vulkan"]), np.array(found[kind, "cpu"])
        assert np.array_equal(ours, np.broadcast_to(ours[0], ours.shape)) or kind == "convolutions", kind
        assert np.abs(ours - theirs).max() < TOLERANCE, (kind, np.abs(ours - theirs).max())


def test_a_killed_rank_is_named_and_the_device_goes_on(tmp_path: Path) -> None:
    """Broken: a rank that is gone would leave the others in a wait, or with a device that fails."""
    ended = ranks.run(f"{SCRIPTS}:survives", 3, tmp_path, "vulkan", settings=SETTINGS)
    for rank in (0, 1):
        text, works = ended.returned[rank]
        assert "rank 2" in text, (rank, text)
        assert works, rank


def test_a_killed_rank_is_replaced(tmp_path: Path) -> None:
    """Broken: what a lost rank has interrupted, and what a newcomer is sent, would not be what the device holds."""
    out = io.BytesIO()
    specs = [ProcessSpec(argv=[sys.executable, scripts.__file__, str(tmp_path)])] * scripts.WORLD_FOUNDED
    outcome = launch(specs, settings=SETTINGS, members_min=2, members_max=3, respawn=1, out=out, err=out)
    assert outcome.code == 0, out.getvalue().decode()
    notes = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert {name: (each["founds"], each["world"]) for name, each in notes.items()} == {
        "0": (True, 3),
        "1": (True, 3),
        "3": (False, 3),
    }
    assert notes["0"]["values"] == notes["1"]["values"] == notes["3"]["values"]
