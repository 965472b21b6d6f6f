"""Merged and late gradients on real ranks: equal to the reference, each applied once, refused where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.settings import Settings
from tests.support import drawn, ranks
from tests.torch.delayed_scripts import OPTIMIZERS

pytestmark = pytest.mark.late

SCRIPTS = "tests.torch.delayed_scripts"
AT_ONCE = Settings(timeout_s=30, start_timeout_s=30, sentinel=False)
"""Schedules begin with the first iteration."""


CASES = drawn.cases(18)
"""Of 400 or so: `HOCKET_FUZZ_CASES=1000` runs all."""


def test_ranks_train_what_the_reference_does(tmp_path: Path) -> None:
    """Broken: merged or late gradients would train another model than variable-batch training at earlier parameters, one that
    depends on timing, or another one where `step` calls a closure."""
    calls = [(f"{SCRIPTS}:against_the_reference", str(CASES))]
    ended = ranks.in_turn(calls, 2, tmp_path, settings=AT_ONCE)
    assert ended.outcome.code == 0, ended.output
    for (found,) in ended.returned:
        assert len(found) >= min(CASES, 300)
        assert [(label, far) for label, far, _ in found if not far < 1e-9] == []
        assert [label for label, _, same in found if not same] == []


def test_parts_of_a_long_layer_train_what_the_layer_does(tmp_path: Path) -> None:
    """Broken: a layer that DeFT's partition rule cuts would be applied in part, or its parts at different times."""
    calls = [(f"{SCRIPTS}:in_parts", steps) for steps in ("one", "own first")]
    ended = ranks.in_turn(calls, 2, tmp_path, settings=AT_ONCE)
    assert ended.outcome.code == 0, ended.output
    for returned in ended.returned:
        for sizes, far, moved in returned:
            assert len(sizes) > 3
            assert sum(sizes) == 400 * 401
            assert far < 1e-9
            assert moved > 1e-3


def test_a_trivial_schedule_has_the_bits_of_none(tmp_path: Path) -> None:
    """Broken: synchronous training would depend on how it is said."""
    calls = [(f"{SCRIPTS}:trivial", kind) for kind in OPTIMIZERS]
    ended = ranks.in_turn(calls, 2, tmp_path)
    assert ended.outcome.code == 0, ended.output
    assert ended.returned == [[True] * len(OPTIMIZERS)] * 2


def test_what_late_gradients_cannot_do_is_said(tmp_path: Path) -> None:
    """Broken: training would go on with gradients that are lost, added up twice, or of another scale."""
    ended = ranks.run(f"{SCRIPTS}:refused", 2, tmp_path, settings=AT_ONCE)
    assert ended.outcome.code == 0, ended.output
    for said in ended.returned:
        for name, expected in {
            "no step": "a backward began before optimizer.step() applied",
            "no zero_grad": "is the mean that the last step applied, or was added to it",
            "flush before the step": "optimizer.step() first",
            "scaler": "hint: hk.flush(model) before a GradScaler is used for the first time",
            "join": "a rank that has finished",
            "LBFGS": "was called with a closure",
            "a policy": "bucket 0 goes by policy top_k: `uncorrected` does not allow loss=any",
            "DDP's hook": "merged or late gradients: the optimizer of DDP's hook",
        }.items():
            assert expected in said[name], name


def test_a_loop_that_ends_early_says_what_it_lacks(tmp_path: Path) -> None:
    """Broken: the last gradients would be missing from the model in silence, or a rank would end while others need it."""
    ended = ranks.run(f"{SCRIPTS}:not_flushed", 2, tmp_path, settings=AT_ONCE)
    assert ended.outcome.code == 0, ended.output
    assert ended.output.count("gradients of the last 1 of 3 iterations were made and not applied") == 1
