"""Buckets whose owners alone update them, on real ranks."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import ranks
from tests.torch.owners_scripts import OPTIMIZERS

SCRIPTS = "tests.torch.owners_scripts"
WORLD = 3
SHARES = ("even", "uneven", "first")
BOTH = [*zip(OPTIMIZERS, itertools.cycle(SHARES)), *(("AdamW", shares) for shares in SHARES[::2])]


def run(calls: list[tuple[str, ...]], directory: Path, world: int = WORLD) -> list[list[Any]]:
    ended = ranks.in_turn([(f"{SCRIPTS}:{name}", *rest) for name, *rest in calls], world, directory)
    assert ended.outcome.code == 0, ended.output
    # Parts of parameters are no parameters that only this rank trains.
    assert "of no distributed model" not in ended.output
    return [list(each) for each in zip(*ended.returned, strict=True)]


def assert_all_equal(by_rank: list[list[Any]]) -> None:
    """Every way on every rank gives the first one's bits."""
    first = by_rank[0][0]
    for rank, ways in enumerate(by_rank):
        for way, each in enumerate(ways):
            differ = [name for name in first if first[name] != each[name]]
            assert not differ, f"rank {rank}, way {way}: {differ}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], list[Any]]:
    calls = [
        *(("both", *each) for each in BOTH),
        *(("saved", kind) for kind in ("momentum", "AdamW", "ASGD")),
        *(("taken_over", kind) for kind in ("momentum", "AdamW", "Adagrad")),
        ("in_parts", "AdamW"),
        ("accumulated", "AdamW"),
        ("clipped", "momentum"),
        ("norms",),
        *(("joined", "AdamW", how) for how in ("of all", "of few")),
        ("joined", "momentum", "clipped"),
        *(("joined_together", order) for order in ("in turn", "after both")),
        ("refused",),
    ]
    return dict(zip(calls, run(calls, tmp_path_factory.mktemp("owners")), strict=True))


@pytest.mark.parametrize("each", BOTH)
def test_owners_compute_what_replicas_do(
    each: tuple[str, str], found: dict[tuple[str, ...], list[Any]]
) -> None:
    """Broken: a model would be another one, bit for bit, because ranks share its optimizer's work: with schedules, groups, gates,
    closures and layers that no rank uses."""
    assert_all_equal(found["both", *each])


def test_a_tensor_goes_two_ways(found: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: of a tensor of which some is all-reduced and some has owners, a part would not be updated, or twice."""
    for replicas, parts in found["in_parts", "AdamW"]:
        assert list(replicas) == list(parts)
        for name, expected in replicas.items():
            assert parts[name] == pytest.approx(expected, rel=1e-4, abs=1e-5), name
    assert_all_equal([[each[1]] for each in found["in_parts", "AdamW"]])


def test_gradients_accumulate(found: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: `no_sync` would lose what was accumulated."""
    assert_all_equal(found["accumulated", "AdamW"])


def test_gradients_are_clipped_by_the_norm_of_all(found: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: each rank would clip by the norm of what it owns."""
    for replicas, *owners in found["clipped", "momentum"]:
        for each in owners:
            for name, expected in replicas.items():
                assert each[name] == pytest.approx(expected, rel=1e-4, abs=1e-5), name
    assert_all_equal([each[1:] for each in found["clipped", "momentum"]])
    for each in found["norms",]:
        assert each[:3] == pytest.approx(each[3:], rel=1e-5)
    assert all(each == found["norms",][0] for each in found["norms",])


@pytest.mark.parametrize("kind", ["momentum", "AdamW", "ASGD"])
def test_the_state_is_whole_and_loads_into_any_plan(
    kind: str, found: dict[tuple[str, ...], list[Any]]
) -> None:
    """Broken: a checkpoint would have one rank's share of the optimizer's state, or fit no other plan."""
    for each in found["saved", kind]:
        after = len(each) // 2
        (replicas, *resumed), (owners, *others) = each[:after], each[after:]
        assert replicas == owners
        assert resumed == others
        # The last plan's shares are others, and so is its order of summation.
        assert resumed[0] == resumed[1]
        for name, values in resumed[0].items():
            assert resumed[2][name] == pytest.approx(values, rel=1e-3, abs=1e-4), name


@pytest.mark.parametrize("how", ["of all", "of few"])
def test_ranks_that_have_finished_go_on_owning(how: str, found: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: with unequal numbers of batches, parts of a model would not be updated any more, or at another rate."""
    assert_all_equal([ways[:3] for ways in found["joined", "AdamW", how]])
    assert_all_equal([ways[3:] for ways in found["joined", "AdamW", how]])


def test_ranks_that_have_finished_clip_what_they_own(found: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: those that train on would wait for norms of others for ever, or clip by a part of the norm."""
    by_rank = found["joined", "momentum", "clipped"]
    for ways in by_rank:
        # The norm of owners' norms has another order of summation.
        for way in range(6):
            for name, each in by_rank[0][3 * (way // 3)].items():
                assert ways[way][name] == pytest.approx(each, rel=1e-5, abs=1e-6), (way, name)
        assert ways[1] == by_rank[0][1]


@pytest.mark.parametrize("order", ["in turn", "after both"])
def test_ranks_that_have_finished_go_on_owning_of_several_models(
    order: str, found: dict[tuple[str, ...], list[Any]]
) -> None:
    """Broken: a rank without batches would wait for one model while the others wait for its step of another one."""
    assert_all_equal(found["joined_together", order])


@pytest.mark.parametrize("kind", ["momentum", "AdamW", "Adagrad"])
def test_an_optimizer_that_has_trained_goes_on(kind: str, found: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: a resumed job's optimizer would begin anew where it is divided."""
    assert_all_equal(found["taken_over", kind])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("torch's clip", r"is divided among its owners(.|\n)*hk\.clip_grad_norm_"),
        ("reads a gradient", "sum: the gradient of `first.weight` is divided among its owners"),
        ("state_dict", r"divided among the ranks(.|\n)*hk\.optimizer_state\(model\)"),
        ("optimizer_state in join", "within hk.join, ranks that have finished would have to call it"),
        ("backward again", "backward adds to a gradient of `.*` that its owners have reduced"),
        ("a step of what was not sent", r"step\(\) with a gradient of `.*` that its owners did not reduce"),
        ("LBFGS", "owners cannot step parts of parameters with LBFGS"),
        ("Layerwise", "owners cannot step parts of parameters with Layerwise"),
        ("a parameter less", "parameter `scale` is not in the optimizer"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    what: str, said: str, found: dict[tuple[str, ...], list[Any]]
) -> None:
    """Broken: ranks would compute other things from what each of them has of a gradient, and go on."""
    for each in found["refused",]:
        assert re.search(said, each[what]), each[what]


def test_each_rank_keeps_its_share_of_the_state(tmp_path: Path) -> None:
    """Broken: owners would save no memory."""
    (by_rank,) = run([("memory",)], tmp_path, world=4)
    for mine, whole in by_rank:
        assert mine == pytest.approx(whole / 4, rel=0.05)
