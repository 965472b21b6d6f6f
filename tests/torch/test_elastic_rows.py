"""Gradients that travel as rows in elastic jobs: a step that a loss undoes is made of the same rows by those that are left."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch import elastic_rows_scripts as scripts  # noqa: E402  # needs torch
from tests.torch import trainings  # noqa: E402
from tests.torch.elastic_scripts import EDGES, alike  # noqa: E402
from tests.torch.test_elastic import CASES, FEW, first_without, run  # noqa: E402

pytestmark = pytest.mark.members

SCRIPT = Path(scripts.__file__)
OFTEN_LOST_IN = 6
"""A step in which rank 0 has more rows than it may send to two others, and no more than it may send to one."""
SEEN = [("sparse", "default", "launched"), ("sparse", "given", "done"), ("dense", "given", "prepared")]
EVERY = [*SEEN, *itertools.product(scripts.KINDS, ("given",), EDGES)]


def records(directory: Path, survivors: list[int]) -> list[dict[str, Any]]:
    """Steps, which all survivors have noted alike; their parameters are what one process makes of them."""
    steps: list[dict[str, Any]] = alike(directory, survivors)
    expected = scripts.replayed([each["members"] for each in steps])
    for rank in survivors:
        torch.testing.assert_close(torch.load(directory / f"{rank}.pt"), expected, rtol=1e-9, atol=1e-9)
    return steps


@pytest.mark.parametrize(("kind", "planned", "edge"), EVERY if CASES > FEW else SEEN)
def test_rows_of_a_lost_rank_are_in_no_mean_of_the_others(
    kind: str, planned: str, edge: str, tmp_path: Path
) -> None:
    """Broken: rows would be added up twice, or be those of the mean before, or blocks lie where a lost rank's place moves them."""
    outcome, output = run(tmp_path, list("abc"), kind, planned, f"1:{OFTEN_LOST_IN}:{edge}", script=SCRIPT)
    assert outcome.code == 0, output
    steps = records(tmp_path, [0, 2])
    lost = [each["members"] for each in steps].index([0, 2])
    assert lost in first_without(OFTEN_LOST_IN, edge)
    assert [each["members"] for each in steps] == [[0, 1, 2]] * lost + [[0, 2]] * (scripts.STEPS - lost)
    assert any(each["dense"] for each in steps[:lost]), "all ranks had few rows"
    if kind == "sparse":
        assert all(all(each["sparse"]) for each in steps), "a gradient came as a dense one"


def test_ranks_are_lost_until_one_is_left(tmp_path: Path) -> None:
    """Broken: rows that a rank packs again for others would be those that it had scaled for more of them."""
    victims = ("0:3:launched", "2:5:prepared")
    outcome, output = run(tmp_path, list("aab"), "sparse", "default", *victims, script=SCRIPT)
    assert outcome.code == 0, output
    steps = records(tmp_path, [1])
    assert [len(each["members"]) for each in (steps[0], steps[4], steps[-1])] == [3, 2, 1]


def test_ranks_join_and_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: a newcomer would wait for gradients that do not come in the form in which it steps them, or have no blocks."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(trainings, "SCRIPT", SCRIPT)
    with trainings.Local(tmp_path, "ab", ("sparse",) * 2, members_min=1, members_max=4) as training:
        newcomer = training.come("c", "sparse")
        training.trains_on(3)
        training.leaves("founder-0")
        training.trains_on(2)
        outcome = training.end()
        assert (outcome.code, newcomer.returncode) == (0, 0), training.said()
        assert "is sparse" in training.said()
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for own in training.notes("step").values():
        for each in own:
            del each["process"]
            by_step[each["step"]].append(each)
    assert all(each == alike[0] for alike in by_step.values() for each in alike)
    members = [by_step[step][0]["members"] for step in range(len(by_step))]
    assert [world for world, _ in itertools.groupby(map(len, members))] == [2, 3, 2]
    expected = scripts.replayed(members)
    found = list(tmp_path.glob("*.pt"))
    assert len(found) == 2
    for file in found:
        torch.testing.assert_close(torch.load(file), expected, rtol=1e-9, atol=1e-9)
