"""`hk.batches(…, shares=…)`: ranks get batches of unequal sizes, and a step is that of one process with all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import ranks

SCRIPTS = "tests.torch.shares_scripts"
WORLD = 4


@pytest.fixture(scope="module")
def on_four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    names = ("stepped", "accumulated", "even", "gated", "joined", "measured", "refused", "apart")
    calls = {name: (f"{SCRIPTS}:{name}",) for name in names}
    return ranks.by_name(calls, WORLD, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize("kind", ["stepped", "accumulated", "even", "gated", "joined"])
def test_a_step_is_that_of_one_process(on_four: dict[str, list[Any]], kind: str) -> None:
    """Broken: ranks with fewer samples would count as much as others, above all in the last steps of a pass, and a sample would
    come twice or never."""
    found = on_four[kind]
    assert max(each["worst"] for each in found) < 1e-6
    assert all(each["once"] for each in found)
    sizes = [each["sizes"] for each in found]
    assert [own[0] for own in sizes] == ([5] * WORLD if kind == "even" else [7, 7, 4, 2])
    # The last step of a pass has what is left, and every rank some of it.
    assert sum(own[2] for own in sizes) == 19
    assert all(own[2] for own in sizes)


def test_shares_follow_speeds(on_four: dict[str, list[Any]]) -> None:
    """Broken: with measured shares, slow ranks would go on with as much as fast ones, or ranks would deal differently."""
    found = on_four["measured"]
    assert [own[0] for own in found] == [8] * WORLD
    assert [own[-1] for own in found] == [12, 11, 6, 3]


def test_ranks_that_step_alone_take_shares(on_four: dict[str, list[Any]]) -> None:
    """Broken: a slow host that steps alone could not have smaller batches, or its samples would count twice: in its gradients and
    in its progress."""
    assert [own[0] for own in on_four["apart"]] == [7, 7, 4, 2]


def test_what_cannot_be_is_said(on_four: dict[str, list[Any]]) -> None:
    """Broken: wrong shares, or those beside what cannot count samples, would train something else, or fail without a way out."""
    said = on_four["refused"][0]
    for kind, words in {
        "zero": "share of rank 2 is 0",
        "negative": "share of rank 0 is -1",
        "nan": "share of rank 1 is nan",
        "few": "3 shares for 4 ranks",
        "word": "shares='fast': a number for each rank",
        "hosts": "no share for",
        "small": "the share of rank 3 on",
        "merged": "gradients count by the samples of their step",
        "policy": "TopK promises `same`",
    }.items():
        assert words in said[kind], (kind, said[kind])
        assert "\nhint: " in said[kind] or kind == "word"


def test_ranks_agree_on_shares(tmp_path: Path) -> None:
    """Broken: ranks with other shares would draw the same samples, or wait for one another for ever."""
    ended = ranks.run(f"{SCRIPTS}:unlike", 2, tmp_path)
    assert ended.outcome.code == 0, ended.output
    for said in ended.returned:
        assert "rank 0 has 59 samples" in said
        assert "shares=[1, 2]" in said
        assert "shares=[2, 1]" in said


def test_ranks_at_other_batches_are_named(tmp_path: Path) -> None:
    """Broken: a rank that leaves a batch out would count by another batch than it trains on, and nobody would know."""
    ended = ranks.run(f"{SCRIPTS}:skips", 2, tmp_path)
    assert "ranks are at other batches in step 3: rank" in ended.output


@pytest.mark.parametrize("how", ["leaves", "is_lost", "leaves_its_parts", "is_lost_with_its_parts"])
def test_those_that_remain_count_by_their_samples(how: str, tmp_path: Path) -> None:
    """Broken: when a rank of an elastic job leaves or dies, the others' mean would be of ranks instead of samples, or of samples
    that the lost rank had, and owners would step another mean than the others."""
    ended = ranks.in_turn([(f"{SCRIPTS}:{how}",)], 3, tmp_path, members_min=1)
    assert ended.outcome.code == 0, ended.output
    found = [each[0] for each in ended.returned if each is not None]
    assert len(found) == 2
    assert all(each["worst"] < 1e-6 for each in found)
    assert {each["world"] for each in found} == {2}
