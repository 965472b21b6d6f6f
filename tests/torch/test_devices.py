"""Gradients on a device: what a session trains there is in `tests/sessions`, what orders it needs is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.artefacts import files
from hocket.artefacts.profile import Profile
from hocket.settings import Settings
from tests.gpu.scripts import WAYS
from tests.sessions import jobs
from tests.sessions.scenarios import Scenario
from tests.sessions.test_sessions import assert_trained
from tests.support import ranks
from tests.torch import hostile

pytestmark = pytest.mark.devices

SETTINGS = Settings(timeout_s=60, start_timeout_s=60, sentinel=False)


def test_models_end_as_under_ddp(tmp_path: Path) -> None:
    """Broken: a way of training would read or write gradients behind the device's back."""
    calls = {name: ("tests.gpu.scripts:differences_on_a_hostile_device", name) for name in WAYS}
    found = ranks.by_name(calls, 2, tmp_path, settings=SETTINGS)
    assert {name: each for name, each in found.items() if max(each) >= 1e-5} == {}


def test_a_profile_knows_the_bus(tmp_path: Path) -> None:
    """Broken: `hocket plan` would promise steps as if gradients were in the host's memory."""
    path = tmp_path / "profile.json"
    settings = Settings(timeout_s=60, start_timeout_s=60, profile_out=str(path))
    hostile.build()
    ended = ranks.run("tests.torch.profiled_scripts:on_a_device", 2, tmp_path, settings=settings)
    assert ended.outcome.code == 0, ended.output
    bus = files.read(path, Profile).bus
    assert bus is not None
    for bytes_per_s in (bus.down_bytes_per_s, bus.up_bytes_per_s):
        # Of copies that the processor makes: no slower than a disk's, no faster than caches.
        assert 1e7 < bytes_per_s < 1e12, bus
    assert bus.copy_s < 0.1, bus


@pytest.mark.parametrize("order", ["made", "received", "down"])
def test_every_order_between_copies_and_work_is_needed(order: str, tmp_path: Path) -> None:
    """Broken: the device of the tests would not notice a copy before what it copies, or work before a copy that it needs."""
    scenario = Scenario(f"hostile without {order}", 2, "buckets", "immediate", "none", ("uneven",))
    # The job may notice it, too, as ranks whose replicas differ.
    with pytest.raises(AssertionError):
        assert_trained(*jobs.trained([scenario], tmp_path))
