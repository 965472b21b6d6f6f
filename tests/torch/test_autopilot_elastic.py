"""An elastic job drives itself: on two racks whose hosts alternate, over a narrow trunk, while ranks are lost and join."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce
from hocket.planning.buckets import buckets, plan_of
from hocket.settings import Settings
from hocket.tools.testbed import Testbed

pytest.importorskip("torch")

from tests.torch.join_scripts import WIDE, made  # needs torch
from tests.torch.trainings import Spread

pytestmark = pytest.mark.members

RACKS = Cluster(
    hosts=tuple(Host(name=f"h{at}", rack="ab"[at % 2], bandwidth_bit_per_s=1e9) for at in range(4)),
    racks=tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab"),
)
HOSTS = [host.name for host in RACKS.hosts]


SEARCH_S = 30


def last(training: Spread) -> dict[str, Any]:
    """What a rank has noted of the last step."""
    notes = [each for own in training.steps().values() for each in own]
    return max(notes, key=lambda note: note["step"])


def plan(training: Spread) -> str:
    """In force in the last step that a rank has noted."""
    label: str = last(training)["plan"]
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
    with (
        emulated(RACKS) as bed,
        Spread(tmp_path, bed, HOSTS, members_max=4, settings=settings, flaw="wide") as training,
    ):
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
    assert (followed, begun) == (adopted, "default ring"), training.said()


def test_a_search_goes_on_for_the_time_that_is_left_when_ranks_are_lost_and_come(
    emulated: Callable[[Cluster], AbstractContextManager[Testbed]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broken: a loss would end a search, or each change of members begin one of the whole time, or with plans of other ranks."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = Settings(
        timeout_s=60, start_timeout_s=30, heartbeat_timeout_s=10, cache_bytes=0, search=f"{SEARCH_S}s"
    )

    def begun(training: Spread) -> int:
        return training.output.count("a search begins")

    with (
        emulated(RACKS) as bed,
        Spread(tmp_path, bed, HOSTS, members_max=4, settings=settings, flaw="wide") as training,
    ):
        training.until(lambda: ", predicted" in training.output.partition("a search begins")[2])
        os.kill(training.process("founder-3"), signal.SIGKILL)
        training.trains_on(3, further=1)
        training.until(lambda: begun(training) == 2)
        training.come("h3", "wide")
        training.trains_on(4, further=1)
        training.until(lambda: begun(training) == 3 and ": searched: " in training.output)
        training.trains_on(4)
        assert training.end() == 0, training.said()
        assert training.check(WIDE) == [4, 3, 4]
    ended = re.search(r"its (\d+) seconds are over|no other plan is expected", training.output)
    assert ended is not None, training.said()
    assert ended[1] is None or int(ended[1]) < SEARCH_S, training.said()


def test_orders_of_a_plan_that_was_given_follow_the_network_through_a_loss_and_a_join(
    emulated: Callable[[Cluster], AbstractContextManager[Testbed]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broken: the first loss would end a job whose plan's orders follow its network, or newcomers would have another order."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model, *_ = made(WIDE)
    gradients = [Gradient(name, tuple(each.shape), "f64") for name, each in model.named_parameters()]
    given = plan_of(buckets([gradients], AllReduce(algorithm="ring"), range(4)), 4, label="alternates")
    files.write(tmp_path / "given.json", given)
    settings = Settings(
        timeout_s=60,
        start_timeout_s=30,
        heartbeat_timeout_s=10,
        cache_bytes=0,
        reorder=True,
        plan=str(tmp_path / "given.json"),
    )

    def changed(training: Spread, number: int) -> None:
        training.until(lambda: training.output.count(": alternates, predicted") == number)
        training.until(lambda: "plan" in last(training)["agreed"])

    with (
        emulated(RACKS) as bed,
        Spread(tmp_path, bed, HOSTS, members_max=4, settings=settings, flaw="wide") as training,
    ):
        changed(training, 1)
        os.kill(training.process("founder-3"), signal.SIGKILL)
        training.trains_on(3, further=10)
        training.come("h3", "wide")
        training.trains_on(4, further=1)
        changed(training, 2)
        training.trains_on(4)
        assert training.end() == 0, training.said()
        assert training.check(WIDE) == [4, 3, 4]
    assert {each["plan"] for own in training.steps().values() for each in own} == {"alternates"}
