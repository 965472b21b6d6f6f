"""Ranks that step alone between exchanges: equal to a reference of one process, and one anchor on all."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import hocket.torch as hk
from hocket.errors import UsageError
from hocket.settings import Settings
from tests.support import ranks

pytestmark = pytest.mark.late

SCRIPTS = "tests.torch.local_scripts"
SETTINGS = Settings(timeout_s=30, start_timeout_s=30)

TORCHFT = Path(__file__).parents[1] / "formats/vectors/torchft-diloco"
"""Fixtures of torchft's `diloco_regression_test.py` (meta-pytorch/torchft at 7eb7087, BSD-3-Clause)."""

TWINS = replace(SETTINGS, on_drift="off")
"""Their ranks train on the same batches."""


def returned(script: str, tmp_path: Path, world: int = 2) -> Any:
    ended = ranks.run(f"{SCRIPTS}:{script}", world, tmp_path, settings=SETTINGS)
    assert ended.outcome.code == 0, ended.output
    return ended.returned


@pytest.mark.parametrize(
    ("script", "world"),
    [
        ("against_the_reference", 2),
        ("against_the_reference", 3),
        ("on_a_hostile_device", 2),
        ("through_a_library", 3),
    ],
)
def test_ranks_train_what_the_reference_does(tmp_path: Path, script: str, world: int) -> None:
    """Broken: progress of a rank would be lost or doubled in an exchange, or ranks would go apart for good."""
    found = returned(script, tmp_path, world)
    for own in found:
        assert len(own) > 4
        assert [each[:4] for each in own if not max(each[1:4]) < 1e-9] == []
    first, *others = ([each[4] for each in own] for own in found)
    assert all(each == first for each in others)


@pytest.mark.parametrize(
    ("number", "late", "mix"), [(0, 0, 0.0), (1, 0, 0.5), (2, 0, 1.0), (3, 1, 0.0), (4, 1, 0.5), (5, 1, 1.0)]
)
def test_it_is_what_torchft_trains(number: int, late: int, mix: float, tmp_path: Path) -> None:
    """Broken: the method would be called by a name under which others train something else."""
    (wanted, *_), *others = json.loads((TORCHFT / f"diloco_mocked_updates_{number}.json").read_text())
    assert all(other[0] == wanted for other in others)
    steps = len(wanted["history"]) - 1
    ended = ranks.run(f"{SCRIPTS}:as_torchft", 2, tmp_path, str(late), str(mix), str(steps), settings=TWINS)
    assert ended.outcome.code == 0, ended.output
    for own, anchors in ended.returned:
        for step in range(steps + 1):
            assert own[step] == pytest.approx(weights(wanted["history"][str(step)]), abs=1e-6), step
        for step, anchor in wanted["global_parameter_history"].items():
            assert anchors[int(step)] == pytest.approx(weights(anchor), abs=1e-6), step


def weights(named: dict[str, list[list[float]]]) -> list[float]:
    return [named[f"layers.{at}.weight"][0][0] for at in range(2)]


def test_each_iteration_is_in_one_exchange(tmp_path: Path) -> None:
    """Broken: iterations would be counted as exchanged before they are, or never."""
    for found in returned("exchanges", tmp_path):
        made = [each[0] for each in found]
        assert made == [*range(1, 11), 10]
        assert [each[1] for each in found] == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 10]


def test_a_training_goes_on_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    """Broken: a resumed job would train from the anchor alone, or lose what travels."""
    assert returned("resumed", tmp_path) == [[True] * 4] * 2


def test_the_outer_momentum_goes_on_by_another_plan(tmp_path: Path) -> None:
    """Broken: a job that resumes on other buckets would forget the outer optimizer's momentum."""
    assert all(found[0] < 1e-9 for found in returned("momentum_of_other_ranks", tmp_path))


def test_default_plans_and_policies_exchange_progress(tmp_path: Path) -> None:
    """Broken: codecs with residuals could not be used where they save most."""
    first, second = returned("ways", tmp_path)
    assert first.keys() == second.keys()
    for name, (loss, digest) in first.items():
        assert loss < 1.0, name
        assert digest == second[name][1], name


def test_a_plan_may_say_it(tmp_path: Path) -> None:
    """Broken: plan files and the argument would be two kinds of training."""
    assert returned("a_plan_file_says_it", tmp_path) == [0.0, 0.0]


def test_steps_count_not_backward_passes(tmp_path: Path) -> None:
    """Broken: accumulation, clipping and a GradScaler would need another loop than without Hocket."""
    first, second = returned("uneven", tmp_path)
    assert first == second
    assert first[0][0] == 8


def test_calls_between_two_exchanges_are_refused(tmp_path: Path) -> None:
    """Broken: progress of a rank would be lost in silence, or ranks would wait for one that has finished."""
    for found in returned("refused", tmp_path):
        assert found == [
            "model.load_state_dict while ranks step alone: the next exchange would not know what they moved",
            "join: gradients are merged or late, and a rank that has finished would leave turns of the others open",
        ]


@pytest.mark.parametrize(
    ("local", "asked", "said"),
    [
        (hk.Local(every=0), {}, "every=0, late=0: every is at least 1, and late from 0 to below it"),
        (hk.Local(every=2, late=2), {}, "every=2, late=2: every is at least 1, and late from 0 to below it"),
        (
            hk.Local(every=2, momentum=1),
            {},
            "momentum=1, mix=None: the rate is above 0, the momentum from 0 to below 1",
        ),
        (hk.Local(every=2000), {}, "a period of 2000 iterations"),
        (hk.Local(every=2, mix=2), {}, "mix=2: the rate is above 0"),
        (hk.Local(every=2, fragments=3), {}, "fragments=3: from 1 to every=2, and to the"),
        (
            hk.Local(every=9, fragments=9),
            {},
            "fragments=9: from 1 to every=9, and to the 2 buckets of the plan",
        ),
        (
            hk.Local(every=9),
            {"promise": "exact"},
            "ranks step alone between exchanges: `exact` does not allow local=9",
        ),
        (hk.Local(every=9), {"promise": "local,local=8"}, "`local,local=8` does not allow local=9"),
        (
            hk.Local(every=9, late=1),
            {"promise": "local,local=9"},
            "ranks go on while an exchange is under way: `local,local=9` does not allow delay=1",
        ),
        (hk.Local(every=9), {"search": "1s"}, "a search for a plan, and local=Local"),
    ],
)
def test_numbers_that_cannot_be_are_refused(local: hk.Local, asked: dict[str, str], said: str) -> None:
    """Broken: ranks would train otherwise than was asked for, or a traceback would not say what is wrong."""
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with pytest.raises(UsageError, match=re.escape(said)):
        hk.distribute(layer, optimizer, local=local, settings=Settings(rank=0, world=1), **asked)


def test_anchors_that_differ_are_reported(tmp_path: Path) -> None:
    """Broken: ranks could train different models for good, since their parameters differ anyway."""
    for found in returned("one_changes_the_anchor", tmp_path):
        assert re.search(r"replicas differ .*: rank 1 on .* has other values of `0.weight`", found)
