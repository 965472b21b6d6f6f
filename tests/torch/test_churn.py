"""A job whose ranks are killed and join all the time."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.torch.trainings import Local  # needs torch

pytestmark = pytest.mark.members

CHURN_S = float(os.environ.get("HOCKET_CHURN_S", "8"))
CHURN_PAUSES_S = 0.5, 2.0
GROWN_BYTES_MAX = 16 << 20
"""Of a rank's memory during all of the churn."""


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    """Two slow ranks, where nobody else's jobs are found."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Local(tmp_path, "ab", ("is slow", "is slow"), members_min=1, members_max=4)
    yield made
    made.kill()


def test_churn(training: Local, capsys: pytest.CaptureFixture[str]) -> None:
    """Broken: a job on machines that come and go all the time would lose a step, or grow until it ends.

    `make churn`: for an hour.
    """
    choice = random.Random(0)  # noqa: S311  # no secret
    witness, other = (training.steps()[f"founder-{rank}"][0]["process"] for rank in range(2))
    living = [other]
    deadline_s = time.monotonic() + CHURN_S
    kills = 0
    while time.monotonic() < deadline_s:
        time.sleep(choice.uniform(*CHURN_PAUSES_S))
        if living and (len(living) + 1 == training.members_max or choice.random() < 0.5):  # a coin
            os.kill(living.pop(choice.randrange(len(living))), signal.SIGKILL)
            kills += 1
        else:
            # Alone on its host, the witness has as many descriptors to each of the others.
            living.append(training.come(choice.choice("bc"), "is slow").pid)
    training.trains_on(1 + len(living))
    outcome = training.end()
    assert outcome.code == 0, training.said()
    changes = len(training.check()) - 1
    (steps,) = (own for own in training.steps().values() if own[0]["process"] == witness)
    # Quarters of some seconds may have no step in which nobody comes.
    half = len(steps) // 2
    # What was kept is there in each later step; what is on its way out, or a look at the network, beside other work in most.
    before, after = _used(steps[:half], statistics.median_low), _used(steps[half:], min)
    with capsys.disabled():
        print(  # noqa: T201  # what `make churn` is run for
            f"\n{kills} kills, {len(training.newcomers)} joins, {changes} changes of the world, {len(steps)} steps, each replayed."
            f"\nOf one rank, by world, in the first half: {before}\nin the second: {after}"
        )
    for world in before.keys() & after.keys():
        assert after[world]["threads"] <= before[world]["threads"]
        # A second connection to the store comes and goes with what waits for its keys.
        assert after[world]["descriptors"] <= before[world]["descriptors"] + 1
        assert after[world]["resident bytes"] - before[world]["resident bytes"] < GROWN_BYTES_MAX


def _used(
    steps: Sequence[Mapping[str, Any]], typical: Callable[[Sequence[int]], int]
) -> dict[int, dict[str, int]]:
    """By world: how much memory the process had at most, and the `typical` number of its threads and descriptors."""
    found: dict[int, dict[str, list[int]]] = {}
    for each in steps:
        used = found.setdefault(each["world"], {name: [] for name in each["uses"]})
        for name, count in each["uses"].items():
            used[name].append(count)
    return {
        world: {
            name: max(counts) if name == "resident bytes" else typical(counts)
            for name, counts in used.items()
        }
        for world, used in sorted(found.items())
    }
