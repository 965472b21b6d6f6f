"""An elastic job drives itself: on two racks whose hosts alternate, over a narrow trunk, while ranks are lost and join."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.settings import Settings
from hocket.tools.testbed import Testbed

pytest.importorskip("torch")

from tests.torch.join_scripts import WIDE  # needs torch
from tests.torch.trainings import Spread

RACKS = Cluster(
    hosts=tuple(Host(name=f"h{at}", rack="ab"[at % 2], bandwidth_bit_per_s=1e9) for at in range(4)),
    racks=tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab"),
)
HOSTS = [host.name for host in RACKS.hosts]


def plan(training: Spread) -> str:
    """In force in the last step that a rank has noted."""
    notes = [each for own in training.steps().values() for each in own]
    label: str = max(notes, key=lambda note: note["step"])["plan"]
    return label


def test_a_job_finds_a_plan_keeps_it_through_a_loss_and_finds_one_for_those_that_come(
    emulated: Callable[[Cluster], AbstractContextManager[Testbed]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broken: a job would have to choose between going on after a loss, and a plan that fits its network; or a plan of other ranks
    would stay in force, or begin on some ranks alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = Settings(timeout_s=60, start_timeout_s=30, heartbeat_timeout_s=10, cache_bytes=0)
    with emulated(RACKS) as bed:
        training = Spread(tmp_path, bed, HOSTS, members_max=4, settings=settings, flaw="wide")
        try:
            training.until(lambda: "two-level" in plan(training))
            adopted = plan(training)
            os.kill(training.process("founder-3"), signal.SIGKILL)
            training.trains_on(3, further=1)
            followed = plan(training)
            training.trains_on(3, further=10)
            training.come("h3", "wide")
            training.trains_on(4, further=1)
            begun = plan(training)
            training.until(lambda: "two-level" in plan(training))
            training.trains_on(4)
            assert training.end() == 0, training.said()
            assert training.check(WIDE) == [4, 3, 4]
        finally:
            training.kill()
    assert (followed, begun) == (adopted, "default ring"), training.said()
