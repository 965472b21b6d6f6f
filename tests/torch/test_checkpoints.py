"""`hk.state_dict` and `hk.load_state_dict`: a job that begins with a checkpoint goes on with the bits that it would have had."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support import ranks
from tests.torch.checkpoint_scripts import POLICIES

SCRIPTS = "tests.torch.checkpoint_scripts"
SCHEDULES = [*itertools.product(("end", "gate"), ("unwatched", "watched"))]
"""Where turns are applied, and whether the sentinel lets the schedule begin late."""


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], list[Any]]:
    """By script and its arguments: what two ranks returned."""
    directory = tmp_path_factory.mktemp("two")
    calls = [
        *(("resumed", *each) for each in SCHEDULES),
        *(("with_policy", name) for name in POLICIES),
        *(("saved_by_one", flushes) for flushes in ("no", "yes")),
        ("refused",),
        ("left_behind",),
    ]
    written = {("left_behind",): (str(directory),)}
    named = {each: (f"{SCRIPTS}:{each[0]}", *each[1:], *written.get(each, ())) for each in calls}
    return {("directory",): [str(directory)], **ranks.by_name(named, 2, directory)}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_training_goes_on_from_any_step_with_equal_bits(
    schedule: tuple[str, str], on_two: dict[tuple[str, ...], list[Any]]
) -> None:
    """Broken: who resumes from a checkpoint would lose gradients that were on their way, apply them twice, or train by another
    schedule."""
    assert on_two["resumed", *schedule] == [[], []]


@pytest.mark.parametrize("policy", POLICIES)
def test_state_of_policies_goes_on(policy: str, on_two: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: a resumed job would forget residuals of error feedback, factors of PowerSGD, or when parameters are exchanged next:
    it would train another model, in silence."""
    for own in on_two["with_policy", policy]:
        assert own["resumed"] == own["uninterrupted"]
        assert own["without state"] != own["uninterrupted"]


def test_residuals_survive_other_buckets_and_another_world(
    tmp_path: Path, on_two: dict[tuple[str, ...], list[Any]]
) -> None:
    """Broken: after a change of plan or of ranks, residuals would be added to other parameters' gradients, or get lost."""
    before = on_two["left_behind",]
    after = ranks.run(f"{SCRIPTS}:taken_up", 3, tmp_path, on_two["directory",][0], "2")
    assert after.outcome.code == 0, after.output
    assert any(any(values) for values in before[0].values())
    assert after.returned[:2] == before
    assert not any(any(values) for values in after.returned[2].values())


def test_what_cannot_be_resumed_is_said(on_two: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: training would go on from something else than the checkpoint, and nobody would notice."""
    for said in on_two["refused",]:
        for name, expected in {
            "in training": "a backward has begun",
            "before the step": "optimizer.step() first",
            "nonsense": "not what hk.state_dict returned",
            "a newer version": "version 9",
            "two moments": "not saved at the same moment",
            "another schedule": "call hk.flush(model) before hk.state_dict(model)",
            "no residuals": "no state of `left` of parameter",
        }.items():
            assert expected in said[name], (name, said[name])


@pytest.mark.parametrize(("flushes", "told"), [("no", 1), ("yes", 0)])
def test_a_model_saved_without_its_open_gradients_is_noticed_once(
    flushes: str, told: int, on_two: dict[tuple[str, ...], list[Any]]
) -> None:
    """Broken: a checkpoint would lack gradients in silence, or a rank that saves alone would wait for the others for ever."""
    assert on_two["saved_by_one", flushes] == [told, 0]
