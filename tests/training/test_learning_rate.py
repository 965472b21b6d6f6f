"""The factor by which a learning rate follows the number of ranks."""

from __future__ import annotations

import pytest

from hocket.errors import UsageError
from hocket.training.loop.learning_rate import Scale


def test_rules() -> None:
    """Broken: a job on more ranks would train with the rate of a smaller batch, or diverge with that of a larger one."""
    for rule, factor in (("linear", 4.0), ("sqrt", 2.0)):
        scale = Scale(rule, world=2, warmup=0)
        scale.change(8)
        assert scale.step() == factor
        scale.change(2)
        assert scale.step() == 1.0


def test_the_scripts_own_rate_is_that_of_the_start() -> None:
    """Broken: without being told of a world, a job would begin with another rate than the script's."""
    scale = Scale("linear", world=None, warmup=3)
    scale.change(6)
    assert scale.step() == 1.0
    scale.change(3)
    assert [scale.step() for _ in range(4)] == pytest.approx([5 / 6, 4 / 6, 0.5, 0.5])


def test_a_change_within_a_warmup_goes_on_from_the_factor_in_force() -> None:
    """Broken: the rate would jump back when a rank is lost while it still grows."""
    scale = Scale("linear", world=1, warmup=4)
    scale.change(5)
    assert [scale.step(), scale.step()] == [2.0, 3.0]
    scale.change(1)
    assert [scale.step() for _ in range(5)] == [2.5, 2.0, 1.5, 1.0, 1.0]


def test_a_checkpoint_goes_on_with_another_number_of_ranks() -> None:
    """Broken: after a restart on other machines, the rate would be that of the old number of ranks, or grow from the beginning."""
    before = Scale("sqrt", world=None, warmup=2)
    before.change(4)
    before.step()
    after = Scale("sqrt", world=None, warmup=2)
    after.change(1)
    after.resume(before.saved())
    assert [after.step() for _ in range(3)] == [0.75, 0.5, 0.5]
    same = Scale("sqrt", world=None, warmup=2)
    same.change(4)
    same.resume(before.saved())
    assert same.step() == 1.0


def test_what_is_no_rule_is_refused() -> None:
    """Broken: a slip of the pen would train with a rate that nobody chose."""
    for arguments in (("cube", 1, 0), ("linear", 0, 0), ("linear", 1, -1)):
        rule, world, warmup = arguments
        with pytest.raises(UsageError, match="scale_lr"):
            Scale(rule, world=world, warmup=warmup)
    with pytest.raises(UsageError, match="something else of this name"):
        Scale("linear", world=1, warmup=0).resume({"world": 2})
