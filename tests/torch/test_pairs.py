"""Elastic jobs of three that must have all their ranks, two of which are killed at once, in real processes.

`make elastic CASES=60` kills each pair at each edge of a step and of a meeting, and at random moments.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
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
MOMENTS_MAX_S = 0.1


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


def at_meetings() -> list[str]:
    """Where rank 3, which comes in the place of rank 1, dies with rank 0 or 2, or one of those with it."""
    edges = ("dies when it is counted on", "dies when all have met", "dies while all meet")
    found = [f"3:{edge} with {other}" for edge, other in itertools.product(edges, (0, 2))]
    edges = ("dies before its first step with newcomers", "dies while all meet")
    found += [f"{first}:{edge} with 3" for edge, first in itertools.product(edges, (0, 2))]
    random.Random(0).shuffle(found)  # noqa: S311  # as above
    return found[:CASES]


@pytest.mark.parametrize("flaw", at_meetings())
def test_a_rank_and_the_newcomer_that_it_meets_may_die_at_once(
    flaw: str, trainings: Callable[..., Local]
) -> None:
    """Broken: the last rank that has the job's state would end for want of one that came, or go on with a step of two."""
    training = trainings("abc", flaw)
    os.kill(training.process("founder-1"), signal.SIGKILL)
    training.until(lambda: {"founder-4", "founder-5"} <= training.steps().keys())
    training.trains_on(WORLD)
    outcome = training.end()
    assert (outcome.code, outcome.failures, outcome.ended) == (0, (), None), training.said()
    worlds = training.check()
    assert (worlds[0], worlds[-1]) == (WORLD, WORLD)
    assert max(worlds[1:-1]) < WORLD


def test_a_job_ends_with_the_last_two_that_have_its_state(trainings: Callable[..., Local]) -> None:
    """Broken: a newcomer would wait for ever for a state that is gone, or train on without it."""
    training = trainings("abc", "0:dies while all meet with 2")
    os.kill(training.process("founder-1"), signal.SIGKILL)
    outcome = training.end()
    assert outcome.ended is not None, training.said()
    assert "nobody who holds the model's state is left" in outcome.ended.why


@pytest.mark.parametrize("seed", range(max(0, CASES - len(EDGES) * WORLD * (WORLD - 1))))
def test_two_of_three_may_die_at_any_moment(seed: int, trainings: Callable[..., Local]) -> None:
    """Broken: as above, between the edges that tests know, twice in one job."""
    choice = random.Random(seed)  # noqa: S311  # as above
    training = trainings(choice.choice(("abc", "aaa", "aab", "abb")))
    for _ in range(2):
        living = [
            name for name, own in training.steps().items() if Path(f"/proc/{own[0]['process']}").exists()
        ]
        pair = [training.process(name) for name in choice.sample(sorted(living), 2)]
        time.sleep(choice.uniform(0, MOMENTS_MAX_S))
        for process in pair:
            os.kill(process, signal.SIGKILL)
        training.trains_on(WORLD)
    outcome = training.end()
    assert (outcome.code, outcome.failures, outcome.ended) == (0, (), None), training.said()
    assert training.check() == [WORLD, 1, WORLD, 1, WORLD]
