"""A model's state, given in parts at different steps and stepped further elsewhere, is the same bits as where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hocket.artefacts.plan import Outer
from hocket.errors import UsageError
from hocket.torch.framework import Torch
from hocket.torch.state_parts import TorchParts
from hocket.training.memory.anchor import Arrival
from hocket.training.memory.state_parts import PIECE_BYTES, Described

STEPS = 7

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda own: torch.optim.SGD(own, lr=0.1),
    "Nesterov": lambda own: torch.optim.SGD(own, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "AdamW": lambda own: torch.optim.AdamW(own, lr=1e-2),
    "Adam, each alone": lambda own: torch.optim.Adam(own, lr=1e-2, amsgrad=True, foreach=False),
    "NAdam": lambda own: torch.optim.NAdam(own, lr=1e-2),
    "RMSprop": lambda own: torch.optim.RMSprop(own, lr=1e-2, centered=True, momentum=0.5),
    "Adagrad": lambda own: torch.optim.Adagrad(own, lr=1e-1),
    "Adafactor": lambda own: torch.optim.Adafactor(own, lr=1e-2),
    "Rprop": lambda own: torch.optim.Rprop(own, lr=1e-2),
    "ASGD": lambda own: torch.optim.ASGD(own, lr=1e-2),
}


class Made(Torch):
    """A model in parts."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(model, optimizer)
        self.parts = TorchParts(self)


def made(optimizer: str, seed: int, width: int = 6) -> Made:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last),
        torch.nn.Flatten(),
        torch.nn.Linear(64, width),
        torch.nn.Linear(width, 3).bfloat16(),
    )
    model.scale = torch.nn.Parameter(torch.ones(()))
    model.unused = torch.nn.Parameter(torch.ones(3))
    model.frozen = torch.nn.Parameter(torch.randn(PIECE_BYTES // 4 + 5), requires_grad=False)
    groups = [
        {"params": [each for each in model.parameters() if each.dim() > 1 and each.requires_grad]},
        {
            "params": [each for each in model.parameters() if each.dim() <= 1 and each.requires_grad],
            "lr": 0.03,
        },
    ]
    return Made(model, OPTIMIZERS[optimizer](groups))


def drawn(framework: Made, at: int) -> dict[str, torch.Tensor | None]:
    """Gradients of random numbers, of some parameters none."""
    draw = torch.Generator().manual_seed(at)
    found = {}
    for name, parameter in framework.trained.items():
        # In the parameter's own memory format, as autograd makes it: sums of rows depend on it.
        own = torch.empty_like(parameter).copy_(torch.randn(parameter.shape, generator=draw))
        found[name] = None if name == "unused" or (name == "2.bias" and at % 2) else own
    return found


def step(framework: Made, at: int) -> None:
    """A step with such gradients; rates decay."""
    for name, gradient in drawn(framework, at).items():
        framework.trained[name].grad = gradient
    for group in framework.optimizer.param_groups:
        group["lr"] *= 0.9
    framework.optimizer.step()


def copied(arrays: Any) -> memoryview:
    return memoryview(bytearray(b"".join(each.tobytes() for each in arrays)))


def give(source: Made, to: Made, part: int) -> None:
    described, arrays = source.parts.give(part)
    to.parts.take(part, described, copied(arrays))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_parts_that_are_stepped_elsewhere_are_the_same_bits(optimizer: str) -> None:
    """Broken: a rank would join with other parameters than those with which the others go on."""
    source, to = made(optimizer, 0), made(optimizer, 1)
    step(source, 100)
    parts = source.parts.parts()
    assert [each.trained for each in parts].count(True) == len(source.trained)
    assert len(parts) == len(source.trained) + 2, "the frozen parameter comes in pieces"
    assert source.parts.unfit() is None
    given: list[int] = []
    for at in range(STEPS):
        step(source, at)
        followed = [each for each in given if parts[each].trained]
        gradients = [(part, copied([data])) for part, data in source.parts.gradients(followed)]
        to.parts.step(source.parts.rates(), gradients)
        for part in range(at, len(parts), STEPS):
            give(source, to, part)
            given.append(part)
    assert sorted(given) == list(range(len(parts)))
    step(source, 1000)
    gradients = [(part, copied([data])) for part, data in source.parts.gradients(range(len(source.trained)))]
    to.parts.step(source.parts.rates(), gradients)
    for name, own in source.model.state_dict().items():
        assert torch.equal(own, to.model.state_dict()[name]), name
    ours, theirs = source.optimizer.state_dict(), to.optimizer.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for parameter, state in ours["state"].items():
        for name, value in state.items():
            other = theirs["state"][parameter][name]
            assert torch.equal(value, other) if torch.is_tensor(value) else value == other, name
    step(source, 2000)
    step(to, 2000)
    assert all(
        torch.equal(one, other)
        for one, other in zip(source.model.parameters(), to.model.parameters(), strict=True)
    ), "it goes on otherwise"


def test_what_the_script_changes_is_seen() -> None:
    """Broken: a part that a script changes beside its optimizer would be another one on a rank that joins."""
    framework = made("SGD", 0)
    step(framework, 0)
    framework.parts.stepped()
    assert framework.parts.changed() == []
    with torch.no_grad():
        framework.trained["2.weight"].clamp_(-0.01, 0.01)
    assert framework.parts.changed() == [list(framework.trained).index("2.weight")]


def test_state_that_is_not_in_parts_is_told() -> None:
    """Broken: a rank would join with a part of the optimizer's state."""
    framework = made("SGD", 0)
    framework.optimizer.state[framework.trained["scale"]] = {"history": [torch.ones(2)]}
    assert "`history`" in str(framework.parts.unfit())
    framework = made("SGD", 0)
    framework.optimizer.state[torch.nn.Parameter(torch.ones(2))] = {"step": 1}
    assert "other parameters" in str(framework.parts.unfit())
    framework = made("SGD", 0)
    framework.optimizer.param_groups[0]["lr"] = torch.tensor(0.1)
    assert "`lr`" in str(framework.parts.unfit())


def test_parts_of_another_model_are_refused() -> None:
    """Broken: a rank with another model would fill it with whatever comes."""
    source, other = made("SGD", 0), made("SGD", 0, width=7)
    at = list(source.trained).index("2.weight")
    with pytest.raises(UsageError, match=r"`2\.weight` has 1792 bytes here and 1536 in the job"):
        give(source, other, at)
    frozen = len(source.trained)
    with pytest.raises(UsageError, match="not trained"):
        other.parts.take(frozen, Described(value_bytes=1), memoryview(bytearray(1)))


def exchange(framework: Made, at: int, names: Sequence[str]) -> None:
    """Step alone, then exchange the progress of some parameters: it arrives as random numbers."""
    step(framework, at)
    draw = torch.Generator().manual_seed(1000 + at)
    views = [
        torch.empty_like(each).copy_(torch.randn(each.shape, generator=draw) / 100)
        for each in (framework.trained[name].detach() for name in names)
    ]
    mean: Any = SimpleNamespace(names=tuple(names), views=tuple(views))
    arrival = Arrival(mean=mean, own=mean, iterations=range(1), unmade=(), factor=1.0)
    framework.local.arrive([arrival], lacks=range(len(framework.trained) - len(names)))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_parts_follow_an_anchor(momentum: float) -> None:
    """Broken: a rank that joins others that step alone would begin apart from their anchor, or with another momentum."""
    outer = Outer(rate=0.7, momentum=momentum, nesterov=momentum > 0)
    source, to = made("AdamW", 0), made("AdamW", 1)
    step(source, 0)
    source.local.begin(outer)
    assert source.parts.outer == outer
    to.parts.follow(source.parts.outer)
    names = list(source.trained)
    for at, name in enumerate(names):
        exchange(source, 1 + at, names if at % 2 else names[:-2])
        given = source.parts.gradients(range(at))
        to.parts.step(source.parts.rates(), [(part, copied([own])) for part, own in given])
        give(source, to, at)
        source.parts.stepped()
        assert (
            to.optimizer.state[to.trained[name]].keys() == source.optimizer.state[source.trained[name]].keys()
        )
        step(source, 100 + at)
        assert not source.parts.changed()
        assert not source.parts.gradients(range(at))
    anchor = source.local.values()
    for part, name in enumerate(names):
        assert torch.equal(to.trained[name], anchor[name]), name
        ours, theirs = source.parts.alike(part), to.parts.alike(part)
        assert all(map(np.array_equal, ours, theirs))
    to.local.begin(outer)
    to.parts.hand_over()
    for framework in (source, to):
        exchange(framework, 50, names)
    for name in names:
        assert torch.equal(source.local.values()[name], to.local.values()[name]), name


def test_a_script_changes_the_anchor_between_exchanges() -> None:
    """Broken: a rank that joins would not hear of parameters that the script has loaded."""
    source = made("SGD", 0)
    source.local.begin(Outer())
    exchange(source, 1, list(source.trained))
    source.parts.stepped()
    with torch.no_grad():
        source.trained["scale"].add_(1)
    step(source, 2)
    assert source.parts.changed() == [list(source.trained).index("scale")]
