"""Models whose parameters are others than when they were distributed."""

import pytest

from tests.support import ranks

HOWS = ("head", "unfrozen", "assigned", "added", "deep")
NAMES = {
    "head": "`4.weight`, `4.bias`",
    "unfrozen": "`3.weight`, `3.bias`",
    "assigned": "`0.weight`, `0.bias`, `1.weight`, `1.bias`, `4.weight`",
    "added": "`more.weight`, `more.bias`",
    "deep": "`4.weight`",
}
NOTICED = (
    ("head", "model"),
    ("unfrozen", "parts"),
    ("assigned", "model"),
    ("added", "gates"),
    ("deep", "parts"),
)
ON_TWO = (
    *(("noticed", *each, "all") for each in NOTICED),
    *(("again", "+".join(HOWS), kind) for kind in ("ddp", "hocket", "gates", "exchanged")),
    *(("parts", kind) for kind in ("other", "whole again", "old one")),
    ("copies",),
    *(("swapped", how) for how in ("noticed", "again")),
    *(("other_optimizer", kind) for kind in ("plain", "gates", "exchanged", "loss")),
)


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    """By script and its arguments: what two ranks returned."""
    named = {call: (f"tests.torch.replaced_scripts:{call[0]}", *call[1:]) for call in ON_TWO}
    return ranks.by_name(named, 2, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize(("how", "call"), NOTICED)
def test_other_parameters_are_noticed(on_two, how, call):
    """Each rank would train its own, and none would say so."""
    for rank, (told, kept) in enumerate(on_two["noticed", how, call, "all"]):
        assert told.startswith(f"rank {rank} on ")
        assert f"{NAMES[how]} " in told
        assert "hk.distribute(model, optimizer) again" in told
        assert kept, "a step was made"


def test_one_rank_alone_has_other_parameters(tmp_path):
    """The others would go on without it, or wait for it and blame it for being slow."""
    ended = ranks.run("tests.torch.replaced_scripts:noticed", 2, tmp_path, "unfrozen", "model", "one")
    assert ended.outcome.code != 0
    told = [
        line for line in ended.output.splitlines() if "Error: " in line and f"{NAMES['unfrozen']} " in line
    ]
    assert {line[:3] for line in told} == {"[0]", "[1]"}, ended.output


@pytest.mark.parametrize("kind", ["hocket", "gates"])
def test_a_model_may_be_distributed_again(on_two, kind):
    """Fine-tuning in stages would not be possible in one job, or would give other models than DDP."""
    how = "+".join(HOWS)
    ours, theirs = on_two["again", how, kind], on_two["again", how, "ddp"]
    assert ours[0] == ours[1] == theirs[0]


def test_local_sgd_may_begin_again(on_two):
    """The parameters that are exchanged would be those from before."""
    first, second = on_two["again", "+".join(HOWS), "exchanged"]
    assert first == second


@pytest.mark.parametrize("kind", ["other", "whole again"])
def test_parts_may_be_distributed_again(on_two, kind):
    """A backbone that was trained before would be reduced twice."""
    first, second = on_two["parts", kind]
    assert first == second


def test_who_is_left_is_told(on_two):
    """The rest of a model of which only a part was distributed again would differ between ranks."""
    for told in on_two["parts", "old one"]:
        assert "of Sequential, which nobody reduces: Sequential was distributed after it" in told


def test_copies_are_not_looked_at(on_two):
    """A copy that one rank changes and trains would end the job."""
    first, second = on_two["copies",]
    assert first == second


def test_swapped_tensors_are_noticed(on_two):
    """Parameters that PyTorch swaps for others keep their identity, and are hooked no more."""
    for told in on_two["swapped", "noticed"]:
        assert "`0.weight`, `0.bias`" in told
    first, second = on_two["swapped", "again"]
    assert first == second


@pytest.mark.parametrize("kind", ["plain", "gates"])
def test_another_optimizer_may_step(on_two, kind):
    """It would step with gradients that are still on their way."""
    first, second = on_two["other_optimizer", kind]
    assert first == second == on_two["other_optimizer", "plain"][0]


def test_another_optimizer_is_noticed(on_two):
    """Local SGD would never exchange parameters again."""
    for told in on_two["other_optimizer", "exchanged"]:
        assert (
            "another SGD steps the parameters of Sequential than the optimizer with which the model was distributed"
            in told
        )


def test_parameters_of_no_model_are_noticed(on_two):
    """Those of a loss would differ between ranks."""
    for told in on_two["other_optimizer", "loss"]:
        assert sum("also steps 1 parameters that are of no distributed model" in each for each in told) == 1
