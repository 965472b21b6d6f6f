"""Tensors that are not the usual ones, and what users do with theirs."""

import pytest

from tests.support import ranks

ON_TWO = (
    *(("complex_numbers", kind, how) for kind in ("ddp", "hocket") for how in ("sgd", "adam")),
    ("channels_last", "ddp", "never"),
    *(
        ("channels_last", "hocket", when)
        for when in ("before backward", "before step", "after step", "shared")
    ),
    *(("averaged", policy) for policy in ("exchanged", "owned")),
    *(("scripted", kind, how) for kind in ("ddp", "hocket") for how in ("alone", "inner", "loaded")),
    ("scripted", "hocket", "before"),
    ("scripted", "hocket", "gates"),
    ("resized",),
)


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    """By script and its arguments: what two ranks returned."""
    named = {call: (f"tests.torch.tensor_scripts:{call[0]}", *call[1:]) for call in ON_TWO}
    return ranks.by_name(named, 2, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("how", ["sgd", "adam"])
def test_complex_parameters_train(on_two, how):
    """Fourier operators would not train, or their ranks would drift apart."""
    ours, theirs = (on_two["complex_numbers", kind, how] for kind in ("hocket", "ddp"))
    assert ours[0] == ours[1] == theirs[0]


@pytest.mark.parametrize("when", ["before backward", "before step", "after step", "shared"])
def test_memory_may_be_laid_out_anew(on_two, when):
    """`model.to(memory_format=torch.channels_last)`, or `model.share_memory()`, after `distribute` would end the job."""
    ours, theirs = on_two["channels_last", "hocket", when], on_two["channels_last", "ddp", "never"]
    assert ours[0] == ours[1]
    for own, wanted in zip(ours[0], theirs[0], strict=True):
        assert own == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("policy", ["exchanged", "owned"])
def test_parameters_may_get_other_memory(on_two, policy):
    """Where parameters lie in Hocket's memory, a script that evaluates an average of weights would go on without the others."""
    first, second = on_two["averaged", policy]
    assert first["plain"] == first["swapped"] == second["swapped"]


@pytest.mark.parametrize("how", ["alone", "inner", "loaded", "before", "gates"])
def test_torch_script(on_two, how):
    """Models of atoms, which are TorchScript in part, would not train."""
    ours = on_two["scripted", "hocket", how]
    theirs = on_two["scripted", "ddp", "inner" if how in ("before", "gates") else how]
    assert ours[0][0] == ours[1][0] == theirs[0][0]
    assert ours[0][1] == theirs[0][1]


def test_tensors_stay_resizable(on_two):
    """Observers of quantisation-aware training, which resize their buffers, would fail after `distribute`."""
    first, second = on_two["resized",]
    assert first == second
