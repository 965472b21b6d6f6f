"""Training on a device of somebody else's that runs on any machine: `torchvulkan` on Mesa's lavapipe, which has neither events nor
pinned memory. `make test-vulkan` installs both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hocket.settings import Settings
from tests.support import ranks

torchvulkan = pytest.importorskip("torchvulkan")
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
