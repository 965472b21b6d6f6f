"""Elastic jobs of three that must have all their ranks, two of which are killed at once, in real processes.

With `HOCKET_FUZZ_CASES=42`, each of a pair takes the other one along, at each edge of a step.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hocket.settings import Settings
from hocket.start import replacements

pytest.importorskip("torch")

from tests.support import drawn
from tests.torch.elastic_scripts import EDGES, LOST_IN  # needs torch
from tests.torch.trainings import Local, killed

pytestmark = pytest.mark.members

WORLD, FEW = 3, 2
CASES = drawn.cases(FEW)


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Local]]:
    """Makes them: each lost rank is replaced, and all wait for it."""
    monkeypatch.setattr(replacements, "WAIT_S", 0.1)

    def make(hosts: str, flaw: str = "") -> Local:
        return Local(
            tmp_path,
            hosts,
            (flaw,) * WORLD,
            members_min=WORLD,
            members_max=WORLD,
            respawn=2 * WORLD,
            settings=Settings(timeout_s=60, start_timeout_s=30, heartbeat_timeout_s=5, rejoin_timeout_s=None),
        )

    yield from killed(tmp_path, monkeypatch, make)


def at_edges() -> list[tuple[str, str]]:
    """Hosts, and who dies where with whom: each of a pair comes to the edge, and takes the other along."""
    choice = random.Random(0)  # noqa: S311  # a seed gives the same cases again
    pairs = itertools.permutations(range(WORLD), 2)
    found = [
        (choice.choice(("abc", "aaa", "aab", "abb")), f"{first}:{LOST_IN}:{edge} with {other}")
        for (first, other), edge in itertools.product(pairs, EDGES)
    ]
    choice.shuffle(found)
    return found[:CASES]


@pytest.mark.parametrize(("hosts", "flaw"), at_edges())
def test_a_job_of_all_its_ranks_goes_on_though_two_of_three_die_at_once(
    hosts: str, flaw: str, trainings: Callable[..., Local]
) -> None:
    """Broken: a rack that is lost would end a job of which one rank is left, or its two newcomers would train on something else."""
    training = trainings(hosts, flaw)
    training.until(lambda: {"founder-3", "founder-4"} <= training.steps().keys())
    training.trains_on(WORLD)
    outcome = training.end()
    assert (outcome.code, outcome.failures, outcome.ended) == (0, (), None), training.said()
    assert training.check() == [WORLD, 1, WORLD]
