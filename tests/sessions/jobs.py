"""Jobs of real ranks that train scenarios, and digests of what they train."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hocket.settings import Settings
from tests.sessions.scenarios import VICTIM, Scenario
from tests.support import ranks

SETTINGS = Settings(timeout_s=60, start_timeout_s=60, sentinel=False)
"""Schedules begin with the first iteration."""


class Trained(NamedTuple):
    """A scenario by rank: parameters after each iteration and once more when all is applied, and the ranks of each. A rank that is
    lost has none."""

    scenario: Scenario
    values: list[np.ndarray]
    members: list[list[list[int]]]

    def digests(self) -> list[list[str]]:
        """Return a digest of the bits of each, by rank."""
        return [[hashlib.sha256(each.tobytes()).hexdigest() for each in own] for own in self.values]


def trained(scenarios: Iterable[Scenario], directory: Path) -> list[Trained]:
    """Train scenarios, those of as many ranks in one job, but an elastic one in a job of its own."""
    jobs: dict[tuple[object, ...], list[Scenario]] = {}
    for each in scenarios:
        jobs.setdefault((each.world,) if each.commit == "none" else tuple(each), []).append(each)
    found: list[Trained] = []
    for at, own in enumerate(jobs.values()):
        (directory / str(at)).mkdir()
        found += _job(own, directory / str(at))
    return found


def _job(scenarios: Sequence[Scenario], directory: Path) -> list[Trained]:
    listed = directory / "scenarios.json"
    listed.write_text(json.dumps(scenarios))
    call = ("tests.sessions.rank:train_all", str(listed), str(directory))
    first, elastic = scenarios[0], scenarios[0].commit == "barrier"
    ended = ranks.in_turn(
        [call], first.world, directory, settings=SETTINGS, members_min=1 if elastic else None
    )
    assert ended.outcome.code == 0, ended.output
    lost = {VICTIM} if "lost" in first.events else set()
    files = [np.load(directory / f"{rank}.npz") for rank in range(first.world) if rank not in lost]
    members = [json.loads(str(each["members"])) for each in files]
    return [
        Trained(each, [own[f"{at} values"] for own in files], [own[at] for own in members])
        for at, each in enumerate(scenarios)
    ]
