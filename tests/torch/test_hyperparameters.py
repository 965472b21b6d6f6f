"""Optimizers as parameter servers run them: the same update on parts of a parameter, with the numbers of each step."""

import pytest
import torch
from torch import nn

from hocket.errors import UsageError
from hocket.torch.hyperparameters import ELEMENTWISE, group_of, groups_of, kind_of, numbers_of, one_parameter

STEPS = 4


@pytest.mark.parametrize("kind", sorted(ELEMENTWISE))
def test_two_servers_update_as_one_optimizer_does(kind):
    """A parameter that is split over servers would be trained otherwise than on one machine."""
    torch.manual_seed(0)
    whole = nn.Parameter(torch.randn(64))
    options = {"weight_decay": 0.01} if kind != "Rprop" else {}
    optimizer = getattr(torch.optim, kind)([whole], lr=0.01, **options)
    (group,) = groups_of(optimizer)
    parts = [nn.Parameter(part.clone()) for part in whole.detach().split([24, 40])]
    servers = [one_parameter(kind, part, group.options(group.flat())) for part in parts]
    for step in range(STEPS):
        whole.grad = torch.randn(64)
        optimizer.param_groups[0]["lr"] = 0.01 / (step + 1)
        numbers = numbers_of(optimizer, (group,))
        for server, part, gradient in zip(servers, parts, whole.grad.split([24, 40]), strict=True):
            part.grad = gradient.clone()
            server.param_groups[0].update(group.options(numbers))
            server.step()
        optimizer.step()
    assert torch.equal(torch.cat([part.detach() for part in parts]), whole.detach())


def test_optimizers_that_servers_cannot_run_are_refused():
    """A model would be trained by another rule than the script says, or lose its optimizer's state."""
    model = nn.Linear(3, 2)
    with pytest.raises(UsageError, match="cannot run the optimizer LBFGS"):
        kind_of(torch.optim.LBFGS(model.parameters()), model.parameters())

    class SGD(torch.optim.SGD):
        """Not torch's own, whatever its name."""

    with pytest.raises(UsageError, match="cannot run the optimizer SGD"):
        kind_of(SGD(model.parameters(), lr=0.1), model.parameters())
    resumed = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    model.bias.grad = None
    resumed.step()
    with pytest.raises(UsageError, match="has state from earlier steps"):
        kind_of(resumed, model.parameters())
    assert kind_of(resumed, [model.bias]) == "Adam", "state of what is not on servers stays with the workers"
    with pytest.raises(UsageError, match="`bias` is not in the optimizer"):
        group_of(torch.optim.SGD([model.weight], lr=0.1), dict(model.named_parameters()))
    with pytest.raises(UsageError, match="option `lr` of parameter group 0 is a Tensor"):
        groups_of(torch.optim.SGD([{"params": [model.weight], "lr": torch.ones(2)}], lr=0.1))


def test_what_a_scheduler_adds_is_left_alone_and_what_is_no_number_may_not_change():
    """A scheduler would shift all numbers by one, or a switch that the user flips would be lost."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    groups = groups_of(optimizer)
    before = numbers_of(optimizer, groups)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert numbers_of(optimizer, groups) == before
    optimizer.param_groups[0]["maximize"] = True
    with pytest.raises(UsageError, match="`maximize` of parameter group 0 was False"):
        numbers_of(optimizer, groups)
    optimizer.param_groups[0]["maximize"] = False
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(UsageError, match="has 2 parameter groups, it had 1"):
        numbers_of(optimizer, groups)
