"""Gradients as scripts see and treat them: what DDP computes, and which gradients are None there, is what Hocket does."""

import itertools

import numpy as np
import pytest

from tests.support import ranks
from tests.torch.gradient_scripts import WAYS, WITHOUT
from tests.torch.touched_scripts import AFTERWARDS, SCRIPTS

KINDS = ("ddp", "barrier", "gates", "owners")


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """By kind and way: what each rank has seen."""
    calls = {
        (kind, way): ("tests.torch.gradient_scripts:trained", kind, way)
        for kind, way in itertools.product(KINDS, WAYS)
        if kind not in WITHOUT[way]
    }
    return ranks.by_name(calls, 3, tmp_path_factory.mktemp("seen"))


def same(found, expected):
    """Structure, which are None, and numbers up to the order of summation."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if expected is None or found is None or isinstance(expected, bool):
        return found is expected
    if not expected or not found:
        return True
    if not isinstance(expected[0], float):
        return len(found) == len(expected) and all(map(same, found, expected))
    return np.allclose(found, expected, rtol=1e-5, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_what_they_are_under_ddp(seen, kind, way):
    """An optimizer would step on zeros in place of its gradients, or on zeros where there is none, without a word."""
    if kind in WITHOUT[way]:
        pytest.skip("refused, or another training")
    for rank, (found, expected) in enumerate(zip(seen[kind, way], seen["ddp", way], strict=True)):
        for at, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            assert same(ours, theirs), (rank, at)


HOOKS = {
    "a_hook_takes_it": "a hook took the gradient of `first.bias` away in backward",
    "a_hook_steps": "SGD steps `second.weight` in the middle of backward",
    "the_optimizer_steps_in_a_hook": "SGD steps `never` in the middle of backward",
    "applied_in_backward": "in the middle of backward",
    "another_hook_writes": "the gradient of `second.bias` was changed in backward after it had been sent",
    "another_hook_replaces": "the gradient of `second.bias` was changed in backward after it had been sent",
    "a_layer_s_hook_writes": "the gradient of `second.bias` was changed in backward after it had been sent",
    "a_layer_s_hook_zeroes": "the gradient of `second.",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """By script, and kind where there are several: what each rank has been told."""
    module = "tests.torch.touched_scripts"
    calls = {(kind, name): (f"{module}:told", kind, name) for kind in KINDS[1:] for name in SCRIPTS}
    calls |= {how: (f"{module}:told_afterwards", how) for how in AFTERWARDS}
    calls |= {"two": (f"{module}:told_of_two",), "merged": ("tests.torch.zeroed_scripts:merged",)}
    return ranks.by_name(calls, 2, tmp_path_factory.mktemp("told"))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("name", SCRIPTS)
def test_who_touches_a_gradient_in_backward_hears_which(told, kind, name):
    """Ranks would go on with different parameters, or with half-reduced memory, without a word."""
    expected = HOOKS[name]
    if (kind, name) == ("owners", "the_optimizer_steps_in_a_hook"):
        expected = "step() with a gradient of `first.weight` that its owners did not reduce"
    assert [expected in each for each in told[kind, name]] == [True, True], told[kind, name]


@pytest.mark.parametrize("how", AFTERWARDS)
def test_who_touches_a_gradient_before_its_gate_opens_hears_which(told, how):
    """What a script wrote by hand would be mixed with sums that arrive, or its step would find no gradients."""
    assert ["was changed while it was reduced" in each for each in told[how]] == [True, True], told[how]


def test_merged_gradients_have_one_optimizer(told):
    """The other one would step with another rate than the schedule's, and not at all in `hk.flush`."""
    assert all("SGD steps `0.bias`, and another optimizer was distributed" in each for each in told["two"])


def test_merged_gradients_are_zeroed_in_any_way(told):
    """Sums of several iterations would be lost, or a mean would be applied twice."""
    wrong = [name for each in told["merged"] for name, same in each.items() if not same]
    assert not wrong
