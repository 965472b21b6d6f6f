"""`hk.curvature` against the Hessian itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hocket.errors import UsageError
from hocket.torch.curvature import largest_curvature
from hocket.torch.hyperparameters import learning_of
from hocket.torch.sketch import sketch


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.BatchNorm1d(6), nn.Linear(6, 3)).to(dtype)


def batch(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(6)
    return torch.randn(30, 4, generator=draw).to(dtype), torch.randint(3, (30,), generator=draw)


def hessian(model: nn.Module, samples: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    names = [name for name, _ in model.named_parameters()]
    values = [each.detach() for each in model.parameters()]
    sizes = [each.numel() for each in values]

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = (part.view(value.shape) for part, value in zip(flat.split(sizes), values, strict=True))
        made = torch.func.functional_call(model, dict(zip(names, parts, strict=True)), (samples,))
        return nn.functional.cross_entropy(made, classes)

    flat = torch.cat([each.reshape(-1) for each in values])
    return torch.autograd.functional.hessian(loss, flat)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 0.03), (torch.float32, 0.05)])
def test_it_is_the_largest_eigenvalue_and_leaves_no_trace(dtype: torch.dtype, within: float) -> None:
    """Broken: late gradients would be judged by a wrong curvature, or the check would change the training."""
    model, (samples, classes) = network(dtype), batch(dtype)
    expected = torch.linalg.eigvalsh(hessian(model.double(), samples.double(), classes)).abs().max()
    model = model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [each.clone() for each in model.state_dict().values()]
    state = torch.get_rng_state()
    found = largest_curvature(
        model, optimizer, lambda: nn.functional.cross_entropy(model(samples), classes), 200
    )
    assert found == pytest.approx(float(expected), rel=within)
    assert all(torch.equal(*pair) for pair in zip(before, model.state_dict().values(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert all(each.grad is None for each in model.parameters())


def test_adams_is_of_the_loss_that_it_descends() -> None:
    """Broken: Adam would be judged by the curvature of a loss that it scales."""
    model = nn.Linear(2, 1, bias=False).double()
    curved = torch.tensor([[100.0, 1.0]], dtype=torch.float64)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(50):
        adam.zero_grad()
        (0.5 * (curved * model.weight.square()).sum()).backward()
        adam.step()
    state = adam.state[model.weight]
    divisor = (state["exp_avg_sq"] / (1 - 0.999 ** float(state["step"]))).sqrt() + 1e-8
    found = largest_curvature(model, adam, lambda: 0.5 * (curved * model.weight.square()).sum(), 100)
    assert found == pytest.approx(float((curved / divisor).max()), rel=0.02)


@pytest.mark.parametrize("loss", [lambda: 1.0, lambda: torch.ones(2), lambda: torch.tensor(1.0)])
def test_a_loss_that_is_none_is_refused(loss: object) -> None:
    """Broken: a number of nothing would count."""
    model = nn.Linear(2, 1)
    with pytest.raises(UsageError, match="no scalar that depends on"):
        largest_curvature(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, 10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("optimizer", "rate", "momentum", "adaptive"),
    [
        (lambda each: torch.optim.SGD(each, lr=0.1), 0.1, 0.0, False),
        (lambda each: torch.optim.SGD(each, lr=0.1, momentum=0.9, dampening=0.5), 0.05, 0.9, False),
        (lambda each: torch.optim.AdamW(each, lr=0.1, betas=(0.8, 0.99)), 0.02, 0.8, True),
        (lambda each: torch.optim.RMSprop(each, lr=0.1, momentum=0.5), 0.1, 0.5, True),
        (
            lambda each: torch.optim.SGD([{"params": each[:1], "lr": 0.3}, {"params": each[1:]}], lr=0.1),
            0.3,
            0.0,
            False,
        ),
    ],
)
def test_an_optimizers_rate_and_momentum_are_read(optimizer, rate, momentum, adaptive) -> None:  # type: ignore[no-untyped-def]
    """Broken: the guard would judge by another optimizer than the one that steps."""
    found = learning_of(optimizer(list(nn.Linear(2, 1).parameters())))
    assert found is not None
    assert (found.rate, found.momentum, found.adaptive) == (pytest.approx(rate), momentum, adaptive)


def test_products_of_sketches_are_those_of_gradients() -> None:
    """Broken: a profile's noise would be that of its sketches."""
    torch.manual_seed(7)
    parameters = [nn.Parameter(torch.zeros(300, 40)), nn.Parameter(torch.zeros(77))]
    gradients = [[torch.randn(each.shape) for each in parameters] for _ in range(2)]
    for first in gradients:
        first[0] += 0.2
    exact = [
        [sum(float((x * y).sum()) for x, y in zip(a, b, strict=True)) for a in gradients] for b in gradients
    ]
    found = torch.zeros(2, 2, dtype=torch.float64)
    count = 20
    for seed in range(count):
        sketches = []
        for own in gradients:
            for each, gradient in zip(parameters, own, strict=True):
                each.grad = gradient
            sketches.append(torch.frombuffer(bytearray(sketch(parameters, seed=seed)), dtype=torch.float64))
        found += torch.stack(sketches) @ torch.stack(sketches).T / count
    largest = max(exact[0][0], exact[1][1])
    assert (found - torch.tensor(exact)).abs().max() < 0.03 * largest
