"""What ranks of `test_owners.py` do."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import AllReduce, Owned, Owner, Part, Plan, Route, Schedule
from hocket.planning.buckets import plan_of
from hocket.torch.division import Division
from tests.torch.delayed_scripts import Attempts
from tests.torch.mixed_scripts import bucket_of

STEPS = 12
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda groups: torch.optim.SGD(groups, lr=0.05),
    "momentum": lambda groups: torch.optim.SGD(
        groups, lr=0.05, momentum=0.9, weight_decay=0.01, dampening=0.1
    ),
    "Nesterov": lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda groups: torch.optim.Adam(groups, lr=0.01, amsgrad=True),
    "AdamW": lambda groups: torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1),
    "AdamW, foreach": lambda groups: torch.optim.AdamW(groups, lr=0.01, foreach=True),
    "RMSprop": lambda groups: torch.optim.RMSprop(groups, lr=0.01, centered=True, momentum=0.5),
    "Adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.05, initial_accumulator_value=0.1),
    "Adadelta": torch.optim.Adadelta,
    "Adamax": lambda groups: torch.optim.Adamax(groups, lr=0.01),
    "NAdam": lambda groups: torch.optim.NAdam(groups, lr=0.01),
    "RAdam": lambda groups: torch.optim.RAdam(groups, lr=0.01),
    "ASGD": lambda groups: torch.optim.ASGD(groups, lr=0.05, t0=5),
    "Rprop": lambda groups: torch.optim.Rprop(groups, lr=0.01),
}


class Network(nn.Module):
    """With a scalar, a layer that only some steps use, and tensors whose sizes no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(7, 31), nn.Linear(31, 13, bias=False), nn.Linear(13, 3)
        self.spare = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor, *, spare: bool = False) -> torch.Tensor:
        x = self.last(self.second(self.first(x).tanh()).tanh()) * self.scale
        return self.spare(x) if spare else x


def network() -> nn.Module:
    torch.manual_seed(3)
    return Network()


def rank() -> int:
    return int(os.environ["HOCKET_RANK"])


def world() -> int:
    return int(os.environ["HOCKET_WORLD"])


def plan(update: str, *, gates: bool = False, shares: str = "even", ring: bool = True) -> Plan:
    """Two buckets with owners, whose boundaries lie anywhere in parameters, and an all-reduced one."""
    count = world()
    owners = {
        "even": [Owner(rank=each) for each in range(count)],
        "uneven": [Owner(rank=each, share=each) for each in range(count)],
        "first": [Owner(rank=0)],
    }[shares]
    owned = Owned(owners=tuple(owners), update=update)  # type: ignore[arg-type]
    around: Route = AllReduce(algorithm="ring") if ring else owned
    ways: list[tuple[Route, list[str]]] = [
        (owned, ["last.bias", "last.weight", "second.weight"]),
        (around, ["spare.weight", "spare.bias", "first.bias"]),
        (owned, ["scale", "first.weight"]),
    ]
    model = network()
    buckets = [
        bucket_of(model, names, route, count, priority=at, chunk_bytes=256)
        for at, (route, names) in enumerate(ways)
    ]
    made = plan_of(buckets, count, label=update)
    return msgspec.structs.replace(made, schedule=Schedule(overlap="gates" if gates else "barrier"))


def split() -> Plan:
    """One tensor of which 60 % are all-reduced and 40 % have owners, beside one that lies in several pieces of its bucket."""
    whole = plan("owners")
    sizes = {name: each.numel() for name, each in network().named_parameters()}
    first, around, last = whole.buckets
    cut = sizes["first.weight"] * 6 // 10
    return msgspec.structs.replace(
        whole,
        buckets=(
            first,
            msgspec.structs.replace(
                around,
                parts=(*around.parts, Part(variable="first.weight", start=0, stop=cut)),
                elements=around.elements + cut,
            ),
            msgspec.structs.replace(
                last,
                parts=(last.parts[0], Part(variable="first.weight", start=cut, stop=sizes["first.weight"])),
                elements=last.elements - cut,
            ),
        ),
    )


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    named = dict(model.named_parameters())
    few = [each for name, each in named.items() if name.startswith("last")]
    return [
        {"params": [each for name, each in named.items() if not name.startswith("last")]},
        {"params": few, "lr": 0.003},
    ]


def batch(step: int) -> torch.Tensor:
    return torch.randn(4, 7, generator=torch.Generator().manual_seed(100 * step + rank()))


def backward(model: nn.Module, step: int, clip: float | None) -> torch.Tensor:
    loss: torch.Tensor = model(batch(step), spare=step % 3 == 1 and rank() == 1).square().sum()
    loss.backward()
    if clip is not None:
        hk.clip_grad_norm_(model, clip)
    return loss


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: range,
    *,
    scheduler: Any = None,
    accumulate: bool = False,
    clip: float | None = None,
    closes: bool = False,
) -> None:
    for step in steps:
        optimizer.zero_grad()
        if accumulate:
            with hk.no_sync(model):
                model(batch(step + 1000)).square().sum().backward()
        if closes:
            assert optimizer.step(functools.partial(backward, model, step, clip)) is not None
        else:
            backward(model, step, clip)
            optimizer.step()
        if scheduler is not None:
            scheduler.step()


def begun(kind: str, of: Plan) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network()
    return hk.distribute(model, OPTIMIZERS[kind](groups_of(model)), plan=of)


def values(model: nn.Module) -> dict[str, list[float]]:
    return {name: each.flatten().tolist() for name, each in model.state_dict().items()}


def trained(kind: str, of: Plan, **options: Any) -> dict[str, list[float]]:
    model, optimizer = begun(kind, of)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    train(model, optimizer, range(STEPS), scheduler=scheduler, **options)
    return values(model)


def both(kind: str, shares: str) -> list[Any]:
    """Results of replicas, then of owners, with a barrier, with gates, and with closures."""
    made = [trained(kind, plan("replicas", shares=shares))]
    made += [trained(kind, plan("owners", shares=shares, gates=each)) for each in (False, True)]
    return [*made, trained(kind, plan("owners", shares=shares), closes=True)]


def in_parts(kind: str) -> list[Any]:
    return [trained(kind, plan("replicas")), trained(kind, split())]


def accumulated(kind: str) -> list[Any]:
    made = [trained(kind, plan("replicas"), accumulate=True)]
    return [*made, *(trained(kind, plan("owners", gates=each), accumulate=True) for each in (False, True))]


def clipped(kind: str) -> list[Any]:
    made = [trained(kind, plan("replicas"), clip=0.05)]
    return [*made, *(trained(kind, plan("owners", gates=each), clip=0.05) for each in (False, True))]


def norms() -> list[float]:
    """The norm that `clip_grad_norm_` says, of orders 2, 1 and infinity, without and with owners."""
    found = []
    for update in ("replicas", "owners"):
        model, _ = begun("SGD", plan(update))
        for order in (2.0, 1.0, float("inf")):
            model.zero_grad()
            model(batch(0)).square().sum().backward()
            found.append(float(hk.clip_grad_norm_(model, 1e9, order)))
    return found


def bytes_of(state: dict[Any, Any]) -> int:
    return sum(
        each.numel() * each.element_size()
        for own in state.values()
        for each in own.values()
        if isinstance(each, torch.Tensor) and each.numel() > 1
    )


def memory() -> list[int]:
    """Bytes of AdamW's state on this rank: with owners, and of the whole."""
    model, optimizer = begun("AdamW", plan("owners", ring=False))
    train(model, optimizer, range(3))
    return [bytes_of(optimizer.state), bytes_of(hk.optimizer_state(model)["state"])]


def plain(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return [str(state.dtype), list(state.shape), state.flatten().tolist()]
    if isinstance(state, dict):
        return {str(key): plain(value) for key, value in state.items()}
    return [plain(each) for each in state] if isinstance(state, list | tuple) else state


def saved(kind: str) -> list[Any]:
    """The whole state after 8 steps of replicas and of owners; then both go on to 16 by each of three plans: the parameters."""
    made: list[Any] = []
    for before in ("replicas", "owners"):
        model, optimizer = begun(kind, plan(before))
        train(model, optimizer, range(8))
        state, parameters = hk.optimizer_state(model), model.state_dict()
        made.append(plain(state))
        for after in (plan("replicas"), plan("owners", gates=True), plan("owners", shares="uneven")):
            other, resumed = begun(kind, after)
            if after.label == "replicas":
                train(other, resumed, range(2))
            other.load_state_dict(parameters)
            # An optimizer goes on with the very tensors that it loads.
            resumed.load_state_dict(copy.deepcopy(state))
            train(other, resumed, range(8, 16))
            made.append(values(other))
    return made


def taken_over(kind: str) -> list[Any]:
    """An optimizer that has trained before it is distributed."""
    found = []
    for update in ("replicas", "owners"):
        model = network()
        optimizer = OPTIMIZERS[kind](groups_of(model))
        for step in range(3):
            optimizer.zero_grad()
            model(batch(step)).square().sum().backward()
            optimizer.step()
        hk.distribute(model, optimizer, plan=plan(update))
        train(model, optimizer, range(3, 12))
        found.append(values(model))
    return found


JOINED = (8, 12, 4)
"""Numbers of batches of the ranks within `join`."""


def ways() -> list[Plan]:
    return [plan("replicas"), plan("owners"), plan("owners", gates=True)]


def joined(kind: str, how: str) -> list[Any]:
    """Results of replicas, of owners and of owners with gates after `join`, and after steps that all make then."""
    made = []
    for of in ways():
        model, optimizer = begun(kind, of)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        clip = 0.05 if how == "clipped" else None
        with hk.join(model, divide_by_initial_world_size=how != "of few"):
            train(model, optimizer, range(JOINED[rank()]), scheduler=scheduler, clip=clip)
        made.append(values(model))
        train(model, optimizer, range(STEPS, STEPS + 4), clip=clip)
        made.append(values(model))
    return [*made[::2], *made[1::2]]


def joined_together(order: str) -> list[Any]:
    """The same of two models, which step in turn or both after both backwards."""
    made = []
    for of in ways():
        both = [begun("momentum", of) for _ in range(2)]
        with hk.join(*(model for model, _ in both)):
            for step in range(JOINED[rank()]):
                for each, (model, optimizer) in enumerate(both):
                    optimizer.zero_grad()
                    backward(model, 50 * each + step, None)
                    if order == "in turn":
                        optimizer.step()
                for _, optimizer in both if order == "after both" else ():
                    optimizer.step()
        made.append(
            {
                f"{at} {name}": each
                for at, (model, _) in enumerate(both)
                for name, each in values(model).items()
            }
        )
    return made


class Layerwise(torch.optim.SGD):
    """As LAMB does, it would read whole tensors."""


def refused() -> dict[str, str]:
    attempt = Attempts()
    model, optimizer = begun("AdamW", plan("owners"))

    def backward() -> None:
        model(batch(0)).square().sum().backward()

    backward()
    attempt("torch's clip", lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    attempt("reads a gradient", model.get_parameter("first.weight").grad.sum)  # type: ignore[union-attr]
    attempt("state_dict", optimizer.state_dict)
    attempt("backward again", backward)
    optimizer.zero_grad()
    with hk.no_sync(model):
        backward()
    attempt("a step of what was not sent", optimizer.step)
    with hk.join(model):
        attempt("optimizer_state in join", lambda: hk.optimizer_state(model))
    for name, make in {
        "LBFGS": lambda each: torch.optim.LBFGS(each.parameters()),
        "Layerwise": lambda each: Layerwise(each.parameters(), lr=0.1),
        "a parameter less": lambda each: torch.optim.SGD([each.first.weight], lr=0.1),
    }.items():
        other = network()
        trained = dict(other.named_parameters())
        # A job gives up where `distribute` fails, so this is done without it.
        attempt(
            name, functools.partial(Division(make(other), trained).divide, [], dict.fromkeys(trained, ()))
        )
    return attempt
