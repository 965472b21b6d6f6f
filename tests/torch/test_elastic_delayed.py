"""Merged and late gradients in elastic jobs: ranks are killed, and the others apply what they have made.

What is applied when a rank leaves is in `tests/sessions`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support import drawn  # noqa: E402
from tests.torch import elastic_delayed_join_scripts as join_scripts  # noqa: E402
from tests.torch import elastic_delayed_scripts as scripts  # noqa: E402  # needs torch
from tests.torch import elastic_scripts, trainings  # noqa: E402
from tests.torch.test_elastic import run  # noqa: E402

pytestmark = pytest.mark.members

SCRIPT = Path(scripts.__file__)
WORLD = 3
LOST_IN = 6
SAVED_AFTER = 7
"""Then each schedule has something open or on its way."""
FEW = 7
CASES = drawn.cases(FEW)
SAVED, JOINED = (
    (["each", "own first, merged"], ["late", "own first, late"])
    if CASES == FEW
    else ([*scripts.SCHEDULES],) * 2
)
"""Schedules of jobs that go on from saved turns, and of those that others join. In one, a bucket's turns wait to be sent, and the
other's are merged."""


def check(directory: Path, name: str, survivors: list[int], *, world: int = WORLD) -> list[dict[str, Any]]:
    """All survivors have the bits of all others after each update, and what one process makes of the same updates. These."""
    updates: list[dict[str, Any]] = elastic_scripts.alike(directory, survivors)
    expected = scripts.replayed(updates, name, world)
    for rank in survivors:
        torch.testing.assert_close(torch.load(directory / f"{rank}.pt"), expected, rtol=1e-9, atol=1e-9)
    return updates


def cases() -> list[tuple[str, str, str]]:
    """Schedules, hosts, and where rank 1 dies: at each edge of a step in which something is due and of one before, in the flush
    at the end, and at random moments. Then first ones have all schedules."""
    random = Random(1)  # noqa: S311  # a seed gives the same cases again
    places = [(step, edge) for edge in elastic_scripts.EDGES for step in (LOST_IN, LOST_IN + 1)]
    places += [
        (scripts.FLUSHED, edge) for edge in elastic_scripts.EDGES if edge not in ("forward", "backward")
    ]
    victims = [f"1:{step}:{edge}" for step, edge in places]
    found = [*itertools.product(scripts.SCHEDULES, ("abc", "aaa"), victims)]
    random.shuffle(found)
    first = [next(each for each in found if each[0] == name) for name in scripts.SCHEDULES]
    moments = (
        (
            random.choice([*scripts.SCHEDULES]),
            random.choice(("aaa", "abc", "aab")),
            f"1:{random.randrange(scripts.STEPS)}:{random.uniform(0, 20):.2f} ms after forward",
        )
        for _ in range(CASES)
    )
    rest = (each for each in found if each not in first)
    return list(itertools.islice(itertools.chain(first, rest, moments), CASES))


@pytest.mark.parametrize(("name", "hosts", "victim"), cases())
def test_a_lost_rank_costs_the_others_none_of_what_they_have_made(
    name: str, hosts: str, victim: str, tmp_path: Path
) -> None:
    """Broken: a rank that is lost takes gradients of the others with it, or they are applied twice, or by some ranks alone."""
    outcome, output = run(tmp_path, list(hosts), name, victim, script=SCRIPT)
    assert outcome.code == 0, output
    updates = check(tmp_path, name, [0, 2])
    steps = updates[: scripts.STEPS]
    assert [each["applied"] for each in steps] == scripts.expected_updates(name, scripts.STEPS)
    members = [each["members"] for each in updates]
    without = members.count([0, 2])
    assert members == [[0, 1, 2]] * (len(members) - without) + [[0, 2]] * without


def test_ranks_are_lost_one_after_the_other(tmp_path: Path) -> None:
    """Broken: a job would survive one loss, and not the next, while turns that were launched again are on their way."""
    victims = ("0:4:launched", "2:5:prepared", f"3:{scripts.FLUSHED}:launched")
    outcome, output = run(tmp_path, list("aabc"), "merged", *victims, script=SCRIPT)
    assert outcome.code == 0, output
    updates = check(tmp_path, "merged", [1], world=4)
    assert updates[4]["members"] == [1, 2, 3]
    assert updates[5]["members"] == [1, 3]
    assert updates[-1]["members"] == [1]


@pytest.mark.parametrize("name", SAVED)
def test_a_job_goes_on_from_saved_turns(name: str, tmp_path: Path) -> None:
    """Broken: gradients that were on their way would be lost with a checkpoint, or not be reduced again when a rank is lost."""
    outcome, output = run(tmp_path, list("abc"), name, str(SAVED_AFTER), script=SCRIPT)
    assert (outcome.code, outcome.failures) == (0, ()), output
    victim = f"1:{SAVED_AFTER}:launched"
    outcome, output = run(tmp_path, list("abc"), name, str(SAVED_AFTER), victim, script=SCRIPT)
    assert outcome.code == 0, output
    updates = check(tmp_path, name, [0, 2])
    members = [each["members"] for each in updates]
    assert members == [[0, 1, 2]] * SAVED_AFTER + [[0, 2]] * (len(members) - SAVED_AFTER)


@pytest.mark.parametrize("name", JOINED)
def test_ranks_join_and_leave(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: newcomers would begin with other open turns than the others have, or what was on its way would be lost or applied
    twice when they came."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(trainings, "SCRIPT", Path(join_scripts.__file__))
    with trainings.Local(tmp_path, "ab", (name, name), members_min=1, members_max=4) as training:
        newcomer = training.come("c", name)
        training.trains_on(3)
        training.leaves("founder-0")
        training.trains_on(2)
        outcome = training.end()
        assert (outcome.code, newcomer.returncode) == (0, 0), training.said()
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    flushes = []
    for own in training.notes("step").values():
        flushes.append([each for each in own if each["step"] is None])
        for each in own:
            del each["process"]
            by_step[each["step"]].append(each)
    # What a flush applies, if anything is left for it, a leaver does not see.
    by_step.pop(None, None)  # type: ignore[call-overload]
    assert all(each == alike[0] for alike in by_step.values() for each in alike)
    updates = [by_step[step][0] for step in range(len(by_step))]
    worlds = [world for world, _ in itertools.groupby(len(each["members"]) for each in updates)]
    assert worlds == [2, 3, 2]
    expected = join_scripts.replayed([*updates, *max(flushes, key=len)], name)
    found = list(tmp_path.glob("*.pt"))
    assert len(found) == 2
    for file in found:
        torch.testing.assert_close(torch.load(file), expected, rtol=1e-9, atol=1e-9)
