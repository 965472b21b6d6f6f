"""Ranks with unequal numbers of batches: what `join` does for them, and what is said without it."""

import numpy as np
import pytest

from tests.support import ranks
from tests.torch import join_scripts

SCRIPTS = "tests.torch.join_scripts"


@pytest.fixture(scope="module")
def epochs(tmp_path_factory):
    """By policy: what three ranks return."""
    calls = {policy: (f"{SCRIPTS}:epochs", policy) for policy in ("none", "plain", "gates", "epochs")}
    return ranks.by_name(calls, 3, tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    """By script: what two ranks return."""
    calls = {script: (f"{SCRIPTS}:{script}",) for script in ("early", "pair", "refused")}
    return ranks.by_name(calls, 2, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("policy", ["none", "plain", "gates"])
def test_a_finished_rank_adds_nothing(epochs, policy):
    """The last batches would be lost, or weigh too much; momentum would differ between ranks from the next epoch on."""
    first, *others = epochs[policy]
    assert all(each == first for each in others)
    for mine, theirs in zip(first[-1], join_scripts.alone(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)


def test_epochs_begin_while_ranks_have_finished(epochs):
    """A rank without batches would keep the buckets of an epoch that others have left."""
    first, *others = epochs["epochs"]
    assert all(each == first for each in others)


def test_all_may_stop_with_the_first(on_two):
    """Ranks could not stop together, or not train on after it."""
    (said, numbers), (other, same) = on_two["early"]
    assert said == other
    assert "rank 1 on" in said
    assert "ran out of batches after 3 iterations" in said
    assert numbers == same


def test_what_cannot_be_joined_is_refused_by_name(on_two):
    """A residual would go on flowing out of a rank that has finished."""
    for top_k, local in on_two["refused"]:
        assert "TopK promises `same`" in top_k
        assert "exchange parameters" in local


def test_two_models_are_joined(on_two):
    """Adversarial training could not be joined."""
    first, second = on_two["pair"]
    assert first == second


def test_without_join_the_error_says_who_finished_and_what_to_do(tmp_path):
    """The user would read of `votes`, and have to know that batches are unequal."""
    ended = ranks.run("tests.torch.join_scripts:forgotten", 2, tmp_path)
    lines = [line for line in ended.output.splitlines() if line.startswith("[0]")]
    assert any("PeerError: rank 1 on" in line and "finished after 3 iterations" in line for line in lines), (
        ended.output
    )
    assert any("rank 0 on" in line and "is in iteration 4" in line for line in lines), ended.output
    assert any("with hocket.torch.join(model):" in line for line in lines), ended.output
