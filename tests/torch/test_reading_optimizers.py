"""Optimizers that are said to leave gradients as they are: anchors step with the same gradients several times."""

import itertools

import pytest
import torch

from hocket.torch import optimizers

KINDS = {
    "SGD": (torch.optim.SGD, {"momentum": (0.0, 0.9), "dampening": (0.0,), "weight_decay": (0.0, 0.1)}),
    "Adam": (torch.optim.Adam, {"amsgrad": (False, True), "weight_decay": (0.0, 0.1)}),
    "AdamW": (torch.optim.AdamW, {"amsgrad": (False, True), "weight_decay": (0.0, 0.1)}),
}
WAYS = ({}, {"foreach": True}, {"foreach": False}, {"fused": True})


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_readers_writes_to_no_gradient(kind: str) -> None:
    """Broken: the second of two steps with a mean would be with what the first one left of it."""
    make, options = KINDS[kind]
    assert kind in optimizers.READERS
    for values in itertools.product((False, True), WAYS, *options.values()):
        maximize, way, *own = values
        parameters = [torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(2, 3))]
        optimizer = make(parameters, lr=0.1, maximize=maximize, **way, **dict(zip(options, own, strict=True)))
        assert optimizers.only_reads_gradients(optimizer, optimizer.param_groups)
        gradients = [torch.full_like(each, 2.0) for each in parameters]
        for _ in range(3):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
        assert [each._version for each in gradients] == [0, 0], values
        assert all(bool((each == 2).all()) for each in gradients), values


def test_others_may_write_to_gradients() -> None:
    """Broken: Nesterov's momentum, or an optimizer of others, would spoil the mean of which it takes several steps."""
    parameter = torch.nn.Parameter(torch.ones(2))

    class Own(torch.optim.SGD):
        pass

    for optimizer in (
        torch.optim.SGD([parameter], momentum=0.9, nesterov=True),
        torch.optim.RMSprop([parameter]),
        Own([parameter]),
    ):
        assert not optimizers.only_reads_gradients(optimizer, optimizer.param_groups)
